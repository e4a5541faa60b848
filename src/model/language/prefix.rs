//! [`Prefix`]: the trained keys and values of virtual tokens in one layer's attention.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::Context;
use crate::ops::attention::Heads;
use crate::ops::cost::{Cost, Setting};
use crate::ops::name::OperatorName;
use crate::ops::virtual_tokens::{cost, with_virtual};
use crate::params::source::{DEVIATION, Init, Source};
use crate::params::table::{Group, Tuning};
use crate::params::tuning::VirtualTokens;

/// Keys, as they are after their rotation, and values.
#[derive(Module, Debug)]
pub struct Prefix {
    /// [virtual tokens, 2 · columns], keys first.
    vectors: Param<Tensor<2>>,
}

impl Prefix {
    /// For attention with this many columns of keys; `None` where the source's tuning has no prefix.
    pub fn new(source: &Source, columns: usize) -> Option<Self> {
        let Some(VirtualTokens::KeysAndValues(count)) = source.tuning().virtual_tokens else { return None };
        let source = source.within(Group::Adapter);
        Some(Self { vectors: source.parameter("prefix", [count, 2 * columns], Init::Normal(DEVIATION)) })
    }

    /// q, k and v side by side, with those of the prefix in the rows of virtual tokens.
    pub fn within(prefix: &Option<Self>, qkv: Tensor<2>, heads: Heads, context: &Context) -> Tensor<2> {
        let (Some(prefix), Some(rows)) = (prefix, &context.virtual_rows) else { return qkv };
        with_virtual(OperatorName::Attention, qkv, prefix.vectors.val(), rows, heads.columns())
    }

    /// k and v, with those of the prefix in the rows of virtual tokens.
    pub fn keys_and_values(
        prefix: &Option<Self>,
        both: [Tensor<2>; 2],
        heads: Heads,
        context: &Context,
    ) -> [Tensor<2>; 2] {
        let (Some(prefix), Some(rows)) = (prefix, &context.virtual_rows) else { return both };
        let (mut first, columns) = (0, heads.of_keys().columns());
        both.map(|x| {
            let vectors = prefix.vectors.val().narrow(1, first, columns);
            first += columns;
            with_virtual(OperatorName::Attention, x, vectors, rows, 0)
        })
    }

    /// What attention costs with the prefix that `tuning` gives it. `columns`: of q, k and v together, and of k and v.
    pub fn attended(setting: &Setting, tuning: &Tuning, [all, keys]: [u64; 2], attention: Cost) -> Cost {
        let Some(VirtualTokens::KeysAndValues(count)) = tuning.virtual_tokens else { return attention };
        let sizes = [count as u64, keys];
        let prefix = cost(OperatorName::Attention, setting, sizes, (all, setting.element()));
        Cost::sequence(&[prefix, attention])
    }
}
