//! What the [stream](super::stream) of an encoder and a decoder costs. Sources and targets count as equally long.

use super::stream::{Stack, shared_rows};
use crate::model::architecture::{Architecture, Encoder};
use crate::ops::cost::{Cost, Moment, Setting, Tensors};
use crate::ops::rows::in_rows;
use crate::params::table::Tuning;

impl Architecture {
    /// Bytes of it.
    fn stream(&self, setting: &Setting) -> u64 {
        (2 * setting.tokens() + shared_rows(self) as u64) * self.hidden_size as u64 * setting.stored
    }

    /// The operators of a block in it, from those of its rows.
    pub(super) fn in_stream(&self, costs: &[Cost], stack: Stack, setting: &Setting) -> Vec<Cost> {
        let mut costs = costs.to_vec();
        let Encoder { final_norm: (_, norm), .. } = self.encoder.expect("a stream has an encoder");
        let rows = costs.first().map_or(0, |cost| cost.input);
        if stack.ends_encoder() {
            // Its weight is the stream's.
            let norm = norm.cost(setting, [1, self.hidden_size as u64]);
            costs.push(Cost {
                output: rows,
                parameters: 0,
                trained: Tensors::default(),
                largest: 0,
                weights: 0,
                gradients: 0,
                ..norm
            });
        }
        let read = if stack == Stack::Decoder { rows } else { 0 };
        vec![in_rows(Cost::sequence(&costs), self.stream(setting), read)]
    }

    /// What is read behind the embedded tokens, where there is an encoder: its parameters, and the stream that they begin.
    pub(super) fn shared_cost(&self, setting: &Setting, tuning: &Tuning) -> Option<Cost> {
        let Encoder { relative_biases, final_norm: (norm, _), .. } = self.encoder?;
        let trained = |name: &str| tuning.trained_of(name, setting.trained).weights;
        let hidden = self.hidden_size as u64;
        let tables =
            relative_biases.map(|bias| (trained(bias.name), [bias.buckets.count as u64, bias.heads as u64]));
        let of_tables: Tensors =
            tables.iter().map(|(is, shape)| Tensors::matrices(u64::from(*is), *shape)).sum();
        let trained = of_tables + Tensors::vectors(u64::from(trained(norm)), hidden);
        let parameters = tables.iter().map(|(_, [buckets, heads])| buckets * heads).sum::<u64>() + hidden;
        let (tokens, stream) = (2 * setting.tokens() * hidden * setting.stored, self.stream(setting));
        let gradients = trained.elements * setting.stored;
        Some(Cost {
            input: tokens,
            output: stream,
            parameters,
            trained,
            largest: trained.elements.min(hidden),
            weights: parameters * setting.stored,
            gradients,
            launches: [4, 8],
            ..Cost::new(Moment::workspace(stream), Moment::workspace(tokens) + Moment::gradients(gradients))
        })
    }

    /// What it costs to take the targets out of it, where there is one.
    pub(super) fn targets_cost(&self, setting: &Setting) -> Option<Cost> {
        self.encoder?;
        let (input, rows) =
            (self.stream(setting), setting.tokens() * self.hidden_size as u64 * setting.stored);
        let moments = Cost::new(Moment::workspace(rows), Moment::workspace(input));
        Some(Cost { input, output: rows, launches: [1, 2], ..moments })
    }
}

impl Stack {
    /// Whether the encoder's norm follows.
    pub(super) fn ends_encoder(self) -> bool {
        self == Self::Encoder { is_last: true }
    }
}

/// The setting of the tokens of sources and of targets together.
pub fn of_all_tokens(architecture: &Architecture, setting: &Setting) -> Setting {
    match architecture.encoder {
        None => *setting,
        Some(_) => Setting { batch: 2 * setting.batch, squares: 2.0 * setting.squares, ..*setting },
    }
}
