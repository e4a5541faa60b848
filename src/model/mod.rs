//! Networks: the kinds that `[model]` names, and the traits by which the runner trains them.

pub mod config;
pub mod families;
pub mod generate;
pub mod language;
mod part;
pub mod swiglu;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{DType, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::device::cuda::Input;
use crate::keys::values::Values;
use crate::keys::{Key, Section};
use crate::measure::Evaluation;
use crate::ops::cost::{Operators, Setting};
use crate::ops::dense::WeightLayout;
use crate::params::WeightsFrom;
use crate::params::table::{Table, Tuning};
use crate::params::tuning::LinearLayer;
use crate::residence::Offloaded;

use config::{ConfigFile, LanguageModel};
use families::*;
use language::DecoderSizes;
pub use part::{Output, Part, Parts};
use swiglu::SwigluConfig;

/// Declares `[model]`: SwiGLU stacks and these families of language models.
macro_rules! models {
    ($dollar:tt $($kind:ident),*) => {
        /// `[model]`
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Model {
            Swiglu(SwigluConfig),
            $($kind(LanguageModel<$kind>),)*
        }

        impl Model {
            /// The kinds of language models.
            pub const LANGUAGE: &[&str] = &[$(<$kind as Family>::KIND),*];

            pub const SECTIONS: &[Section] = &[
                Section::new("model").with(
                    "The network.",
                    &[Key::method(Values::Kinds).named("kind", "Which network.").called("network").follows(&["model.preset"])],
                ),
                config::SECTION,
                SwigluConfig::SECTION,
                $(<$kind as Family>::SECTION),*
            ];
        }

        /// An expression of the section of any kind.
        macro_rules! on_model {
            ($dollar on:expr, $dollar model:ident => $dollar result:expr) => {
                match $dollar on {
                    $crate::model::Model::Swiglu($dollar model) => $dollar result,
                    $($crate::model::Model::$kind($dollar model) => $dollar result,)*
                }
            };
        }

        /// `Some` of an expression of a [`LanguageModel`]; `None` for a SwiGLU stack.
        macro_rules! on_language {
            ($dollar on:expr, $dollar model:ident => $dollar result:expr) => {
                match $dollar on {
                    $crate::model::Model::Swiglu(_) => None,
                    $($crate::model::Model::$kind($dollar model) => Some($dollar result),)*
                }
            };
        }
    };
}

models!($ Qwen2, Llama, Gpt2, GptJ);
pub(crate) use {on_language, on_model};

/// `[model]` of one kind.
pub trait Kind {
    type Network: Network;
}

/// What a forward and a backward read of a batch, and what else decides their launches.
pub struct Inputs {
    pub tensors: Vec<Input>,
    pub form: Vec<u64>,
}

/// A network that can be trained on batches of its own kind.
pub trait Network: Module + Sized {
    type Batch: Clone;

    /// The tensors that a forward and a backward read of the batch, and its form: batches of one form have the same
    /// launches. `None` where launches depend on the contents of the batch.
    fn inputs(_batch: &Self::Batch) -> Option<Inputs> {
        None
    }

    /// The micro-batch's part of the step's mean loss, [1] in fp32.
    fn loss(&self, batch: &Self::Batch) -> Tensor<1>;

    /// The output of one of its parts from `x`, the output of the part before; the first part reads the batch alone.
    fn part(&self, _part: &Part, _batch: &Self::Batch, _x: Option<Tensor<2>>) -> Output {
        unreachable!("checked: a language model has stages")
    }

    /// The shape and the type of what one part gives the next.
    fn between(&self, _batch: &Self::Batch) -> ([usize; 2], DType) {
        unreachable!("checked: a language model has stages")
    }

    /// The name of the parameter that both the first and the last part have, if there is one.
    fn tied(&self) -> Option<String> {
        None
    }

    /// All parameters.
    fn parameters(&self) -> &Arc<Table>;

    /// The blocks whose weights and gradients live on the host and are not the module's.
    fn offloaded(&self) -> Option<&Offloaded> {
        None
    }

