//! [`Modules`]: what a decoder is made of: embeddings, blocks, a norm and a head.

use std::collections::HashSet;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::model::Parts;
use crate::model::architecture::{Architecture, Positions};
use crate::model::language::Block;
use crate::model::language::norm::Norm;
use crate::model::language::parts::{Embedding, Linear};
use crate::model::language::stream::Shared;
use crate::ops::parameters::each_parameter;
use crate::params::source::{DEVIATION, Init, Source};
use crate::params::split::Side;
use crate::params::table::{Group, Table, id};
use crate::params::tuning::VirtualTokens;

#[derive(Module, Debug)]
pub struct Modules {
    /// `None` where another process has it; the norm likewise.
    pub tokens: Option<Embedding>,
    pub positions: Option<Embedding>,
    /// What the blocks of an encoder and a decoder share.
    pub shared: Option<Shared>,
    /// The embeddings of virtual tokens, where they are trained.
    pub prompt: Option<Param<Tensor<2>>>,
    /// Empty where the blocks live on the host.
    pub blocks: Vec<Block>,
    pub norm: Option<Norm>,
    /// `None`: the embedding of tokens.
    pub head: Option<Linear>,
}

impl Modules {
    /// Makes the modules in this order, in which random weights are drawn.
    pub fn new(
        architecture: &Architecture,
        source: &Source,
        parts: &Parts,
        blocks: impl FnOnce() -> Vec<Block>,
    ) -> Self {
        let Architecture { vocab_size, hidden_size: hidden, embedding, final_norm, head, .. } = *architecture;
        let (first, last) = (parts.has_first(), parts.has_last());
        let is_head = last && head.tied && source.tuning().classes.is_none();
        let tokens = || Embedding::divided(&source.at(embedding.name), vocab_size, hidden);
        let tokens = source.held(first || is_head, tokens);
        let positions = match embedding.positions {
            Positions::Learned { name, rows, .. } => {
                source.held(first, || Embedding::new(&source.at(name), rows, hidden))
            }
            Positions::None | Positions::Sinusoidal => None,
        };
        let shared = source.held(first, || Shared::new(architecture, source)).flatten();
        let prompt = match source.tuning().virtual_tokens {
            Some(VirtualTokens::Embeddings(count)) => {
                let source = source.at("prompt_encoder").at("embedding").within(Group::Adapter);
                Some(source.parameter("weight", [count, hidden], Init::Normal(DEVIATION)))
            }
            Some(VirtualTokens::KeysAndValues(_)) | None => None,
        };
        let blocks = blocks();
        let (name, norm) = final_norm;
        let norm = source.held(last, || Norm::new(&source.at(name).within(Group::Norm), hidden, norm));
        let own_head = || {
            let source = source.at(head.name).within(Group::Head).divided_by(Side::Outputs { parts: 1 });
            Linear::head(&source, [hidden, vocab_size], head.bias)
        };
        let head = match source.tuning().classes {
            Some(classes) => {
                Some(Linear::head(&source.at("score").within(Group::Classifier), [hidden, classes], false))
            }
            None => source.held(last, || (!head.tied).then(own_head)).flatten(),
        };
        Self { tokens, positions, shared, prompt, blocks, norm, head }
    }
}

/// Leaves the entries of the parameters that a module has.
pub fn retain<M: Module>(table: &mut Table, module: &M, parts: &Parts) {
    if *parts == Parts::Whole {
        return;
    }
    let mut here = HashSet::new();
    each_parameter(module, |id, _| _ = here.insert(id));
    table.entries.retain(|entry| here.contains(&id(&entry.name)));
}
