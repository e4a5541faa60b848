//! [`Compute`]: the number types of `precision.compute`.

use serde::{Deserialize, Serialize};

/// The type that weights, activations and gradients are stored in and multiplied in.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
    strum::Display,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
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
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Fp32 | Self::Tf32 => 4,
            Self::Bf16 | Self::Fp16 => 2,
        }
    }
}