    /// Loss and accuracy on a batch, of a network outside of autodiff, and the number of tokens that they are means over.
    fn evaluate(&self, batch: &Self::Batch) -> (Evaluation, f64);
}

impl Model {
    pub fn parameters(&self) -> u64 {
        match self {
            Self::Swiglu(config) => config.parameters(),
            _ => self.decoder().map_or(0, |shape| shape.parameters),
        }
    }

    /// Columns of what goes from block to block.
    pub fn hidden_size(&self) -> usize {
        match self {
            Self::Swiglu(config) => config.hidden_size,
            _ => self.decoder().map_or(0, |shape| shape.hidden_size),
        }
    }

    /// A language model's parameters, stored in this type.
    pub fn table(&self, dtype: DType, tuning: &Tuning) -> Option<Table> {
        on_language!(self, model => model.table(dtype, tuning))
    }

    /// Its operators, with the adapters of `tuning`.
    pub fn operators(&self, setting: &Setting, tuning: &Tuning) -> Operators {
        on_model!(self, model => model.operators(setting, tuning))
    }

    /// Where a language model's weights come from.
    pub fn weights(&self) -> Option<&WeightsFrom> {
        on_language!(self, model => &model.weights)
    }

    /// The folder that its weights are loaded from.
    pub fn weights_folder(&self) -> Option<&Path> {
        match self.weights()? {
            WeightsFrom::Random => None,
            WeightsFrom::Folder(folder) => Some(folder),
        }
    }

    /// Takes a language model's weights from this folder.
    pub fn load_from(&mut self, folder: PathBuf) {
        on_language!(self, model => model.weights = WeightsFrom::Folder(folder));
    }

    /// The `config.json` that goes with a language model's weights; see [`config::to_hugging_face`].
    pub fn config_file(
        &self,
        stored: DType,
        base: Option<ConfigFile>,
        ends: Option<&[u32]>,
    ) -> Option<Value> {
        fn of<F: Family>(
            model: &LanguageModel<F>,
            stored: DType,
            base: Option<ConfigFile>,
            ends: Option<&[u32]>,
        ) -> Value {
            config::to_hugging_face::<F>(&model.config, stored, base, ends)
        }
        on_language!(self, model => of(model, stored, base, ends))
    }

    /// What the user should know of the `config.json` in its folder of weights, a sentence each; none where it has no folder.
    pub fn notices(&self, trains: bool) -> Vec<String> {
        fn of<F: Family>(_: &LanguageModel<F>, file: &ConfigFile, trains: bool) -> Vec<String> {
            file.notices::<F>(trains)
        }
        let file = self.weights_folder().and_then(|folder| ConfigFile::read(folder).ok());
        let notices = file.and_then(|file| on_language!(self, model => of(model, &file, trains)));
        notices.unwrap_or_default()
    }

    /// The name of a language model's kind.
    pub fn kind(&self) -> Option<&'static str> {
        fn of<F: Family>(_: &LanguageModel<F>) -> &'static str {
            F::KIND
        }
        on_language!(self, model => of(model))
    }

    /// Tokens a language model knows.
    pub fn vocab_size(&self) -> Option<usize> {
        self.decoder().map(|shape| shape.vocab_size)
    }

    /// The sizes of a language model.
    pub fn decoder(&self) -> Option<DecoderSizes> {
        on_language!(self, model => model.shape())
    }

    /// The model, where it is of this family.
    pub fn language<F: Family>(&self) -> Option<&LanguageModel<F>> {
        on_language!(self, model => (model as &dyn Any).downcast_ref())?
    }

    /// How the weights of a language model's linear layers lie.
    pub fn layout(&self) -> Option<WeightLayout> {
        fn of<F: Family>(_: &LanguageModel<F>) -> WeightLayout {
            F::LAYOUT
        }
        on_language!(self, model => of(model))
    }

    /// The linear layers of a language model's block.
    pub fn linear_layers(&self) -> Vec<LinearLayer> {
        on_language!(self, model => model.linear_layers()).unwrap_or_default()
    }

    /// Its operators, by their names in `[ops]`.
    pub fn operator_names(&self) -> &'static [&'static str] {
        fn of<F: Family>(_: &LanguageModel<F>) -> &'static [&'static str] {
            F::OPERATORS
        }
        on_language!(self, model => of(model)).unwrap_or(&["swiglu"])
    }
}
