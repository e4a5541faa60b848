//! [`Decoder`]: a language model of any family: embeddings, blocks, a norm and a head.

mod modules;
mod through;

use std::fmt;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};

use modules::{Modules, retain};

use super::parts::Embedding;
use super::positions::PositionalEncoding;
use super::stream::Distances;
use super::{Block, Cache, Computation, Context, HERE, LayerCache, Stream, Tokens};
use crate::model::Parts;
use crate::model::architecture::{Architecture, Positions, Rope};
use crate::ops::dropout;
use crate::ops::embedding::{Ids, shared};
use crate::ops::name::OperatorName;
use crate::ops::residual::residual;
use crate::ops::rope::{Rotation, Scaling};
use crate::ops::rows::rows;
use crate::ops::virtual_tokens::with_virtual;
use crate::params::source::Source;
use crate::params::table::{Group, Table, Tuning};
use crate::residence::{Offloaded, Placement, Shard, Sharding};
use crate::world::ProcessGroup;

#[derive(Module, Debug)]
pub struct Decoder {
    pub(super) modules: Modules,
    #[module(skip)]
    pub(super) rest: Rest,
}

/// What a decoder has apart from its modules.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    made_anew: MadeAnew,
    pub(super) architecture: Arc<Architecture>,
    pub(super) computation: Computation,
    /// Of each rope of its layers.
    rotations: Arc<[(Rope, Rotation)]>,
    /// Of the biases of both stacks.
    distances: Distances,
    sinusoids: Option<PositionalEncoding>,
    /// The token whose embedding gets no gradient where it is read.
    padding: Option<usize>,
    /// How many stand before each sample.
    virtual_tokens: usize,
    /// Whether a task's classifier is in the place of the head.
    pub(super) classifies: bool,
    pub(super) offloaded: Option<Offloaded>,
    /// The parameters that this process has.
    pub(super) table: Arc<Table>,
    pub(super) parts: Parts,
    /// The ranks that layers are divided among.
    ranks: ProcessGroup,
    /// The ranks that the head is divided among: a classifier is small, and every rank has it whole.
    pub(super) ranks_of_head: ProcessGroup,
}

/// The forward of the block of this number, made anew from a source of its parameters alone.
#[derive(Clone)]
struct MadeAnew(Arc<Forward>);

type Forward = dyn Fn(usize, &Source, Tensor<2>, &Context, Option<LayerCache<'_>>) -> Tensor<2> + Send + Sync;

impl fmt::Debug for MadeAnew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MadeAnew")
    }
}

/// Each rotation of the architecture, with its table for so many positions.
fn rotations(architecture: &Architecture, positions: usize, device: &Device) -> Arc<[(Rope, Rotation)]> {
    let rotation = |rope: &Rope| {
        let Rope { pairs, theta, scaling } = rope.clone();
        (rope.clone(), Rotation::scaled(positions, pairs, theta, scaling, device))
    };
    architecture.ropes().into_iter().map(rotation).collect()
}

impl Decoder {
    /// A decoder that reads `positions` positions; learned ones are as many as the architecture says. The blocks live
    /// where `placement` says, or divided among the ranks of `sharding`. This process has only these `parts`.
    pub fn new(
        architecture: &Arc<Architecture>,
        positions: usize,
        source: &Source,
        computation: Computation,
        (placement, sharding): (Option<Placement>, Option<Sharding>),
        parts: Parts,
    ) -> Self {
        let Architecture { hidden_size, embedding, .. } = **architecture;
        let (layers, names) = (architecture.layers.len(), architecture.block_names());
        let make = |i| block(architecture, i, source);
        let mut table = Self::table(architecture, source.dtype(), source.tuning());
        let mut offloaded = None;
        let sharding = sharding.filter(|sharding| sharding.shard == Shard::Weights);
        let modules = Modules::new(architecture, source, &parts, || {
            offloaded = match (placement, &sharding) {
                (Some(placement), Some(ranks)) => {
                    Some(Offloaded::divided((ranks, placement), &names, source, &table, make))
                }
                (Some(placement), None) => Offloaded::new(placement, &names, source, &table, make),
                (None, _) => None,
            };
            let all = if offloaded.is_some() { 0..0 } else { 0..layers };
            all.filter_map(|i| source.held(parts.has_block(i), || make(i))).collect()
        });
        retain(&mut table, &modules, &parts);
        let table = Arc::new(table);
        let device = source.device().clone().inner();
        let rotations = rotations(architecture, positions, &device);
        let sinusoids = (embedding.positions == Positions::Sinusoidal)
            .then(|| PositionalEncoding::new(positions, hidden_size, &device));
        let biases = architecture.encoder.into_iter().flat_map(|encoder| encoder.relative_biases);
        let distances = biases.map(|bias| bias.buckets.table(&device)).collect();
        let shared = architecture.clone();
        let made_anew = MadeAnew(Arc::new(move |i, source, x, context, cache| {
            Block::new(&shared, i, &source.within(Group::Block(i))).forward(x, context, cache)
        }));
        let virtual_tokens = source.tuning().virtual_count();
        let ranks = source.ranks().clone();
        let classifies = source.tuning().classes.is_some();
        let ranks_of_head = if classifies { ProcessGroup::alone() } else { ranks.clone() };
        let rest = Rest {
            made_anew,
            architecture: architecture.clone(),
            computation,
            rotations,
            distances,
            sinusoids,
            padding: None,
            virtual_tokens,
            classifies,
            offloaded,
            table,
            parts,
            ranks,
            ranks_of_head,
        };
        Self { modules, rest }
    }

