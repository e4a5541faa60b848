//! [`Capability`]: the compute capability of a GPU, and [`Feature`]: what begins with which.

use std::fmt;
use std::str::FromStr;

use crate::common::Compute;

/// The generation of a GPU: 9.0 is Hopper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    pub major: u32,
    pub minor: u32,
}

/// What GPUs have from some compute capability on. This is the only place that says from which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The kernels at all: none has been compiled for an older device.
    Kernels,
    /// Tensor cores for products of fp16; before, such a product takes as long as one of fp32.
    Fp16TensorCores,
    /// Tensor cores for products of bf16, without which cuBLASLt has no such products.
    Bf16Products,
    /// Tensor cores for products of TF32.
    Tf32Products,
    /// The kernels of fused attention: asynchronous copies and products of 16 × 8 × 16.
    FusedAttention,
    /// Blocks of threads that read one another's shared memory, which share a row of the loss.
    Clusters,
}

impl Feature {
    /// The first compute capability that has it.
    pub const fn since(self) -> Capability {
        match self {
            Self::Kernels => Capability::new(6, 0),
            Self::Fp16TensorCores => Capability::new(7, 0),
            Self::Bf16Products | Self::Tf32Products | Self::FusedAttention => Capability::new(8, 0),
            Self::Clusters => Capability::new(9, 0),
        }
    }

    /// What products in this type need; `None`: nothing beside the kernels.
    pub const fn of_products(compute: Compute) -> Option<Self> {
        match compute {
            Compute::Bf16 => Some(Self::Bf16Products),
            Compute::Tf32 => Some(Self::Tf32Products),
            Compute::Fp32 | Compute::Fp16 => None,
        }
    }
}

/// What it needs, to be followed by what a device has.
impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Kernels => "the runner's CUDA kernels need",
            Self::Fp16TensorCores => "tensor cores need",
            Self::Bf16Products => "bf16 needs tensor cores of",
            Self::Tf32Products => "tf32 needs tensor cores of",
            Self::FusedAttention => "fused attention needs",
            Self::Clusters => "clusters of blocks need",
        };
        write!(f, "{what} compute capability {}", self.since())
    }
}

impl Capability {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    pub fn has(self, feature: Feature) -> bool {
        self >= feature.since()
    }

    /// Whether a device that has this one, or of which nothing is known, has a feature.
    pub fn may_have(own: Option<Self>, feature: Feature) -> bool {
        own.is_none_or(|own| own.has(feature))
    }

    /// The type of 16 bits for products on such a device: bf16, whose exponents reach as far as those of fp32, or fp16.
    pub fn narrow(own: Option<Self>) -> Compute {
        if Self::may_have(own, Feature::Bf16Products) { Compute::Bf16 } else { Compute::Fp16 }
    }

    /// As in the names of architectures: 75 is 7.5, 120 is 12.0.
    pub const fn number(self) -> u32 {
        10 * self.major + self.minor
    }

    /// The inverse of [`number`](Self::number), of what is written.
    pub fn of_number(text: &str) -> Option<Self> {
        let digits = (2..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let number: u32 = text.parse().ok().filter(|number| digits && *number >= 10)?;
        Some(Self::new(number / 10, number % 10))
    }

    /// Bytes of shared memory that a block of threads may ask for (CUDA C++ Programming Guide, "Compute Capabilities").
    /// Of one that is not there yet, as little as its neighbours have.
    pub const fn shared_memory(self) -> usize {
        let kibibytes = match (self.major, self.minor) {
            (..=6, _) => 48,
            (7, ..=4) => 96,
            (7, _) => 64,
            (8, 0 | 7) => 163,
            (9..=11, _) => 227,
            _ => 99,
        };
        kibibytes << 10
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Capability {
    type Err = String;

    /// `7.5`
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.trim().split_once('.').filter(|(_, minor)| minor.len() == 1);
        let capability = parts.and_then(|(major, minor)| Self::of_number(&format!("{major}{minor}")));
        capability.ok_or_else(|| format!("\"{text}\" is no compute capability, such as 7.5"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_of_the_same_capabilities() {
        for (text, number) in [("6.1", "61"), ("7.5", "75"), ("9.0", "90"), ("12.0", "120")] {
            let capability: Capability = text.parse().unwrap();
            assert_eq!(
                (capability.to_string().as_str(), capability.number().to_string().as_str()),
                (text, number)
            );
            assert_eq!(Capability::of_number(number), Some(capability));
        }
        for wrong in ["", "7", "7.", ".5", "7.55", "sm_75", "-7.5", "7,5", "0.5", "1234.0"] {
            let error = wrong.parse::<Capability>().expect_err(wrong);
            assert!(error.contains("is no compute capability, such as 7.5"), "{error}");
        }
        for wrong in ["", "7", "05", "+75", "9a", "1200"] {
            assert_eq!(Capability::of_number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn later_ones_have_what_earlier_ones_have() {
        let has = |text: &str, feature| text.parse::<Capability>().unwrap().has(feature);
        assert!(!has("5.2", Feature::Kernels) && has("6.0", Feature::Kernels));
        assert!(!has("7.5", Feature::Bf16Products) && has("8.0", Feature::Bf16Products));
        assert!(
            !has("8.9", Feature::Clusters) && has("9.0", Feature::Clusters) && has("12.0", Feature::Clusters)
        );
        assert_eq!(Feature::of_products(Compute::Fp16), None);
    }
}
