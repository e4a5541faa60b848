//! [`Values`]: which values a key of a recipe takes.

use std::fmt;

use serde::de::{self, Deserializer, Unexpected, Visitor};

/// Largest size a recipe may name: 2^31 - 1, the index range of a tensor dimension on CUDA.
pub const MAX_COUNT: i64 = i32::MAX as i64;

/// Most layers of a network. Each has tensors with names of their own, which are listed.
pub const MAX_LAYERS: i64 = 1 << 16;

/// Which values a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    Bool,
    /// true, false, or one of these words; refused where it gets its type.
    BoolOr(&'static [&'static str]),
    Words(&'static [&'static str]),
    /// The kinds of its section.
    Kinds,
    Whole {
        least: i64,
        most: i64,
    },
    /// A whole number, or one of these words; refused where it gets its type.
    WholeOr {
        least: i64,
        most: i64,
        words: &'static [&'static str],
    },
    Number(Range),
    /// A number above 0 that reads as a power of two.
    Scale,
    Numbers(&'static [f64]),
    /// An amount of memory.
    Bytes,
    Text,
    /// A list of texts.
    Texts,
    /// One of these words, or a path.
    Path(&'static [&'static str]),
}

/// At least one.
pub const COUNT: Values = Values::Whole { least: 1, most: MAX_COUNT };
pub const COUNT_OR_ZERO: Values = Values::Whole { least: 0, most: MAX_COUNT };
pub const LAYERS: Values = Values::Whole { least: 1, most: MAX_LAYERS };
pub const POSITIVE: Values = Values::Number(Range::Positive);
pub const NON_NEGATIVE: Values = Values::Number(Range::NonNegative);
pub const FRACTION: Values = Values::Number(Range::Fraction);

/// Which numbers a key takes; they are finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Above 0: learning rates, time limits.
    Positive,
    /// At least 0: weight decay.
    NonNegative,
    /// In [0, 1): momenta.
    Fraction,
}

impl Range {
    pub fn describe(self) -> &'static str {
        match self {
            Self::Positive => "a number above 0",
            Self::NonNegative => "a number of at least 0",
            Self::Fraction => "a number from 0 to below 1",
        }
    }

    /// The bounds, as a JSON Schema has them.
    pub fn schema(self) -> serde_json::Value {
        let (least, most) = match self {
            Self::Positive => ("exclusiveMinimum", None),
            Self::NonNegative => ("minimum", None),
            Self::Fraction => ("minimum", Some(1)),
        };
        let mut schema = serde_json::json!({ "type": "number", least: 0 });
        if let Some(most) = most {
            schema["exclusiveMaximum"] = most.into();
        }
        schema
    }

    pub fn contains(self, x: f64) -> bool {
        match self {
            Self::Positive => x.is_finite() && x > 0.0,
            Self::NonNegative => x.is_finite() && x >= 0.0,
            Self::Fraction => (0.0..1.0).contains(&x),
        }
    }
}

impl Values {
    /// Refuses a number outside of these values. A value of another type is refused where it gets its type.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn check<'de, D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        match self {
            Self::Whole { .. } | Self::Number(_) | Self::Scale => value.deserialize_any(self),
            _ => Ok(()),
        }
    }
}

impl Visitor<'_> for Values {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Whole { least, .. } => write!(f, "a whole number of at least {least}"),
            Self::Number(range) => f.write_str(range.describe()),
            _ => f.write_str(Range::Positive.describe()),
        }
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<(), E> {
        match self {
            Self::Whole { least, .. } if n < least => {
                Err(E::custom(format!("must be at least {least}, not {n}")))
            }
            Self::Whole { most, .. } if n > most => {
                Err(E::custom(format!("must be at most {most}, not {n}")))
            }
            Self::Whole { .. } => Ok(()),
            _ => self.visit_f64(n as f64),
        }
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<(), E> {
        self.visit_i64(i64::try_from(n).unwrap_or(i64::MAX))
    }

    fn visit_f64<E: de::Error>(self, x: f64) -> Result<(), E> {
        let range = match self {
            Self::Whole { .. } => return Err(E::invalid_type(Unexpected::Float(x), &self)),
            Self::Number(range) => range,
            _ => Range::Positive,
        };
        match range.contains(x) {
            true => Ok(()),
            false => Err(E::custom(format!("must be {}, not {x}", range.describe()))),
        }
    }
}
