//! What the operators of an [`Architecture`] cost.

use std::sync::Arc;

use super::head::head_cost;
use super::parts::adds_residual;
use super::stream_cost::of_all_tokens;
use super::{Attention, Mlp, Stack};
use crate::model::architecture::{Architecture, Layer, Norm, Place, Positions};
use crate::ops::cost::{BlockCosts, Cost, Moment, Operators, Setting};
use crate::ops::embedding;
use crate::ops::name::OperatorName;
use crate::ops::tensor_parallel::{copy_cost, sum_cost};
use crate::ops::virtual_tokens;
use crate::params::table::Tuning;
use crate::params::tuning::VirtualTokens;

impl Architecture {
    /// A norm of this kind, and the copy of its result that goes to the ranks which divide the layers after it.
    fn norm_cost(&self, norm: Norm, setting: &Setting) -> Vec<Cost> {
        let hidden = self.hidden_size as u64;
        [vec![norm.cost(setting, [1, hidden])], copy_cost(setting, hidden)].concat()
    }

    /// The operators of each layer with the adapters that it has; equal ones share theirs.
    fn block_costs(&self, setting: &Setting, tuning: &Tuning) -> Vec<BlockCosts> {
        let mut known: Vec<(&Arc<Layer>, BlockCosts)> = Vec::new();
        let by_block = tuning.differs_by_block();
        let mut blocks = Vec::with_capacity(self.layers.len());
        for (i, layer) in self.layers.iter().enumerate() {
            let stack = self.stack(i);
            let same = known
                .iter()
                .find(|(other, _)| !by_block && *other == layer && !stack.is_some_and(Stack::ends_encoder));
            let costs = same.map(|(_, costs)| costs.clone()).unwrap_or_else(|| {
                let costs = self.layer_costs(layer, setting, &tuning.in_block(i));
                let costs = stack.map_or(costs.clone(), |stack| self.in_stream(&costs, stack, setting));
                let equal = known.iter().find(|(_, known)| known[..] == costs[..]);
                equal.map(|(_, known)| known.clone()).unwrap_or_else(|| costs.into())
            });
            known.push((layer, costs.clone()));
            blocks.push(costs);
        }
        blocks
    }

    /// The operators of a layer with the adapters of `tuning`, in the order of forward.
    fn layer_costs(&self, layer: &Layer, setting: &Setting, tuning: &Tuning) -> Vec<Cost> {
        let hidden = self.hidden_size as u64;
        let sum = sum_cost(setting, hidden, setting.element());
        let scale = layer.residual_scale.map(|_| scaled_cost(setting.activation(hidden)));
        let after =
            |norm: Option<&str>| norm.map(|_| layer.norm.cost(setting, [1, hidden])).into_iter().chain(scale);
        let before = |norm: Option<&str>| match norm {
            Some(_) => self.norm_cost(layer.norm, setting),
            None => copy_cost(setting, hidden),
        };
        let [before_attention, after_attention, before_mlp, after_mlp] = layer.place.names();
        let attention = [Attention::cost(self, &layer.attention, setting, tuning), sum.clone()].concat();
        let attention: Vec<Cost> = attention.into_iter().chain(after(after_attention)).collect();
        let mlp = [Mlp::cost(self, &layer.mlp, setting, tuning), sum].concat();
        let mlp: Vec<Cost> = mlp.into_iter().chain(after(after_mlp)).collect();
        let in_product = [
            adds_residual(setting, tuning, layer.attention.output),
            Mlp::adds_residual(&layer.mlp, setting, tuning),
        ];
        let as_is = [after_attention, after_mlp].map(|norm| norm.is_none() && scale.is_none());
        let in_product = [0, 1].map(|i| in_product[i] && as_is[i]);
        match layer.place {
            Place::Parallel(_, None) => {
                let both = Cost::branches(&[&attention, &mlp]);
                vec![Cost::residual(
                    &[before(before_attention), vec![both]].concat(),
                    in_product == [true; 2],
                )]
            }
            Place::Parallel(_, Some(_)) => {
                let attention = [before(before_attention), attention].concat();
                let both = Cost::branches(&[&attention, &[before(before_mlp), mlp].concat()]);
                vec![Cost::residual(&[both], in_product == [true; 2])]
            }
            Place::Pre(_) | Place::Post(_) | Place::PreAndPost(_) => {
                let attention =
                    Cost::residual(&[before(before_attention), attention].concat(), in_product[0]);
                let cross = layer.cross_attention.as_ref().map(|(norm, cross)| {
                    let parts = [
                        before(Some(*norm)),
                        Attention::cost(self, cross, setting, tuning),
                        sum_cost(setting, hidden, setting.element()),
                    ];
                    Cost::residual(&parts.concat(), adds_residual(setting, tuning, cross.output))
                });
                let mlp = Cost::residual(&[before(before_mlp), mlp].concat(), in_product[1]);
                [attention].into_iter().chain(cross).chain([mlp]).collect()
            }
        }
    }

