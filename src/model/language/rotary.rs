//! [`RotaryAttention`]: three projections, the rotation of queries and keys, and attention.

use burn::module::Module;
use burn::tensor::Tensor;

use super::parts::{Linear, linear_cost};
use super::{Context, LayerCache, Prefix, attend};
use crate::ops::Operator;
use crate::ops::attention::{self, HeadSizes, attention_packed};
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::WeightLayout;
use crate::ops::rope::{self, Pairs, rope, rope_first};
use crate::params::source::Source;
use crate::params::split::Side;
use crate::params::table::Tuning;

/// Attention without its output projection. Fields carry Hugging Face's names.
#[derive(Module, Debug)]
pub struct RotaryAttention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    prefix: Option<Prefix>,
}

/// The sizes of a [`RotaryAttention`].
#[derive(Clone, Copy, Debug)]
pub struct RotarySizes {
    /// Columns of what the projections read.
    pub hidden: u64,
    pub heads: HeadSizes,
    /// The elements of a head that are turned.
    pub pairs: Pairs,
    /// Whether the projections have biases.
    pub bias: bool,
}

impl RotarySizes {
    /// Columns of queries, and of keys.
    pub fn columns(&self) -> [u64; 2] {
        let HeadSizes { heads, kv_heads, head_dim } = self.heads;
        [heads * head_dim, kv_heads * head_dim]
    }

    /// With a rank's part of the heads.
    pub fn of_rank(self, setting: &Setting) -> Self {
        let HeadSizes { heads, kv_heads, head_dim } = self.heads;
        let [heads, kv_heads] = [heads, kv_heads].map(|heads| setting.part(heads));
        Self { heads: HeadSizes { heads, kv_heads, head_dim }, ..self }
    }
}

impl RotaryAttention {
    pub fn new(source: &Source, sizes: &RotarySizes) -> Self {
        let [queries, keys] = sizes.columns().map(|columns| columns as usize);
        let by_heads = source.divided_by(Side::Outputs { parts: 1 });
        let projection =
            |name, columns| Linear::new(&by_heads.at(name), sizes.hidden as usize, columns, sizes.bias);
        Self {
            q_proj: projection("q_proj", queries),
            k_proj: projection("k_proj", keys),
            v_proj: projection("v_proj", keys),
            prefix: Prefix::new(source, keys),
        }
    }

    /// What the output projection reads, [batch · sequence, heads · head_dim], from x [batch · sequence, hidden].
    pub fn forward(&self, x: Tensor<2>, context: &Context, cache: Option<LayerCache<'_>>) -> Tensor<2> {
        let Context { computation, heads, mask, positions, rotation, .. } = context;
        let rotation = rotation.as_ref().expect("given by the network");
        let layers = [&self.q_proj, &self.k_proj, &self.v_proj];
        let (ops, arithmetic) = (computation.ops, computation.arithmetic);
        let custom = [ops.rope, ops.attention].iter().all(|way| *way == Operator::Custom);
        let side_by_side =
            (cache.is_none() && custom).then(|| Linear::side_by_side(layers, &x, computation)).flatten();
        if let Some(qkv) = side_by_side {
            let turned = heads.columns() + heads.of_keys().columns();
            let qkv = rope_first(qkv, turned, rotation, positions);
            let qkv = Prefix::within(&self.prefix, qkv, context);
            return attention_packed(qkv, *heads, mask, arithmetic, (&ops).into());
        }
        let turn = |x| rope(x, rotation, positions, ops.rope);
        let q = turn(self.q_proj.forward(x.clone(), computation));
        let k = turn(self.k_proj.forward(x.clone(), computation));
        let v = self.v_proj.forward(x, computation);
        let [k, v] = Prefix::keys_and_values(&self.prefix, [k, v], context);
        attend([q, k, v], context, cache)
    }

    /// What the projections cost with the rotation, and what attention costs.
    pub fn cost(setting: &Setting, tuning: &Tuning, sizes: &RotarySizes) -> [Cost; 2] {
        let [queries, keys] = sizes.columns();
        let projection = |name, columns| {
            let layer = (name, Side::Outputs { parts: 1 });
            linear_cost(setting, tuning, layer, [sizes.hidden, columns], sizes.bias, WeightLayout::OutIn)
        };
        let turned = |name, columns| {
            let heads = columns / sizes.heads.head_dim;
            Cost::sequence(&[projection(name, columns), rope::cost(setting, heads, sizes.pairs)])
        };
        let attended = attention::cost(setting, sizes.heads);
        [
            Cost::fan(&[turned("q_proj", queries), turned("k_proj", keys), projection("v_proj", keys)]),
            Prefix::attended(setting, tuning, [queries + 2 * keys, 2 * keys], attended),
        ]
    }
}
