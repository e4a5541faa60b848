//! `[precision]`: the types that a network is stored and computed in, and what keeps training in few
//! bits from losing gradients.

mod collapse;
mod magnitudes;
mod scaler;

use burn::tensor::DType;
use serde::{Deserialize, Serialize};

pub use collapse::collapse;
pub use magnitudes::gradient_histogram;
pub use scaler::{DynamicGradScaler, GradScaler, ScalerConfig, StaticGradScaler, Unscaled};

use crate::device::dtype;
use crate::ops::dense::Arithmetic;
use crate::ops::linear::Fp32Math;
use crate::optim::OptimizerConfig;
use crate::recipe::Cell;
use crate::residence::Memory;
use crate::words::{Compute, Rule};

/// `[precision]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Precision {
    pub compute: Compute,
    /// Weights, residual sums and optimizer state in fp32; matrix products in `compute`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub autocast: bool,
    /// What the loss is multiplied by, so that small gradients do not vanish in fp16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaler: Option<ScalerConfig>,
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

    pub(crate) fn check(&self, cell: &Cell) -> Result<(), Rule> {
        if self.autocast && matches!(self.compute, Compute::Fp32 | Compute::Tf32) {
            return Err(Rule::new(
                &["precision.autocast"],
                format!(
                    "autocast has no effect with compute = \"{}\": everything is fp32 already",
                    self.compute.into_str()
                ),
                "remove precision.autocast, or set compute to \"bf16\" or \"fp16\"",
            ));
        }
        if cell.measure.gradient_histogram && cell.offload().moves() {
            return Err(Rule::new(
                &["measure.gradient_histogram"],
                "a histogram counts gradients on the device; those of offloaded blocks go to the host",
                "remove measure.gradient_histogram, or set offload.strategy = \"none\"",
            ));
        }
        let Some(scaler) = &self.scaler else { return Ok(()) };
        let refused = |message: String, help: &str| Err(Rule::new(&["precision.scaler"], message, help));
        if self.compute != Compute::Fp16 {
            return refused(
                format!(
                    "a gradient scaler has no effect with compute = \"{}\", whose exponents reach as far as fp32's",
                    self.compute.into_str()
                ),
                "remove precision.scaler, or set compute = \"fp16\"",
            );
        }
        if matches!(cell.train.optimizer, OptimizerConfig::None(_)) {
            return refused(
                "a gradient scaler has no effect without an optimizer: there is no step to skip".into(),
                "remove precision.scaler, or set train.optimizer",
            );
        }
        if cell.offload().moves() || cell.offload().optimizer == Memory::Host {
            return refused(
                "a gradient scaler skips whole updates on the device, and offloaded blocks are updated one by one"
                    .into(),
                "remove precision.scaler and use compute = \"bf16\", or set offload.strategy = \"none\"",
            );
        }
        scaler.check()
    }
}
