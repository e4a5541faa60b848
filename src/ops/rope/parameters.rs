//! The tables `rope_scaling` and `rope_parameters` of a config.json, as transformers 4 and 5 write them.

use serde_json::{Map, Value};

use super::{Scaling, Yarn};

/// What such a table says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RopeParameters {
    /// `rope_theta`, where it is in the table.
    pub theta: Option<f64>,
    /// `partial_rotary_factor`, the part of a head's numbers that is turned, where it is in the table.
    pub fraction: Option<f64>,
    pub scaling: Scaling,
}

impl RopeParameters {
    /// `longest` is the file's `max_position_embeddings`; `original` its `original_max_position_embeddings` beside the
    /// table, which comes before that in the table.
    ///
    /// # Errors
    /// Names a key that is missing, unknown, or has a value that it cannot have.
    pub fn read(table: &Map<String, Value>, longest: usize, original: Option<usize>) -> Result<Self, String> {
        let mut keys = Keys { table, read: Vec::new() };
        let theta = keys.number("rope_theta")?;
        let fraction = keys.number("partial_rotary_factor")?;
        let (kind, before) = (keys.word("rope_type")?, keys.word("type")?);
        if kind.is_some() && before.is_some_and(|before| kind != Some(before)) {
            return Err("`rope_type` and `type` differ; they are the same key in two spellings".into());
        }
        let longest_before = |keys: &mut Keys<'_>| {
            let own = keys.count("original_max_position_embeddings")?;
            Ok::<_, String>(original.or(own).unwrap_or(longest))
        };
        let scaling = match kind.or(before).unwrap_or("default") {
            "default" => Scaling::None,
            "linear" => Scaling::Linear { factor: keys.needed("factor")? },
            "dynamic" => Scaling::Dynamic { factor: keys.needed("factor")?, original: longest },
            "llama3" => Scaling::Llama3 {
                factor: keys.needed("factor")?,
                low: keys.needed("low_freq_factor")?,
                high: keys.needed("high_freq_factor")?,
                original: longest_before(&mut keys)?,
            },
            "yarn" => {
                let original = longest_before(&mut keys)?;
                Scaling::Yarn(keys.yarn(longest, original)?)
            }
            "longrope" | "su" => {
                let original = longest_before(&mut keys)?;
                keys.longrope(longest, original)?
            }
            other => {
                return Err(format!(
                    "`rope_type` is \"{other}\"; known are default, linear, dynamic, llama3, yarn and longrope"
                ));
            }
        };
        keys.all_read()?;
        Ok(Self { theta, fraction, scaling })
    }
}

impl Scaling {
    /// Whether it scales the frequencies of `turned` numbers of a head.
    ///
    /// # Errors
    /// Says what does not fit.
    pub fn check(&self, turned: usize) -> Result<(), String> {
        let fits = |name: &str, factors: &[f32]| match factors.len() == turned / 2 {
            true => Ok(()),
            false => Err(format!(
                "`{name}` has {} numbers; {turned} turned elements of a head make {} pairs",
                factors.len(),
                turned / 2
            )),
        };
        match self {
            Self::LongRope { short_factor, long_factor, .. } => {
                fits("short_factor", short_factor).and_then(|()| fits("long_factor", long_factor))
            }
            Self::Llama3 { low, high, .. } if low >= high => {
                Err(format!("`low_freq_factor` {low} must be below `high_freq_factor` {high}"))
            }
            Self::Yarn(_) | Self::Dynamic { .. } if !turned.is_multiple_of(2) => {
                Err(format!("{turned} turned elements of a head are odd, and this scaling counts pairs"))
            }
            Self::Dynamic { .. } if turned <= 2 => {
                Err("dynamic scaling needs more than one pair of turned elements in a head".into())
            }
            _ => Ok(()),
        }
    }
}

/// A table, and which of its keys were read. A null is an absent key.
struct Keys<'a> {
    table: &'a Map<String, Value>,
    read: Vec<&'static str>,
}

impl<'a> Keys<'a> {
    fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.read.push(name);
        self.table.get(name).filter(|value| !value.is_null())
    }

    fn number(&mut self, name: &'static str) -> Result<Option<f64>, String> {
        let number = |value: &Value| {
            let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
            number.ok_or_else(|| format!("`{name}` is {value}; it must be a number above 0"))
        };
        self.value(name).map(number).transpose()
    }

    fn needed(&mut self, name: &'static str) -> Result<f64, String> {
        self.number(name)?.ok_or_else(|| format!("`{name}` is missing"))
    }

    fn count(&mut self, name: &'static str) -> Result<Option<usize>, String> {
        let count = |value: &Value| {
            let count = value.as_u64().filter(|count| *count > 0);
            count
                .map(|count| count as usize)
                .ok_or_else(|| format!("`{name}` is {value}; it must be a whole number"))
        };
        self.value(name).map(count).transpose()
    }

    fn word(&mut self, name: &'static str) -> Result<Option<&'a str>, String> {
        let word = |value: &'a Value| {
            value.as_str().ok_or_else(|| format!("`{name}` is {value}; it must be a word"))
        };
        self.value(name).map(word).transpose()
    }

    fn numbers(&mut self, name: &'static str) -> Result<Vec<f32>, String> {
        let number =
            |value: &Value| value.as_f64().filter(|number| *number > 0.0).map(|number| number as f32);
        let numbers = self.value(name).and_then(Value::as_array);
        let numbers: Option<Vec<f32>> = numbers.and_then(|numbers| numbers.iter().map(number).collect());
        numbers.ok_or_else(|| format!("`{name}` must be a list of numbers above 0"))
    }

    /// A factor of 0 of YaRN is an absent one.
    fn optional(&mut self, name: &'static str) -> Result<Option<f64>, String> {
        if self.table.get(name).and_then(Value::as_f64) == Some(0.0) {
            self.read.push(name);
            return Ok(None);
        }
        self.number(name)
    }

    fn yarn(&mut self, longest: usize, original: usize) -> Result<Yarn, String> {
        let truncate = match self.value("truncate") {
            None => true,
            Some(value) => value.as_bool().ok_or("`truncate` must be true or false")?,
        };
        Ok(Yarn {
            factor: self.number("factor")?.unwrap_or(longest as f64 / original as f64),
            original,
            beta_fast: self.optional("beta_fast")?.unwrap_or(32.0),
            beta_slow: self.optional("beta_slow")?.unwrap_or(1.0),
            attention_factor: self.number("attention_factor")?,
            mscale: self.optional("mscale")?,
            mscale_all_dim: self.optional("mscale_all_dim")?,
            truncate,
        })
    }

    fn longrope(&mut self, longest: usize, original: usize) -> Result<Scaling, String> {
        let factor = self.number("factor")?.unwrap_or(longest as f64 / original as f64);
        let of_length = Scaling::longrope_attention_factor(factor, original);
        Ok(Scaling::LongRope {
            short_factor: self.numbers("short_factor")?,
            long_factor: self.numbers("long_factor")?,
            original,
            attention_factor: self.number("attention_factor")?.unwrap_or(of_length),
        })
    }

    /// # Errors
    /// Names a key that nothing has read.
    fn all_read(&self) -> Result<(), String> {
        let unknown =
            self.table.iter().find(|(name, value)| !value.is_null() && !self.read.contains(&name.as_str()));
        match unknown {
            None => Ok(()),
            Some((name, value)) => Err(format!(
                "`{name}` = {value} is no key of this kind of rotary positions that the runner reads"
            )),
        }
    }
}
