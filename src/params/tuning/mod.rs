//! `[tuning]`: which parameters are trained, and what is added to the network for that. A method is one file: its keys,
//! and [`Tunes`].

mod adapter;
mod bitfit;
mod bottleneck;
mod full;
mod linear_probe;
mod lora;
mod lp_ft;
mod qlora;
mod virtual_tokens;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use adapter::{Adapter, Adapters, Masks, Matrix, Method};
pub use bitfit::BitFit;
pub use bottleneck::Bottleneck;
pub use full::Full;
pub use linear_probe::LinearProbe;
pub use lora::{Biases, Lora, MAGNITUDE, Targets, patterns};
pub use lp_ft::LpFt;
pub use qlora::QLora;
pub use virtual_tokens::{Prefix, Prompt, VirtualTokenKeys, VirtualTokens};

use super::peft::PeftType;
use super::table::{Group, Table, Tuning};
use crate::keys::key::DefaultValue::Word;
use crate::keys::section::kinds;
use crate::keys::values::Values;
use crate::keys::{Key, Rule, Section};
use crate::ops::cost::Trained;

kinds! {
    /// `[tuning]`
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
    #[serde(rename_all = "lowercase")]
    #[strum(serialize_all = "lowercase")]
    pub enum TuningConfig: Tunes {
        Full(Full),
        Lora(Lora),
        QLora(QLora),
        BitFit(BitFit),
        Adapter(Bottleneck),
        Prompt(Prompt),
        Prefix(Prefix),
        #[serde(rename = "linear_probe")]
        #[strum(serialize = "linear_probe")]
        LinearProbe(LinearProbe),
        #[serde(rename = "lp_ft")]
        #[strum(serialize = "lp_ft")]
        LpFt(LpFt),
    }
}

/// A linear layer of a block: its name, its inputs and its outputs.
pub type LinearLayer = (String, [usize; 2]);

/// Makes the table of a model's own parameters, which is empty where it is no language model.
pub type Own<'o> = &'o dyn Fn() -> Table;

/// What the methods have in common.
pub trait Tunes {
    /// Which of the model's own parameters are trained.
    fn trained(&self) -> Trained {
        Trained::NONE
    }

    /// Whether the weights of blocks' linear layers, which are frozen, are stored in 4 bits.
    fn packs(&self) -> bool {
        false
    }

    /// What linear layers of blocks have in addition.
    fn adapter(&self) -> Option<Arc<dyn Method>> {
        None
    }

    /// The same by layer, in a model with these parameters of its own.
    fn adapters(&self, _own: Own<'_>) -> Option<Adapters> {
        self.adapter().map(Adapters::Alike)
    }

    /// Parameters of the model itself that are trained beside [`trained`](Self::trained).
    fn saved(&self, _own: Own<'_>) -> BTreeSet<String> {
        BTreeSet::new()
    }

    /// Refuses what does not go with a model whose blocks have these layers.
    ///
    /// # Errors
    /// The key, and what to write.
    fn check(&self, layers: &[LinearLayer], _own: Own<'_>) -> Result<(), Rule> {
        self.adapter().map_or(Ok(()), |adapter| adapter.check(layers))
    }

    /// What stands before each sample.
    fn virtual_tokens(&self) -> Option<VirtualTokens> {
        None
    }

    /// Whether the method trains the classifier of a task.
    fn needs_classes(&self) -> bool {
        false
    }

    /// The method by which the step after so many updates trains, where that is another.
    fn phase(&self, _updates: usize) -> Option<TuningConfig> {
        None
    }

    /// Steps that another method trains before this one.
    fn probe_steps(&self) -> Option<usize> {
        None
    }

    /// The folder with the first values of what is added, in PEFT's layout.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// What a folder of PEFT's with the method has; `None` where PEFT has no such method.
    fn peft_type(&self) -> Option<PeftType<'_>> {
        self.virtual_tokens().map(PeftType::VirtualTokens)
    }
}

impl Default for TuningConfig {
    fn default() -> Self {
        Self::Full(Full {})
    }
}

impl TuningConfig {
    pub const KEY: Section = Section::new("tuning").with(
        "Which parameters are trained, and what is added to the network for that.",
        &[Key::method(Values::Kinds)
            .named("method", "Every parameter, or a method that trains few.")
            .called("tuning")
            .default(Word("full"))],
    );

    /// `seed`: of the first values of what is added; `own`: the model's own parameters.
    pub fn tuning(&self, seed: u32, own: Own<'_>) -> Tuning {
        let trained = self.trained();
        let saved = Arc::new(self.saved(own));
        let is_saved = saved.clone();
        let trains = move |name: &str, group: Group| match name {
            _ if group.is_added() || is_saved.contains(name) => true,
            name if name.ends_with(".bias") => trained.biases,
            _ => trained.weights,
        };
        Tuning {
            trainable: Arc::new(trains),
            packs: self.packs(),
            adapter: self.adapters(own),
            virtual_tokens: self.virtual_tokens(),
            seed,
            folder: self.folder().map(Path::to_path_buf),
            saved,
            ..Tuning::default()
        }
    }

    /// Whether the trained network can be written as the model alone.
    pub fn merges(&self) -> bool {
        self.virtual_tokens().is_none() && self.adapter().is_none_or(|adapter| adapter.merges())
    }

    /// Whether nothing is added and nothing frozen.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}

#[cfg(test)]
mod tests;
