//! Values with rules: sizes of at least one, amounts of memory, rates. An impossible value is an
//! error where it is written.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Largest size a recipe may name: 2^31 - 1, the index range of a tensor dimension on CUDA.
pub const MAX_COUNT: i64 = i32::MAX as i64;

/// Most layers of a network. Each has tensors with names of their own, which are listed.
pub const MAX_LAYERS: i64 = 1 << 16;

/// A whole number of at least one: batch sizes, dimensions, steps. `T` is `usize`, or an option of it for a
/// key that may be absent; so are those of the other rules.
pub fn count<'de, D: Deserializer<'de>, T: From<usize>>(d: D) -> Result<T, D::Error> {
    whole(d, 1, MAX_COUNT).map(T::from)
}

/// A whole number of at least zero: warm-up steps.
pub fn count_or_zero<'de, D: Deserializer<'de>, T: From<usize>>(d: D) -> Result<T, D::Error> {
    whole(d, 0, MAX_COUNT).map(T::from)
}

/// A number of layers.
pub fn layers<'de, D: Deserializer<'de>, T: From<usize>>(d: D) -> Result<T, D::Error> {
    whole(d, 1, MAX_LAYERS).map(T::from)
}

fn whole<'de, D: Deserializer<'de>>(d: D, least: i64, most: i64) -> Result<usize, D::Error> {
    struct Whole(i64, i64);
    impl Visitor<'_> for Whole {
        type Value = usize;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            write!(f, "a whole number of at least {}", self.0)
        }
        fn visit_i64<E: de::Error>(self, n: i64) -> Result<usize, E> {
            if n < self.0 {
                return Err(E::custom(format!("must be at least {}, not {n}", self.0)));
            }
            if n > self.1 {
                return Err(E::custom(format!("must be at most {}, not {n}", self.1)));
            }
            Ok(n as usize)
        }
        fn visit_u64<E: de::Error>(self, n: u64) -> Result<usize, E> {
            self.visit_i64(i64::try_from(n).unwrap_or(i64::MAX))
        }
    }
    d.deserialize_any(Whole(least, most))
}

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

/// [`Range::Positive`]
pub fn positive<'de, D: Deserializer<'de>, T: From<f64>>(d: D) -> Result<T, D::Error> {
    number(d, Range::Positive).map(T::from)
}

/// [`Range::NonNegative`]
pub fn non_negative<'de, D: Deserializer<'de>, T: From<f64>>(d: D) -> Result<T, D::Error> {
    number(d, Range::NonNegative).map(T::from)
}

/// [`Range::Fraction`]
pub fn fraction<'de, D: Deserializer<'de>, T: From<f64>>(d: D) -> Result<T, D::Error> {
    number(d, Range::Fraction).map(T::from)
}

fn number<'de, D: Deserializer<'de>>(d: D, range: Range) -> Result<f64, D::Error> {
    struct Number(Range);
    impl Visitor<'_> for Number {
        type Value = f64;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(self.0.describe())
        }
        fn visit_f64<E: de::Error>(self, x: f64) -> Result<f64, E> {
            if self.0.contains(x) {
                Ok(x)
            } else {
                Err(E::custom(format!("must be {}, not {x}", self.0.describe())))
            }
        }
        fn visit_i64<E: de::Error>(self, n: i64) -> Result<f64, E> {
            self.visit_f64(n as f64)
        }
        fn visit_u64<E: de::Error>(self, n: u64) -> Result<f64, E> {
            self.visit_f64(n as f64)
        }
    }
    d.deserialize_any(Number(range))
}

/// An amount of memory, written `"11 GiB"`, `"10 GB"` or as a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bytes(pub u64);

/// Binary units (1024) and SI units (1000), as their names say.
const UNITS: [(&str, u64); 9] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

impl Bytes {
    /// `None` for what is no amount with a unit.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let amount: f64 = text[..digits].parse().ok()?;
        let unit = text[digits..].trim().to_lowercase();
        let scale = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let bytes = amount * scale as f64;
        (1.0..1e18).contains(&bytes).then_some(Self(bytes as u64))
    }
}

/// Three significant digits in binary units: `1.25 GiB`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = "B";
        for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
            if value < 1000.0 {
                break;
            }
            value /= 1024.0;
            unit = next;
        }
        let decimals = match value {
            _ if unit == "B" => 0,
            v if v < 9.995 => 2,
            v if v < 99.95 => 1,
            _ => 0,
        };
        f.pad(&format!("{value:.decimals$} {unit}"))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Amount;
        impl Visitor<'_> for Amount {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an amount of memory such as \"11 GiB\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                Bytes::parse(text).ok_or_else(|| {
                    E::custom(format!(
                        "must be an amount of memory such as \"11 GiB\" or \"500 MB\", not \"{text}\""
                    ))
                })
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Bytes, E> {
                u64::try_from(n)
                    .ok()
                    .filter(|n| *n > 0)
                    .map(Bytes)
                    .ok_or_else(|| E::custom(format!("must be above 0 bytes, not {n}")))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Bytes, E> {
                Ok(Bytes(n))
            }
        }
        d.deserialize_any(Amount)
    }
}
