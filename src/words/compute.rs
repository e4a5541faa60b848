//! [`Compute`]: the number types of `precision.compute`.

use serde::{Deserialize, Serialize};

/// The type that weights, activations and gradients are stored in and multiplied in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum Compute {
    /// IEEE binary32 throughout; never TF32.
    #[default]
    Fp32,
    /// Stored as fp32, multiplied in TF32 on the tensor cores; CUDA only.
    Tf32,
    Bf16,
    Fp16,
}

impl Compute {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }

    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Fp32 | Self::Tf32 => 4,
            Self::Bf16 | Self::Fp16 => 2,
        }
    }
}