    /// The same, whose embedding of this token gets no gradient where it is read.
    #[must_use]
    pub fn padded_with(mut self, token: Option<usize>) -> Self {
        self.rest.padding = token;
        self
    }

    /// The parameters of a decoder, stored in this type.
    pub fn table(architecture: &Architecture, dtype: DType, tuning: &Tuning) -> Table {
        Table::record(dtype, tuning, |source| {
            Modules::new(architecture, source, &Parts::Whole, || {
                (0..architecture.layers.len()).map(|i| block(architecture, i, source)).collect()
            })
        })
    }

    /// The number of blocks.
    pub fn layers(&self) -> usize {
        self.rest.architecture.layers.len()
    }

    /// The token that a target begins with; `None` of a decoder alone.
    pub fn target_start(&self) -> Option<u32> {
        self.rest.architecture.encoder.map(|encoder| encoder.start)
    }

    /// The length of a sequence behind which LongRoPE has other angles for all of its tokens.
    pub fn switches_behind(&self) -> Option<usize> {
        self.rest.rotations.iter().find_map(|(rope, _)| match rope.scaling {
            Scaling::LongRope { original, .. } => Some(original),
            _ => None,
        })
    }

    /// Virtual tokens that stand before each sample.
    pub fn virtual_tokens(&self) -> usize {
        self.rest.virtual_tokens
    }

    /// What the head reads, [batch · sequence, hidden_size]. With a cache, `tokens` are those after the
    /// cached ones, and the mask covers all.
    pub fn hidden(&self, tokens: &Tokens, cache: Option<&mut Cache>) -> Tensor<2> {
        self.hidden_from(self.embed(tokens, None), tokens, cache)
    }

    pub(super) fn hidden_from(&self, x: Tensor<2>, tokens: &Tokens, cache: Option<&mut Cache>) -> Tensor<2> {
        let context = self.context(tokens);
        let stream = context.stream.clone();
        self.norm(self.through(x, context, cache), stream)
    }

    /// The embedding for lookup and head together, where this process has both and trains them.
    pub(super) fn shared_table(&self) -> Option<Tensor<2>> {
        let table = self.modules.tokens.as_ref().filter(|_| self.modules.head.is_none())?;
        let weight = table.weight.val();
        weight.is_require_grad().then(|| shared(weight))
    }

    /// The norm of what the last block gives; in a stream, of targets alone.
    pub(super) fn norm(&self, x: Tensor<2>, stream: Option<Stream>) -> Tensor<2> {
        let x = match stream.map(|stream| stream.targets()) {
            None => x,
            Some(targets) => rows(x, targets),
        };
        self.modules.norm.as_ref().expect(HERE).forward(x, &self.rest.computation)
    }

    pub(super) fn context(&self, tokens: &Tokens) -> Context {
        let Rest { computation, architecture, rotations, distances, ranks, .. } = &self.rest;
        Context {
            // What is computed again later has the seed of this forward.
            computation: Computation { masks: dropout::seed(), ..*computation },
            batch: tokens.batch,
            sequence: tokens.sequence,
            mask: tokens.mask.clone(),
            positions: tokens.positions.clone(),
            rotations: rotations.clone(),
            virtual_rows: tokens.virtual_rows.clone(),
            stream: Stream::new(architecture, distances, tokens),
            seen: None,
            ranks: ranks.clone(),
        }
    }

    /// Token and position embeddings added, or the beginning of a stream, in the type they are stored in. `table`: the [`shared_table`](Self::shared_table).
    pub(super) fn embed(&self, tokens: &Tokens, table: Option<&Tensor<2>>) -> Tensor<2> {
        let table = table.cloned().unwrap_or_else(|| self.modules.tokens.as_ref().expect(HERE).weight.val());
        let ids = tokens.ids.clone().padded_with(self.rest.padding);
        let mut x = Embedding::forward_summed(table, &ids, &self.rest.ranks);
        if let (Some(prompt), Some(rows)) = (&self.modules.prompt, &tokens.virtual_rows) {
            x = with_virtual(OperatorName::Embedding, x, prompt.val(), rows, 0);
        }
        if let Some(scale) = self.rest.architecture.embedding.scale {
            x = x * scale;
        }
        match (&self.modules.positions, &self.rest.sinusoids) {
            (Some(learned), _) => residual(x, learned.forward(&self.rows_of_positions(tokens))),
            (None, Some(table)) => residual(x, table.forward(&tokens.positions)),
            (None, None) => match &self.modules.shared {
                None => x,
                Some(shared) => shared.behind(x),
            },
        }
    }

    /// The rows of the learned positions of these tokens.
    fn rows_of_positions(&self, tokens: &Tokens) -> Ids {
        match self.rest.architecture.embedding.positions {
            Positions::Learned { offset: offset @ 1.., .. } => tokens.positions.further(offset),
            _ => tokens.positions.clone(),
        }
    }
}

fn block(architecture: &Architecture, i: usize, source: &Source) -> Block {
    let source = source.at(architecture.block_names().name(i)).within(Group::Block(i));
    Block::new(architecture, i, &source)
}
