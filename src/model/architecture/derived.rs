//! What follows from an [`Architecture`]: its runs of equal layers, its rotations and its sizes.

use std::sync::Arc;

use itertools::Itertools;

use super::{Architecture, Attention, Layer, MlpLayers, Positions, Projections, Rope};
use crate::model::language::{DecoderSizes, Stack};
use crate::ops::attention::Scores;
use crate::ops::rope::Scaling;
use crate::residence::BlockNames;

/// This layer with each of these windows; layers with equal ones are one.
pub fn with_windows(layer: &Layer, windows: Vec<Option<usize>>) -> Vec<Arc<Layer>> {
    let mut known: Vec<Arc<Layer>> = Vec::new();
    let with = |window| {
        let same = known.iter().find(|layer| layer.attention.scores.window == window).cloned();
        same.unwrap_or_else(|| {
            let scores = Scores { window, ..layer.attention.scores };
            let attention = Attention { scores, ..layer.attention.clone() };
            known.push(Arc::new(Layer { attention, ..layer.clone() }));
            known[known.len() - 1].clone()
        })
    };
    windows.into_iter().map(with).collect()
}

/// So many of this layer, where the scores of layer i, counted from 1, are divided by i.
pub fn with_scales(layer: &Layer, count: usize) -> Vec<Arc<Layer>> {
    let numbered = |number: usize| {
        let mut layer = layer.clone();
        layer.attention.scores.scale = Some(1.0 / (layer.attention.head_dim as f64).sqrt() / number as f64);
        Arc::new(layer)
    };
    (1..=count).map(numbered).collect()
}

impl Architecture {
    /// The same with other layers.
    #[must_use]
    pub fn with_layers(&self, layers: Vec<Arc<Layer>>) -> Self {
        Self { layers, ..self.clone() }
    }

    /// The names of its blocks.
    pub fn block_names(&self) -> BlockNames {
        let encoder = self.encoder.map(|encoder| (encoder.blocks, encoder.layers));
        let before = encoder.map_or(0, |(_, layers)| layers);
        let decoder = (self.blocks, self.layers.len().saturating_sub(before));
        BlockNames::new(encoder.into_iter().chain([decoder]))
    }

    /// The stack of the block of this number, where there are two.
    pub fn stack(&self, number: usize) -> Option<Stack> {
        let layers = self.encoder?.layers;
        Some(match number < layers {
            true => Stack::Encoder { is_last: number + 1 == layers },
            false => Stack::Decoder,
        })
    }

    /// Standard deviation of random weights whose products are added to the residual stream, from that of the others.
    pub fn residual_deviation(&self, deviation: f64) -> f64 {
        match self.small_residual_weights {
            true => deviation / (2.0 * self.layers.len() as f64).sqrt(),
            false => deviation,
        }
    }

    /// Runs of equal layers: of each its layer, and how many they are.
    pub fn runs(&self) -> impl Iterator<Item = (&Arc<Layer>, usize)> {
        self.layers
            .iter()
            .dedup_by_with_count(|a, b| Arc::ptr_eq(a, b) || a == b)
            .map(|(count, layer)| (layer, count))
    }

    /// The rotations of its layers, once each.
    pub fn ropes(&self) -> Vec<&Rope> {
        let mut ropes: Vec<&Rope> = Vec::new();
        for rope in self.runs().filter_map(|(layer, _)| layer.attention.rope.as_ref()) {
            if !ropes.contains(&rope) {
                ropes.push(rope);
            }
        }
        ropes
    }

    /// Why its layers cannot be divided among ranks; `None`: they can.
    pub fn undivided(&self) -> Option<&'static str> {
        let has = |part: fn(&Attention) -> bool| self.runs().any(|(layer, _)| part(&layer.attention));
        let fused = |attention: &Attention| {
            matches!(attention.projections, Projections::Fused(_)) && attention.kv_heads < attention.heads
        };
        if has(fused) {
            return Some("one linear layer gives its queries and fewer keys and values");
        }
        has(|attention| attention.qk_norm.is_some_and(|norm| !norm.by_head))
            .then_some("a norm has the queries of all heads, and one the keys")
    }

    /// Whether the angles of its rotary positions depend on the length of a batch.
    pub fn turns_by_length(&self) -> bool {
        let by_length =
            |rope: &Rope| matches!(rope.scaling, Scaling::Dynamic { .. } | Scaling::LongRope { .. });
        self.ropes().into_iter().any(by_length)
    }

    /// The sizes that decide memory and arithmetic, by its first layer.
    pub fn sizes(&self) -> DecoderSizes {
        let Layer { attention, mlp, .. } = &*self.layers[0];
        DecoderSizes {
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: mlp.intermediate_size,
            layers: self.layers.len(),
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            max_positions: self.max_positions,
            gated: matches!(mlp.layers, MlpLayers::Gated(_)) && !mlp.bias,
            tied: self.head.tied,
            portable: self.embedding.positions != Positions::Sinusoidal,
            parameters: 0,
        }
    }
}
