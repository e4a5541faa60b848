//! [`OperatorName`]: what work of a step is called in traces and in the table of where its time goes.

use strum::{EnumCount, IntoStaticStr, VariantArray};

use crate::device::trace::Scope;

/// Operators, those of `[ops]` by their keys, and what else a step issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum OperatorName {
    Embedding,
    Norm,
    Linear,
    Rope,
    Attention,
    Gelu,
    Swiglu,
    Residual,
    Loss,
    /// Sums over the ranks that layers are divided among.
    #[strum(serialize = "all-reduce")]
    AllReduce,
    /// Blocks, gradients and inputs of blocks on their way between the host and the device.
    Offload,
    /// Weights in the type they are multiplied in, for all micro-batches.
    #[strum(serialize = "weight casts")]
    WeightCasts,
    /// Gradients of what was used more than once, and of micro-batches.
    #[strum(serialize = "gradient sums")]
    GradientSums,
    /// What clipping and gradient scaling ask of all gradients.
    #[strum(serialize = "gradient norm")]
    GradientNorm,
    Update,
}

impl OperatorName {
    /// What is issued until the scope is dropped belongs to this operator in a recording; `None` without one.
    pub fn scope(self) -> Option<Scope> {
        Scope::enter(self.into_str())
    }
}
