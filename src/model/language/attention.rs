//! [`Attention`]: projections, the rotation of queries and keys, attention, and the output projection.

use burn::module::Module;
use burn::tensor::Tensor;

use super::parts::{Linear, linear_cost};
use super::{Context, LayerCache, Prefix, attend};
use crate::model::architecture::{self, Architecture, Projections};
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
            Projections::Fused(all) | Projections::FusedByHead(all) => {
                vec![projection((all, queries + 2 * keys, 3))]
            }
        };
        let prefix = Prefix::new(&source, keys);
        let output = source.at(shape.output).divided_by(Side::Inputs);
        let deviation = architecture.residual_deviation(source.deviation());
        let output = Linear::new(&output, [queries, hidden], layout, deviation, shape.output_bias);
        Self { projections, prefix, output, shape: *shape }
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
            (context.heads(&self.shape), self.shape.rope.map(|rope| context.rotation(rope)));
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
            [q, k, v] if is_custom => Linear::side_by_side([q, k, v], x, computation),
            [all] if !turns => Some(all.forward(x.clone(), computation)),
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
        let turn = |x| match rotation {
            Some(rotation) => rope(x, rotation, &context.positions, computation.ops.rope),
            None => x,
        };
        let project = |layer: &Linear| layer.forward(x.clone(), computation);
        if let [q, k, v] = &self.projections[..] {
            return [turn(project(q)), turn(project(k)), project(v)];
        }
        let (all, queries, keys) =
            (project(&self.projections[0]), heads.columns(), heads.of_keys().columns());
        let part = |first, columns| all.clone().narrow(1, first, columns);
        [turn(part(0, queries)), turn(part(queries, keys)), part(queries + keys, keys)]
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
        let turned = |projection: Cost, heads| match shape.rope {
            Some(rope) => Cost::sequence(&[projection, rope::cost(setting, heads, rope.pairs)]),
            None => projection,
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
        let attended = attention::cost(setting, sizes);
        let output = (shape.output, Side::Inputs);
        vec![
            projections,
            Prefix::attended(setting, tuning, [queries + 2 * keys, 2 * keys], attended),
            linear_cost(setting, tuning, output, [queries, hidden], shape.output_bias, layout),
        ]
    }
}
