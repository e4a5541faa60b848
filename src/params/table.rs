//! [`Table`]: a network's parameters: names, shapes, types, which of them are trained, and what they belong to.
//!
//! Building the network on a [`Source`] records them; one of shapes takes no memory for that.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use burn::module::ParamId;
use burn::tensor::{DType, TensorData};

use super::source::Source;
use super::split::Split;
use super::tuning::{Adapters, Method, VirtualTokens};
use crate::common::text::fnv1a;
use crate::ops::cost::Trained;
use crate::ops::dense::WeightLayout;
use crate::ops::nf4::carriers;

/// What a parameter belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Embedding,
    /// The block of this number.
    Block(usize),
    /// The norm after the last block.
    Norm,
    Head,
    /// What a method of tuning adds.
    Adapter,
    /// A task's classifier, in the place of the head.
    Classifier,
}

impl Group {
    /// Whether tuning or a task adds it to the model, whose files do not have it. Every method trains it, and its first
    /// values follow from its name and the seed.
    pub fn is_added(self) -> bool {
        matches!(self, Self::Adapter | Self::Classifier)
    }
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// In Hugging Face's spelling.
    pub name: String,
    /// Of all ranks together.
    pub shape: Vec<usize>,
    /// As it is stored.
    pub dtype: DType,
    /// Whether it has a gradient and an optimizer's state; else it is frozen.
    pub trainable: bool,
    pub group: Group,
    /// Whether 4-bit codes of it are stored.
    pub packed: bool,
    /// How it divides among ranks; `None`: each has all of it.
    pub split: Option<Split>,
}

impl Entry {
    /// The shape of what is stored, in numbers of its type.
    pub fn stored_shape(&self) -> Vec<usize> {
        match *self.shape {
            [rows, columns] if self.packed => vec![1, carriers([rows, columns], self.dtype)],
            _ => self.shape.clone(),
        }
    }

    pub fn elements(&self) -> u128 {
        self.shape.iter().fold(1, |product, size| product.saturating_mul(*size as u128))
    }
}

/// Whether the parameter of this name and group is trained.
pub type Trains = dyn Fn(&str, Group) -> bool + Send + Sync;

/// Which parameters of a network are trained, and its adapters.
#[derive(Clone)]
pub struct Tuning {
    /// Whether a parameter of this name and group is trained.
    pub trainable: Arc<Trains>,
    /// Whether the weights of blocks' linear layers, which are frozen, are stored in 4 bits.
    pub packs: bool,
    /// What linear layers of blocks have in addition.
    pub adapter: Option<Adapters>,
    /// The block whose layers are asked for; `None`: any.
    pub block: Option<usize>,
    /// The model's own parameters that are trained beside what the method trains.
    pub saved: Arc<BTreeSet<String>>,
    /// What stands before each sample.
    pub virtual_tokens: Option<VirtualTokens>,
    /// Classes of a classifier in the place of the head.
    pub classes: Option<usize>,
    /// Seed of the first values of adapters. They are drawn apart from the model's, which is the same with and without them.
    pub seed: u32,
    /// A folder in PEFT's layout with these first values.
    pub folder: Option<PathBuf>,
}

impl Default for Tuning {
    /// Every parameter is trained.
    fn default() -> Self {
        Self {
            trainable: Arc::new(|_, _| true),
            packs: false,
            adapter: None,
            block: None,
            saved: Arc::default(),
            virtual_tokens: None,
            classes: None,
            seed: 0,
            folder: None,
        }
    }
}

impl Tuning {
    /// The same with no parameter trained.
    #[must_use]
    pub fn frozen(self) -> Self {
        Self { trainable: Arc::new(|_, _| false), ..self }
    }

    /// The tuning of the block of this number.
    #[must_use]
    pub fn in_block(&self, block: usize) -> Self {
        Self { block: Some(block), ..self.clone() }
    }

    /// Whether blocks have other adapters than the first.
    pub fn differs_by_block(&self) -> bool {
        matches!(self.adapter, Some(Adapters::ByLayer(_)))
    }

    /// The adapter of a linear layer of this name: of the block, or of the first that has one.
    pub fn method(&self, layer: &str) -> Option<&Arc<dyn Method>> {
        self.adapter.as_ref()?.method(self.block, layer)
    }

    /// Whether linear layers of this name have an adapter in a block.
    pub fn adapts(&self, layer: &str) -> bool {
        self.method(layer).is_some()
    }

    /// Which parameters are trained of a module of the model itself, where `trained` are those of others.
    pub fn trained_of(&self, module: &str, trained: Trained) -> Trained {
        let is_saved = |name: &String| name.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'));
        if self.saved.iter().any(is_saved) { Trained::ALL } else { trained }
    }

    /// The parameter of this name in a network without adapters that computes the same. `value` has the parameters of the
    /// network as it is, and `layout` says how the weights of linear layers lie.
    pub fn merged(
        &self,
        name: &str,
        layout: WeightLayout,
        value: &mut dyn FnMut(&str) -> TensorData,
    ) -> TensorData {
        let weight = value(name);
        let method = name.strip_suffix(".weight").and_then(|path| {
            let (block, layer) =
                (path.split('.').find_map(|part| part.parse().ok())?, path.rsplit('.').next()?);
            Some((path, self.adapter.as_ref()?.method(Some(block), layer)?))
        });
        match method.filter(|_| weight.shape().num_dims() == 2) {
            None => weight,
            Some((path, method)) => {
                method.merged(weight, layout, &mut |matrix| value(&format!("{path}.{matrix}")))
            }
        }
    }

    /// Whether a gated MLP runs its linear layers and their gate rather than the SwiGLU operator, which has no place for
    /// adapters and for weights in 4 bits.
    pub fn opens_swiglu(&self) -> bool {
        self.packs || ["gate_proj", "up_proj", "down_proj"].iter().any(|layer| self.adapts(layer))
    }

    /// Virtual tokens before each sample.
    pub fn virtual_count(&self) -> usize {
        self.virtual_tokens.map_or(0, VirtualTokens::count)
    }
}

/// Parameters in the order in which they are made; a tied head appears once, as the embedding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub entries: Vec<Entry>,
}

impl Table {
    /// Records the parameters that `build` makes; they have no values.
    pub fn record<M>(dtype: DType, tuning: &Tuning, build: impl FnOnce(&Source) -> M) -> Self {
        let source = Source::shapes(dtype, tuning);
        drop(build(&source));
        source.table()
    }

    /// Elements of the parameters for which `of` is true.
    pub fn elements(&self, of: impl Fn(&Entry) -> bool) -> u128 {
        let counted = self.entries.iter().filter(|entry| of(entry));
        counted.fold(0, |sum, entry| sum.saturating_add(entry.elements()))
    }

    /// Names by the ids that modules know parameters by.
    pub fn names(&self) -> HashMap<ParamId, &str> {
        self.entries.iter().map(|entry| (id(&entry.name), entry.name.as_str())).collect()
    }
}

/// The id of a parameter, which follows from its name: that of a block which is made anew is the same.
pub fn id(name: &str) -> ParamId {
    ParamId::from(fnv1a(name))
}
