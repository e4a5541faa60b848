//! [`Block`]: a layer of an architecture as a module.

use burn::module::Module;
use burn::tensor::Tensor;

use super::norm::Norm;
use super::{Attention, Context, LayerCache, Mlp, Stack};
use crate::model::architecture::{Architecture, Place};
use crate::ops::residual::residual;
use crate::params::source::Source;

/// Attention and an MLP around the residual stream. Parameters are made in the order of the fields.
#[derive(Module, Debug)]
pub struct Block {
    before_attention: Option<Norm>,
    attention: Attention,
    after_attention: Option<Norm>,
    cross_attention: Option<CrossAttention>,
    before_mlp: Option<Norm>,
    mlp: Mlp,
    after_mlp: Option<Norm>,
    #[module(skip)]
    is_parallel: bool,
    #[module(skip)]
    residual_scale: Option<f64>,
    #[module(skip)]
    stack: Option<Stack>,
}

/// A norm and attention to the encoder's result.
#[derive(Module, Debug)]
struct CrossAttention {
    norm: Norm,
    attention: Attention,
}

impl Block {
    /// The layer of this number, whose parameters the source has.
    pub fn new(architecture: &Architecture, number: usize, source: &Source) -> Self {
        let layer = &*architecture.layers[number];
        let [before_attention, after_attention, before_mlp, after_mlp] = layer.place.names();
        let norm = |name: Option<&'static str>| {
            name.map(|name| Norm::new(&source.at(name), architecture.hidden_size, layer.norm))
        };
        Self {
            before_attention: norm(before_attention),
            attention: Attention::new(architecture, &layer.attention, source),
            after_attention: norm(after_attention),
            cross_attention: layer.cross_attention.as_ref().map(|(norm, attention)| CrossAttention {
                norm: Norm::new(&source.at(*norm), architecture.hidden_size, layer.norm),
                attention: Attention::new(architecture, attention, source),
            }),
            before_mlp: norm(before_mlp),
            mlp: Mlp::new(architecture, &layer.mlp, source),
            after_mlp: norm(after_mlp),
            is_parallel: matches!(layer.place, Place::Parallel(..)),
            residual_scale: layer.residual_scale,
            stack: architecture.stack(number),
        }
    }

    /// [rows, hidden_size] → the same shape: of tokens, or of a [stream](super::stream).
    pub fn forward(&self, x: Tensor<2>, context: &Context, cache: Option<LayerCache<'_>>) -> Tensor<2> {
        match context.stream.as_ref().zip(self.stack) {
            None => self.layer(x, context, cache),
            Some((stream, stack)) => {
                stream.through(x, stack, context, |x, context| self.layer(x, context, None))
            }
        }
    }

    /// [batch · sequence, hidden_size] → the same shape.
    fn layer(&self, x: Tensor<2>, context: &Context, cache: Option<LayerCache<'_>>) -> Tensor<2> {
        let computation = &context.computation;
        let read = |norm: &Norm, x: &Tensor<2>| context.copied(norm.forward(x.clone(), computation));
        let read_or_all = |norm: &Option<Norm>, x: &Tensor<2>| match norm {
            Some(norm) => read(norm, x),
            None => context.copied(x.clone()),
        };
        let normal = read_or_all(&self.before_attention, &x);
        let beside =
            self.is_parallel.then(|| self.before_mlp.as_ref().map_or(normal.clone(), |norm| read(norm, &x)));
        let x = if self.adds_as_is(&self.after_attention) {
            self.attention.forward_onto(x, normal, context, cache)
        } else {
            self.added(x, self.attention.forward(normal, context, cache), &self.after_attention, context)
        };
        let x = match &self.cross_attention {
            None => x,
            Some(CrossAttention { norm, attention }) => {
                let normal = read(norm, &x);
                attention.forward_onto(x, normal, context, None)
            }
        };
        let normal = beside.unwrap_or_else(|| read_or_all(&self.before_mlp, &x));
        if self.adds_as_is(&self.after_mlp) {
            self.mlp.forward_onto(x, normal, context)
        } else {
            self.added(x, self.mlp.forward(normal, context), &self.after_mlp, context)
        }
    }

    /// Whether a result that this norm follows is added to the residual stream as it is.
    fn adds_as_is(&self, after: &Option<Norm>) -> bool {
        after.is_none() && self.residual_scale.is_none()
    }

    fn added(&self, x: Tensor<2>, y: Tensor<2>, after: &Option<Norm>, context: &Context) -> Tensor<2> {
        let y = match after {
            Some(norm) => norm.forward(y, &context.computation),
            None => y,
        };
        residual(x, self.residual_scale.map_or(y.clone(), |scale| y * scale))
    }
}
