//! Networks: the kinds that `[model]` names, and the traits by which the runner trains them.

pub mod architecture;
pub mod config;
pub mod families;
pub mod generate;
pub mod language;
mod part;
pub mod swiglu;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{DType, Tensor};
use serde::{Serialize, Serializer};
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
use families::FAMILIES;
use language::DecoderSizes;
pub use part::{Output, Part, Parts};
use swiglu::SwigluConfig;

/// `[model]`
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a cell has one model, nearly always a language model")]
pub enum Model {
    Swiglu(SwigluConfig),
    Language(LanguageModel),
}

impl Serialize for Model {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Swiglu(config) => serializer.serialize_newtype_variant("Model", 0, Self::SWIGLU, config),
            Self::Language(model) => {
                serializer.serialize_newtype_variant("Model", 1, model.family.kind, model)
            }
        }
    }
}

const SECTIONS: [Section; 3 + FAMILIES.len()] = {
    const KIND: Key = Key::method(Values::Kinds).named("kind", "Which network.").called("network");
    let model = Section::new("model").with("The network.", &[KIND.follows(&["model.preset"])]);
    let mut sections = [model; 3 + FAMILIES.len()];
    (sections[1], sections[2]) = (config::SECTION, SwigluConfig::SECTION);
    let mut family = 0;
    while family < FAMILIES.len() {
        sections[3 + family] = FAMILIES[family].section;
        family += 1;
    }
    sections
};

/// The kind of SwiGLU stacks, and those of language models.
const KINDS: [&str; 1 + FAMILIES.len()] = {
    let mut kinds = [Model::SWIGLU; 1 + FAMILIES.len()];
    let mut family = 0;
    while family < FAMILIES.len() {
        kinds[1 + family] = FAMILIES[family].kind;
        family += 1;
    }
    kinds
};

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
    /// The kind of SwiGLU stacks.
    pub const SWIGLU: &str = "swiglu";

    pub const KINDS: &[&str] = &KINDS;

    /// The kinds of language models.
    pub const LANGUAGE: &[&str] = KINDS.split_at(1).1;

    pub const SECTIONS: &[Section] = &SECTIONS;

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

    /// The language model, where it is one.
    pub fn language(&self) -> Option<&LanguageModel> {
        match self {
            Self::Swiglu(_) => None,
            Self::Language(model) => Some(model),
        }
    }

    /// A language model's parameters, stored in this type.
    pub fn table(&self, dtype: DType, tuning: &Tuning) -> Option<Table> {
        self.language().map(|model| model.table(dtype, tuning))
    }

    /// Its operators, with the adapters of `tuning`.
    pub fn operators(&self, setting: &Setting, tuning: &Tuning) -> Operators {
        match self {
            Self::Swiglu(config) => config.operators(setting),
            Self::Language(model) => model.operators(setting, tuning),
        }
    }

    /// Where a language model's weights come from.
    pub fn weights(&self) -> Option<&WeightsFrom> {
        self.language().map(|model| &model.weights)
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
        if let Self::Language(model) = self {
            model.weights = WeightsFrom::Folder(folder);
        }
    }

    /// The `config.json` that goes with a language model's weights; see [`config::to_hugging_face`].
    pub fn config_file(
        &self,
        stored: DType,
        base: Option<ConfigFile>,
        ends: Option<&[u32]>,
    ) -> Option<Value> {
        let LanguageModel { family, config, common, .. } = self.language()?;
        Some(config::to_hugging_face((family, config), common.pad_token_id, stored, base, ends))
    }

    /// What the user should know of the `config.json` in its folder of weights, a sentence each; none where it has no folder.
    pub fn notices(&self, trains: bool) -> Vec<String> {
        let file = self.weights_folder().and_then(|folder| ConfigFile::read(folder).ok());
        let notices = file.zip(self.language()).map(|(file, model)| file.notices(model.family, trains));
        notices.unwrap_or_default()
    }

    /// The name of a language model's kind.
    pub fn kind(&self) -> Option<&'static str> {
        self.language().map(|model| model.family.kind)
    }

    /// Whether it reads sources before it learns targets.
    pub fn has_encoder(&self) -> bool {
        self.language().is_some_and(|model| model.architecture().encoder.is_some())
    }

    /// Tokens a language model knows.
    pub fn vocab_size(&self) -> Option<usize> {
        self.language().map(|model| model.architecture().vocab_size)
    }

    /// The sizes of a language model.
    pub fn decoder(&self) -> Option<DecoderSizes> {
        self.language().map(LanguageModel::shape)
    }

    /// How the weights of a language model's linear layers lie.
    pub fn layout(&self) -> Option<WeightLayout> {
        self.language().map(|model| model.architecture().layout)
    }

    /// The linear layers of a language model's block.
    pub fn linear_layers(&self) -> Vec<LinearLayer> {
        self.language().map(LanguageModel::linear_layers).unwrap_or_default()
    }

    /// Its operators, by their names in `[ops]`.
    pub fn operator_names(&self) -> &'static [&'static str] {
        let Some(model) = self.language() else { return &["swiglu"] };
        match model.family.operators {
            // An MLP with biases is linear layers and their gate.
            ["swiglu", others @ ..] if !model.shape().gated => others,
            // And one of a gated MLP is in its operator.
            ["swiglu", .., "gelu"] => model.family.operators.split_last().map_or(&[], |(_, others)| others),
            all => all,
        }
    }
}
