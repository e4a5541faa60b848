//! [`Bytes`]: amounts of memory, as recipes write them and reports print them.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

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
    /// `None` for a text that is not an amount with a unit.
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
