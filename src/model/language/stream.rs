//! [`Stream`]: what goes through the blocks of an encoder and a decoder: one tensor [rows, hidden_size].
//!
//! | rows | |
//! |---|---|
//! | tokens of sources | the encoder's blocks change them, its last with the encoder's norm; the decoder's read them |
//! | tokens of targets | the decoder's blocks change them |
//! | what blocks share | the biases' tables of both stacks and the weight of the encoder's norm, which blocks read |
//!
//! A block hands on the rows that it does not change. So the gradients that all blocks of the decoder have of the encoder's
//! result, and all blocks of a stack of its table, add up as those of a residual stream do, wherever the blocks' weights live
//! and whichever blocks are computed again.

use std::ops::Range;

use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor};

use super::norm::Norm;
use super::parts::Embedding;
use super::{Computation, Context, Tokens};
use crate::model::architecture::{self, Architecture, RelativeBias as Bias, Sees};
use crate::ops::attention::relative::RelativeBias;
use crate::ops::norm::norm;
use crate::ops::rows::{rows, with_rows};
use crate::params::source::Source;
use crate::params::table::Group;

/// Which blocks a block is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    Encoder { is_last: bool },
    Decoder,
}

/// The parameters that blocks share: they lie in the stream.
#[derive(Module, Debug)]
pub struct Shared {
    /// Tables of the encoder's and of the decoder's bias.
    tables: Vec<Embedding>,
    norm: Norm,
}

impl Shared {
    /// `None` of a decoder alone.
    pub fn new(architecture: &Architecture, source: &Source) -> Option<Self> {
        let encoder = architecture.encoder?;
        let table = |Bias { name, buckets, heads }| Embedding::new(&source.at(name), buckets.count, heads);
        let tables = encoder.relative_biases.map(table).into();
        let (name, norm) = encoder.final_norm;
        let source = source.at(name).within(Group::Norm);
        Some(Self { tables, norm: Norm::new(&source, architecture.hidden_size, norm) })
    }

    /// The stream that begins with these embedded tokens, [tokens, hidden_size].
    pub fn behind(&self, tokens: Tensor<2>) -> Tensor<2> {
        let hidden = tokens.dims()[1];
        let table = |table: &Embedding| {
            let table = table.weight.val();
            let [buckets, heads] = table.dims();
            let rows = rows_of([buckets, heads], hidden);
            let flat = table.reshape([1, buckets * heads]);
            let filled = match rows * hidden - buckets * heads {
                0 => flat,
                more => {
                    Tensor::cat(vec![flat.clone(), flat.narrow(1, 0, 1).zeros_like().repeat_dim(1, more)], 1)
                }
            };
            filled.reshape([rows, hidden])
        };
        let norm = self.norm.weight.val().reshape([1, hidden]);
        Tensor::cat([tokens].into_iter().chain(self.tables.iter().map(table)).chain([norm]).collect(), 0)
    }
}

/// Rows of the stream that a table takes.
fn rows_of([buckets, heads]: [usize; 2], hidden: usize) -> usize {
    (buckets * heads).div_ceil(hidden)
}

/// Rows of what blocks share.
pub fn shared_rows(architecture: &Architecture) -> usize {
    let rows = |bias: Bias| rows_of([bias.buckets.count, bias.heads], architecture.hidden_size);
    architecture.encoder.map_or(0, |encoder| 1 + encoder.relative_biases.map(rows).iter().sum::<usize>())
}

/// The buckets of all distances, of both stacks, on a device.
pub type Distances = Vec<Tensor<1, Int>>;

/// Where everything lies in the stream of a batch.
#[derive(Clone)]
pub struct Stream {
    /// Tokens of a source, and of a target.
    lengths: [usize; 2],
    batch: usize,
    hidden: usize,
    /// Of both stacks: the table's shape, and the bucket of each query and key.
    biases: Vec<([usize; 2], Tensor<2, Int>)>,
    /// [batch, tokens of a source]
    padding: Option<Tensor<2, Bool>>,
    /// Of the encoder.
    norm: architecture::Norm,
}

