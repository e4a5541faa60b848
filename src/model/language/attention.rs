//! [`Attention`]: projections, the rotation of queries and keys, attention, and the output projection.

use burn::module::Module;
use burn::tensor::Tensor;

use super::parts::{Linear, Norm, linear_cost};
use super::{Context, LayerCache, Prefix, attend};
use crate::model::architecture::{self, Architecture, Projections, QkNorm};
use crate::ops::Operator;
use crate::ops::attention::{self, Heads, attention_packed};
use crate::ops::cost::{Cost, Setting};
use crate::ops::rope::{self, Rotation, rope, rope_first};
use crate::params::source::Source;
use crate::params::split::Side;
use crate::params::table::Tuning;

#[derive(Module, Debug)]
pub struct Attention {
    /// One for queries, one for keys and one for values, or one for all.
    projections: Vec<Linear>,
    prefix: Option<Prefix>,
    output: Linear,
    /// Of queries and of keys.
    qk_norms: Option<[Norm; 2]>,
    #[module(skip)]
    shape: architecture::Attention,
}

impl Attention {
    /// `source`: of the block.
    pub fn new(architecture: &Architecture, shape: &architecture::Attention, source: &Source) -> Self {
        let source = source.at(shape.name);
        let (hidden, layout, [queries, keys]) =
            (architecture.hidden_size, architecture.layout, shape.columns());
        let projection = |(name, outputs, parts)| {
            let source = source.at(name).divided_by(Side::Outputs { parts });
            Linear::new(&source, [hidden, outputs], layout, source.deviation(), shape.bias)
        };
        let projections = match shape.projections {
            Projections::Apart([q, k, v]) => {
                [(q, queries, 1), (k, keys, 1), (v, keys, 1)].map(projection).into()
            }
            Projections::Fused(all) => vec![projection((all, queries + 2 * keys, 3))],
            // Whole heads lie side by side.
            Projections::FusedByHead(all) => vec![projection((all, queries + 2 * keys, 1))],
        };
        let prefix = Prefix::new(&source, keys);
        let output = source.at(shape.output).divided_by(Side::Inputs);
        let deviation = architecture.residual_deviation(source.deviation());
        let output = Linear::new(&output, [queries, hidden], layout, deviation, shape.output_bias);
        let qk_norms = shape.qk_norm.map(|QkNorm { names: [q, k], norm, by_head }| {
            let [queries, keys] = if by_head { [shape.head_dim; 2] } else { [queries, keys] };
            [(q, queries), (k, keys)].map(|(name, size)| Norm::new(&source.at(name), size, norm))
        });
        Self { projections, prefix, output, qk_norms, shape: shape.clone() }
    }

    /// [batch · sequence, hidden] → the same shape.
    pub fn forward(&self, x: Tensor<2>, context: &Context, cache: Option<LayerCache<'_>>) -> Tensor<2> {
        self.output.forward_summed(self.attended(x, context, cache), context)
    }

    /// The residual stream plus [`forward`](Self::forward) of x.
    pub fn forward_onto(
        &self,
        stream: Tensor<2>,
        x: Tensor<2>,
        context: &Context,
        cache: Option<LayerCache<'_>>,
    ) -> Tensor<2> {
        self.output.forward_onto(stream, self.attended(x, context, cache), context)
    }

    /// What the output projection reads, [batch · sequence, heads · head_dim].
    fn attended(&self, x: Tensor<2>, context: &Context, cache: Option<LayerCache<'_>>) -> Tensor<2> {
        let (heads, rotation) =
            (context.heads(&self.shape), self.shape.rope.as_ref().map(|rope| context.rotation(rope)));
        let computation = &context.computation;
        let together = if cache.is_none() { self.together(&x, rotation.is_some(), context) } else { None };
        if let Some(mut qkv) = together {
            if let Some(rotation) = rotation {
                let turned = heads.columns() + heads.of_keys().columns();
                qkv = rope_first(qkv, turned, rotation, &context.positions);
            }
            let qkv = Prefix::within(&self.prefix, qkv, heads, context);
            return attention_packed(
                qkv,
                heads,
                &context.mask,
                computation.arithmetic,
                (&computation.ops).into(),
            );
        }
        let [q, k, v] = self.apart(x, heads, rotation, context);
        let [k, v] = Prefix::keys_and_values(&self.prefix, [k, v], heads, context);
        attend([q, k, v], heads, context, cache)
    }

