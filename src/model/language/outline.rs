//! [`Outline`]: the sizes of a decoder and the modules around its blocks, and what these cost.

use super::head::head_cost;
use super::parts::NormKind;
use super::{DecoderSizes, Positions};
use crate::ops::cost::Operators;
use crate::ops::cost::{Cost, Setting};
use crate::ops::embedding;
use crate::ops::name::OperatorName;
use crate::ops::tensor_parallel::{copy_cost, sum_cost};
use crate::ops::virtual_tokens;
use crate::params::table::Tuning;
use crate::params::tuning::VirtualTokens;

/// The sizes of a decoder, and the names and kinds of its modules other than blocks.
#[derive(Clone, Debug)]
pub struct Outline {
    pub shape: DecoderSizes,
    /// Name of the token embedding.
    pub tokens: &'static str,
    /// Name of the blocks; a block's number follows it.
    pub blocks: &'static str,
    /// Name of the norm after the last block.
    pub norm: &'static str,
    /// The kind of every norm.
    pub norm_kind: NormKind,
    pub positions: Positions,
    /// Whether the head has a bias, where it is not the embedding.
    pub head_bias: bool,
}

impl Outline {
    /// A norm, and the copy of its result that goes to the ranks which divide the layers after it.
    pub fn norm_cost(&self, setting: &Setting) -> Vec<Cost> {
        let hidden = self.shape.hidden_size as u64;
        [vec![self.norm_kind.cost(setting, hidden)], copy_cost(setting, hidden)].concat()
    }

    /// x + f(norm(x)), where f is these layers, whose results are summed over the ranks that divide them. `in_product`:
    /// as [`Cost::residual`] has it.
    pub fn residual_cost(&self, setting: &Setting, layers: Vec<Cost>, in_product: bool) -> Cost {
        let sum = sum_cost(setting, self.shape.hidden_size as u64, setting.element());
        Cost::residual(&[self.norm_cost(setting), layers, sum].concat(), in_product)
    }

    /// The operators of the whole decoder in the order of forward, where `block` are those of one block.
    pub fn operators(&self, setting: &Setting, tuning: &Tuning, block: Vec<Cost>) -> Operators {
        let [vocab, hidden] = [self.shape.vocab_size, self.shape.hidden_size].map(|size| size as u64);
        let vocab = setting.part(vocab);
        let tied = self.shape.tied && tuning.classes.is_none();
        let mut first = vec![embedding::cost(setting, [vocab, hidden], tied)];
        first.extend(sum_cost(setting, hidden, setting.stored));
        let (added, tables) = match self.positions {
            Positions::Learned { rows, .. } => {
                (Some(embedding::cost(setting, [rows as u64, hidden], false)), 0)
            }
            Positions::Sinusoidal => (Some(Cost::default()), hidden * 4),
            // A cosine and a sine of each pair.
            Positions::Rotary { pairs, .. } => (None, pairs.turned as u64 * 4),
        };
        if let Some(positions) = added {
            first = vec![Cost::sum(Cost::sequence(&first), positions)];
        }
        if let Some(VirtualTokens::Embeddings(count)) = tuning.virtual_tokens {
            let (sizes, rows) = ([count as u64, hidden], (hidden, setting.stored));
            first.push(virtual_tokens::cost(OperatorName::Embedding, setting, sizes, rows));
        }
        let head = head_cost(setting, tuning, [vocab, hidden], tied, self.head_bias);
        Operators {
            first,
            block,
            blocks: self.shape.layers,
            last: [self.norm_cost(setting), vec![head]].concat(),
            // Ids of tokens and of positions, each with the order in which gradients are added, and labels.
            batch: 9 * 4 * setting.tokens(),
            tables,
        }
    }
}
