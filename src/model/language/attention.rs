//! [`Attention`]: projections, the rotation of queries and keys, attention, and the output projection.

use burn::module::Module;
use burn::tensor::Tensor;

use super::norm::Norm;
use super::parts::{Linear, apart_cost, copied_cost, linear_cost};
use super::{Context, LayerCache, Prefix, Seen, attend};
use crate::model::architecture::{self, Architecture, Projections, QkNorm, Sees};
use crate::ops::Operator;
use crate::ops::attention::cross::{CrossHeads, cross_attention};
use crate::ops::attention::cross_cost::{self, Over};
use crate::ops::attention::{self, Heads, attention_packed};
use crate::ops::cost::{Cost, Setting};
use crate::ops::rope::{self, Rotation, rope, rope_first};
use crate::ops::tensor_parallel::sent_of_copy;
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
        if let Some(seen) = &context.seen {
            return self.attended_in_stack(x, seen, context);
        }
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
        let [q, k, v] = self.apart(x, None, heads, rotation, context);
        let [k, v] = Prefix::keys_and_values(&self.prefix, [k, v], heads, context);
        attend([q, k, v], heads, context, cache)
    }

    /// The same in a stack of an encoder and a decoder.
    fn attended_in_stack(&self, x: Tensor<2>, seen: &Seen, context: &Context) -> Tensor<2> {
        let Self { shape, .. } = self;
        let over_encoder = shape.sees == Sees::Encoder;
        let encoded = seen.encoded.as_ref().filter(|_| over_encoder);
        let encoded = encoded.map(|encoded| context.copied(encoded.clone()));
        let (heads, computation) = (context.heads(shape), &context.computation);
        let rotation = shape.rope.as_ref().map(|rope| context.rotation(rope));
        let qkv = self.apart(x, encoded, heads, rotation, context);
        let cross = CrossHeads {
            heads,
            keys: if over_encoder { seen.source } else { context.sequence },
            causal: shape.sees == Sees::Earlier,
            padding: seen.padding(shape.sees),
        };
        let bias = seen.bias(shape, context);
        cross_attention(qkv, bias, &cross, computation.arithmetic, (&computation.ops).into())
    }

    /// Queries, keys and values side by side, before their rotation, where all that follows takes them so.
    fn together(&self, x: &Tensor<2>, turns: bool, context: &Context) -> Option<Tensor<2>> {
        let computation = &context.computation;
        let ops = [computation.ops.rope, computation.ops.attention];
        let is_custom = ops[usize::from(!turns)..].iter().all(|way| *way == Operator::Custom);
        match &self.projections[..] {
            _ if self.qk_norms.is_some() => None,
            [q, k, v] if is_custom => Linear::side_by_side([q, k, v], x, computation),
            [all] if !turns || is_custom => Some(self.all(all, x.clone(), context)),
            _ => None,
        }
    }

    /// Queries, keys and values after their rotation; keys and values of what is `encoded`, where it is there.
    fn apart(
        &self,
        x: Tensor<2>,
        encoded: Option<Tensor<2>>,
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
            let x = match norm {
                Some(norm) => norm.forward_of_heads(x, context),
                None => x,
            };
            match rotation {
                Some(rotation) => rope(x, rotation, &context.positions, computation.ops.rope),
                None => x,
            }
        };
        if let [q, k, v] = &self.projections[..] {
            let project = |layer: &Linear, x: &Tensor<2>| layer.forward(x.clone(), computation);
            let over = encoded.as_ref().unwrap_or(&x);
            return [turn(project(q, &x), norm_of_q), turn(project(k, over), norm_of_k), project(v, over)];
        }
        let (queries, keys) = (heads.columns(), heads.of_keys().columns());
        let all = self.all(&self.projections[0], x.clone(), context);
        let [q, k, v] = [(0, queries), (queries, keys), (queries + keys, keys)]
            .map(|(first, columns)| all.clone().narrow(1, first, columns));
        drop(all);
        [turn(q, norm_of_q), turn(k, norm_of_k), v]
    }

    /// All queries, all keys and all values side by side from one layer, which may give those of each head so.
    fn all(&self, layer: &Linear, x: Tensor<2>, context: &Context) -> Tensor<2> {
        let all = layer.forward(x, &context.computation);
        if let Projections::Fused(_) | Projections::Apart(_) = self.shape.projections {
            return all;
        }
        let ([tokens, columns], head_dim) = (all.dims(), self.shape.head_dim);
        let by_head = all.reshape([tokens, columns / (3 * head_dim), 3, head_dim]);
        by_head.swap_dims(1, 2).reshape([tokens, columns])
    }

    /// Projections to queries, and to keys and values, which hold the encoder's result in place of the queries' input. Where it
    /// is cast, each has its own.
    fn over_encoder([q, k, v]: [Cost; 3]) -> [Cost; 3] {
        let apart = |cost: Cost, held: bool| match held {
            true => Cost { kept: cost.kept + cost.input, holds_input: false, ..cost },
            false => Cost { holds_input: false, ..cost },
        };
        [q, apart(k, k.holds_input), apart(v, v.holds_input && !k.holds_input)]
    }

    /// What the projections to queries, keys and values cost, with their norm and rotation.
    fn projections_cost(
        architecture: &Architecture,
        shape: &architecture::Attention,
        setting: &Setting,
        tuning: &Tuning,
    ) -> Cost {
        let (hidden, layout, sizes) =
            (architecture.hidden_size as u64, architecture.layout, shape.head_sizes(setting));
        let [queries, keys] = [sizes.heads, sizes.kv_heads].map(|heads| heads * sizes.head_dim);
        let projection = |name, columns, parts| {
            let layer = (name, Side::Outputs { parts });
            linear_cost(setting, tuning, layer, [hidden, columns], shape.bias, layout)
        };
        let turned = |projection: Cost, heads| {
            let norm = shape.qk_norm.map(|QkNorm { norm, by_head, .. }| {
                let rows = if by_head { [heads, sizes.head_dim] } else { [1, heads * sizes.head_dim] };
                let cost = norm.cost(setting, rows);
                let copied = if setting.trained.weights { cost.parameters } else { 0 };
                Cost { sent: cost.sent + sent_of_copy(setting, copied), ..cost }
            });
            let rope = shape.rope.as_ref().map(|rope| rope::cost(setting, heads, rope.pairs));
            match (norm, rope) {
                (None, None) => projection,
                (norm, rope) => {
                    Cost::sequence(&[projection].into_iter().chain(norm).chain(rope).collect::<Vec<_>>())
                }
            }
        };
        match shape.projections {
            Projections::Apart([q, k, v]) if shape.sees == Sees::Encoder => Cost::fan(&Self::over_encoder([
                projection(q, queries, 1),
                projection(k, keys, 1),
                projection(v, keys, 1),
            ])),
            Projections::Apart([q, k, v]) => Cost::fan(&[
                turned(projection(q, queries, 1), sizes.heads),
                turned(projection(k, keys, 1), sizes.kv_heads),
                projection(v, keys, 1),
            ]),
            Projections::Fused(all) | Projections::FusedByHead(all) => {
                let by_head = matches!(shape.projections, Projections::FusedByHead(_));
                let whole = projection(all, queries + 2 * keys, if by_head { 1 } else { 3 });
                let moved = by_head.then(|| copied_cost(setting, whole));
                let custom = [setting.ops.rope, setting.ops.attention] == [Operator::Custom; 2];
                let apart = match shape.rope {
                    None => None,
                    Some(_) if !custom => Some(apart_cost(setting, whole, 3)),
                    Some(_) if setting.on_cuda() => None,
                    Some(_) => Some(rope::joined_cost(setting, queries + keys, queries + 2 * keys)),
                };
                let parts: Vec<Cost> = [whole].into_iter().chain(moved).chain(apart).collect();
                // What is turned lies beside the values.
                Cost { output: whole.output, ..turned(Cost::sequence(&parts), sizes.heads + sizes.kv_heads) }
            }
        }
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
        let over =
            Over { keys: setting.sequence, causal: shape.sees == Sees::Earlier, biased: shape.relative_bias };
        let attended = match shape.sees == Sees::Earlier && !shape.relative_bias {
            true => attention::cost(setting, sizes, shape.scores),
            false => cross_cost::cost(setting, sizes, over),
        };
        let output = (shape.output, Side::Inputs);
        vec![
            Self::projections_cost(architecture, shape, setting, tuning),
            Prefix::attended(setting, tuning, [queries + 2 * keys, 2 * keys], attended),
            linear_cost(setting, tuning, output, [queries, hidden], shape.output_bias, layout),
        ]
    }
}
