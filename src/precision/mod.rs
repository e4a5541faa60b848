//! `[precision]`: the types that a network is stored and computed in, and what keeps training in few
//! bits from losing gradients.

mod collapse;
mod magnitudes;
mod scaler;

use burn::tensor::DType;
pub use collapse::collapse;
pub use magnitudes::gradient_histogram;
pub use scaler::{DynamicGradScaler, GradScaler, ScalerConfig, StaticGradScaler, Unscaled};

use crate::common::Compute;
use crate::device::dtype;
use crate::keys::key::DefaultValue::Word;
use crate::keys::section::section;
use crate::keys::values::Values;
use crate::keys::{Key, Rule, Section};
use crate::ops::dense::Arithmetic;
use crate::ops::product::Fp32Math;

section! {
    /// The number types that a network is stored and computed in.
    #[derive(Copy, Default)]
    pub struct Precision: Section::new("precision") => {
        /// Type of weights, activations and gradients; with autocast of matrix products alone.
        pub compute: Compute =
            Key::method(Values::Words(&["fp32", "tf32", "bf16", "fp16"])).default(Word("fp32")).called("precision"),
        /// Weights, residual sums and optimizer state in fp32, matrix products in `compute`.
        pub autocast: bool = Key::flag(false),
    } and {
        /// What the loss is multiplied by, so that small gradients do not vanish in fp16.
        pub scaler: Option<ScalerConfig>,
    }
}

impl Precision {
    /// The parameters' type: the compute type, or fp32 under autocast.
    pub fn stored(&self) -> DType {
        if self.autocast { DType::F32 } else { dtype(self.compute) }
    }

    /// Bytes of one element of a parameter.
    pub fn stored_bytes(&self) -> u64 {
        self.stored().size() as u64
    }

    /// The arithmetic outside of every [`autocast`] region: that of the stored type.
    pub fn arithmetic(&self) -> Arithmetic {
        let math = if self.autocast { Fp32Math::Exact } else { Fp32Math::of(self.compute) };
        Arithmetic { dtype: self.stored(), math }
    }

    /// The type of the region that forward runs in; `None` without autocast.
    pub fn region(&self) -> Option<DType> {
        self.autocast.then(|| dtype(self.compute))
    }

    /// What cannot be within the section.
    pub(crate) fn check(&self) -> Result<(), Rule> {
        Rule::refuse_if(
            self.autocast && matches!(self.compute, Compute::Fp32 | Compute::Tf32),
            &["precision.autocast"],
            format!(
                "autocast has no effect with compute = \"{}\": everything is fp32 already",
                self.compute.into_str()
            ),
            "remove precision.autocast, or set compute to \"bf16\" or \"fp16\"",
        )?;
        let Some(scaler) = &self.scaler else { return Ok(()) };
        Rule::refuse_if(
            self.compute != Compute::Fp16,
            &["precision.scaler"],
            format!(
                "a gradient scaler has no effect with compute = \"{}\", whose exponents reach as far as fp32's",
                self.compute.into_str()
            ),
            "remove precision.scaler, or set compute = \"fp16\"",
        )?;
        scaler.check()
    }
}