impl Stream {
    /// `None` of a decoder alone.
    pub fn new(architecture: &Architecture, distances: &Distances, tokens: &Tokens) -> Option<Self> {
        let encoder = architecture.encoder?;
        let source = tokens.source.as_ref().expect("an encoder has a source");
        let lengths = [source.sequence, tokens.sequence];
        let biases = encoder.relative_biases.iter().zip(distances).zip(lengths);
        let biases = biases.map(|((Bias { buckets, heads, .. }, table), length)| {
            ([buckets.count, *heads], buckets.of_pairs(table, length, length))
        });
        Some(Self {
            lengths,
            batch: tokens.batch,
            hidden: architecture.hidden_size,
            biases: biases.collect(),
            padding: source.padding.clone(),
            norm: encoder.final_norm.1,
        })
    }

    /// The rows of sources, or of targets.
    fn of_tokens(&self, which: usize) -> Range<usize> {
        let first = if which == 0 { 0 } else { self.batch * self.lengths[0] };
        first..first + self.batch * self.lengths[which]
    }

    /// The rows of targets.
    pub fn targets(&self) -> Range<usize> {
        self.of_tokens(1)
    }

    /// x with the rows that a block of this stack changes, by `layer`.
    pub fn through(
        &self,
        x: Tensor<2>,
        stack: Stack,
        context: &Context,
        layer: impl FnOnce(Tensor<2>, &Context) -> Tensor<2>,
    ) -> Tensor<2> {
        let which = usize::from(stack == Stack::Decoder);
        let own = self.of_tokens(which);
        let context =
            Context { sequence: self.lengths[which], seen: Some(self.seen(&x, which)), ..context.clone() };
        let y = layer(rows(x.clone(), own.clone()), &context);
        let y = match stack {
            Stack::Encoder { is_last: true } => self.normalised(y, &x, &context.computation),
            Stack::Encoder { .. } | Stack::Decoder => y,
        };
        with_rows(x, y, own)
    }

    /// What the encoder gives, in the type of the stream.
    fn normalised(&self, y: Tensor<2>, x: &Tensor<2>, computation: &Computation) -> Tensor<2> {
        let last = x.dims()[0] - 1;
        let weight = rows(x.clone(), last..last + 1).reshape([self.hidden]);
        norm(y, weight, None, self.norm.terms(), x.dtype(), computation.ops.norm)
    }

    fn seen(&self, x: &Tensor<2>, which: usize) -> Seen {
        let tables: Vec<usize> = self.biases.iter().map(|(shape, _)| rows_of(*shape, self.hidden)).collect();
        let bias = self.biases.get(which).map(|([buckets, heads], pairs)| {
            let first = self.targets().end + tables[..which].iter().sum::<usize>();
            let flat =
                rows(x.clone(), first..first + tables[which]).reshape([1, tables[which] * self.hidden]);
            let table = flat.narrow(1, 0, buckets * heads).reshape([*buckets, *heads]);
            RelativeBias { table, buckets: pairs.clone() }
        });
        let encoded = (which == 1).then(|| rows(x.clone(), self.of_tokens(0)));
        Seen { bias, encoded, source: self.lengths[0], padding: self.padding.clone() }
    }
}

/// What the layers of a stack see besides their own rows.
#[derive(Clone)]
pub struct Seen {
    bias: Option<RelativeBias>,
    /// What the encoder gives, [batch · source, hidden_size]; `None` within it.
    pub encoded: Option<Tensor<2>>,
    /// Tokens of a source.
    pub source: usize,
    padding: Option<Tensor<2, Bool>>,
}

impl Seen {
    /// The bias of a rank's heads, where they have one.
    pub fn bias(&self, attention: &architecture::Attention, context: &Context) -> Option<RelativeBias> {
        let RelativeBias { table, buckets } = self.bias.clone().filter(|_| attention.relative_bias)?;
        let own = attention.heads / context.ranks.size();
        let table = match context.ranks.size() {
            1 => table,
            _ => context.copied(table).narrow(1, context.ranks.place() * own, own),
        };
        Some(RelativeBias { table, buckets })
    }

    /// Which keys are padding.
    pub fn padding(&self, sees: Sees) -> Option<Tensor<2, Bool>> {
        self.padding.clone().filter(|_| sees != Sees::Earlier)
    }
}