    /// The operators of the whole decoder in the order of forward, with the adapters of `tuning`.
    pub fn operators(&self, setting: &Setting, tuning: &Tuning) -> Operators {
        let [vocab, hidden] = [self.vocab_size, self.hidden_size].map(|size| size as u64);
        let vocab = setting.part(vocab);
        let tied = self.head.tied && tuning.classes.is_none();
        // Modules beside the blocks may be trained where the others are not.
        let module = |name: &str| Setting { trained: tuning.trained_of(name, setting.trained), ..*setting };
        let all = of_all_tokens(self, &module(self.embedding.name));
        let mut first = vec![embedding::cost(&all, [vocab, hidden], tied)];
        first.extend(sum_cost(&of_all_tokens(self, setting), hidden, setting.stored));
        if self.embedding.scale.is_some() && self.embedding.positions != Positions::Sinusoidal {
            first.push(scaled_cost(hidden * setting.tokens() * setting.stored));
        }
        // A cosine and a sine of each pair.
        let rotations: u64 = self.ropes().iter().map(|rope| rope.pairs.turned() as u64 * 4).sum();
        let (added, tables) = match self.embedding.positions {
            Positions::None => (None, 0),
            Positions::Learned { name, rows, .. } => {
                (Some(embedding::cost(&module(name), [rows as u64, hidden], false)), 0)
            }
            Positions::Sinusoidal => (Some(Cost::default()), hidden * 4),
        };
        if let Some(positions) = added {
            first = vec![Cost::sum(Cost::sequence(&first), positions)];
        }
        if let Some(VirtualTokens::Embeddings(count)) = tuning.virtual_tokens {
            let (sizes, rows) = ([count as u64, hidden], (hidden, setting.stored));
            first.push(virtual_tokens::cost(OperatorName::Embedding, setting, sizes, rows));
        }
        first.extend(self.shared_cost(setting, tuning));
        let head = module(if tied { self.embedding.name } else { self.head.name });
        let head = head_cost(&head, tuning, [vocab, hidden], tied, &self.head);
        Operators {
            first,
            blocks: self.block_costs(setting, tuning),
            last: [
                self.targets_cost(setting).into_iter().collect(),
                self.norm_cost(self.final_norm.1, &module(self.final_norm.0)),
                vec![head],
            ]
            .concat(),
            // Ids of tokens and of positions, each with the order in which gradients are added, and labels.
            batch: 8 * 4 * of_all_tokens(self, setting).tokens() + 4 * setting.tokens(),
            tables: tables + rotations,
        }
    }
}

/// What a product of so many bytes with a number costs: it makes a tensor, in forward and in backward.
fn scaled_cost(bytes: u64) -> Cost {
    let made = Moment::workspace(bytes);
    Cost { input: bytes, output: bytes, launches: [1, 1], ..Cost::new(made, made) }
}