    /// Queries, keys and values side by side, before their rotation, where all that follows takes them so.
    fn together(&self, x: &Tensor<2>, turns: bool, context: &Context) -> Option<Tensor<2>> {
        let computation = &context.computation;
        let ops = [computation.ops.rope, computation.ops.attention];
        let is_custom = ops[usize::from(!turns)..].iter().all(|way| *way == Operator::Custom);
        match &self.projections[..] {
            _ if self.qk_norms.is_some() => None,
            [q, k, v] if is_custom => Linear::side_by_side([q, k, v], x, computation),
            [all] if !turns && matches!(self.shape.projections, Projections::Fused(_)) => {
                Some(all.forward(x.clone(), computation))
            }
            _ => None,
        }
    }

    /// Queries, keys and values after their rotation.
    fn apart(
        &self,
        x: Tensor<2>,
        heads: Heads,
        rotation: Option<&Rotation>,
        context: &Context,
    ) -> [Tensor<2>; 3] {
        let computation = &context.computation;
        let [norm_of_q, norm_of_k] = match &self.qk_norms {
            Some([q, k]) => [Some(q), Some(k)],
            None => [None; 2],
        };
        let turn = |x, norm: Option<&Norm>| {
            let x = norm.map_or_else(|| Tensor::clone(&x), |norm| norm.forward(x.clone(), computation));
            match rotation {
                Some(rotation) => rope(x, rotation, &context.positions, computation.ops.rope),
                None => x,
            }
        };
        let project = |layer: &Linear| layer.forward(x.clone(), computation);
        if let [q, k, v] = &self.projections[..] {
            return [turn(project(q), norm_of_q), turn(project(k), norm_of_k), project(v)];
        }
        let (all, queries, keys) =
            (project(&self.projections[0]), heads.columns(), heads.of_keys().columns());
        let part = |first, columns| all.clone().narrow(1, first, columns);
        let [q, k, v] = match self.shape.projections {
            Projections::FusedByHead(_) => self.by_head(&all),
            _ => [part(0, queries), part(queries, keys), part(queries + keys, keys)],
        };
        [turn(q, norm_of_q), turn(k, norm_of_k), v]
    }

    /// Queries, keys and values from those of each head side by side.
    fn by_head(&self, all: &Tensor<2>) -> [Tensor<2>; 3] {
        let ([tokens, columns], head_dim) = (all.dims(), self.shape.head_dim);
        let heads = columns / (3 * head_dim);
        [0, 1, 2].map(|part| {
            let all = all.clone().reshape([tokens, heads, 3 * head_dim]);
            all.narrow(2, part * head_dim, head_dim).reshape([tokens, heads * head_dim])
        })
    }

    /// What the projections cost with the rotation, what attention costs, and what the output projection costs.
    pub fn cost(
        architecture: &Architecture,
        shape: &architecture::Attention,
        setting: &Setting,
        tuning: &Tuning,
    ) -> Vec<Cost> {
        let (hidden, layout, sizes) =
            (architecture.hidden_size as u64, architecture.layout, shape.head_sizes(setting));
        let [queries, keys] = [sizes.heads, sizes.kv_heads].map(|heads| heads * sizes.head_dim);
        let projection = |name, columns, parts| {
            let layer = (name, Side::Outputs { parts });
            linear_cost(setting, tuning, layer, [hidden, columns], shape.bias, layout)
        };
        let turned = |projection: Cost, heads| {
            let norm = shape.qk_norm.map(|QkNorm { norm, by_head, .. }| {
                norm.cost(
                    setting,
                    if by_head { [heads, sizes.head_dim] } else { [1, heads * sizes.head_dim] },
                )
            });
            let rope = shape.rope.as_ref().map(|rope| rope::cost(setting, heads, rope.pairs));
            match (norm, rope) {
                (None, None) => projection,
                (norm, rope) => {
                    Cost::sequence(&[projection].into_iter().chain(norm).chain(rope).collect::<Vec<_>>())
                }
            }
        };
        let projections = match shape.projections {
            Projections::Apart([q, k, v]) => Cost::fan(&[
                turned(projection(q, queries, 1), sizes.heads),
                turned(projection(k, keys, 1), sizes.kv_heads),
                projection(v, keys, 1),
            ]),
            Projections::Fused(all) | Projections::FusedByHead(all) => {
                turned(projection(all, queries + 2 * keys, 3), sizes.heads + sizes.kv_heads)
            }
        };
        let attended = attention::cost(setting, sizes, shape.scores);
        let output = (shape.output, Side::Inputs);
        vec![
            projections,
            Prefix::attended(setting, tuning, [queries + 2 * keys, 2 * keys], attended),
            linear_cost(setting, tuning, output, [queries, hidden], shape.output_bias, layout),
        ]
    }
}
