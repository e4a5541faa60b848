//! `[tuning]`: which parameters are trained, and what is added to the network for that. A method is one file: its keys,
//! and [`Tunes`].

mod adapter;
mod bitfit;
mod bottleneck;
mod full;
mod lora;
mod qlora;

use std::io;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::TensorData;
use serde::{Deserialize, Serialize};

pub use adapter::{Adapter, Masks, Matrix, Method};
pub use bitfit::BitFit;
pub use bottleneck::Bottleneck;
pub use full::Full;
pub use lora::Lora;
pub use qlora::QLora;

use super::table::{Group, Table, Tuning};
use crate::ops::cost::Trained;
use crate::ops::dense::WeightLayout;
use crate::words::key::DefaultValue::Word;
use crate::words::section::kinds;
use crate::words::values::Values;
use crate::words::{Key, Rule, Section};

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
    }
}

/// A linear layer of a block: its name, its inputs and its outputs.
pub type LinearLayer = (String, [usize; 2]);

/// What the methods have in common.
pub trait Tunes {
    /// Which of the model's own parameters are trained.
    fn trained(&self) -> Trained;

    /// Whether the weights of blocks' linear layers, which are frozen, are stored in 4 bits.
    fn packs(&self) -> bool {
        false
    }

    /// What linear layers of blocks have in addition.
    fn adapter(&self) -> Option<Arc<dyn Method>> {
        None
    }

    /// The folder with the first values of what is added, in PEFT's layout.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Whether the folder of what is added could be PEFT's.
    fn has_peft_folder(&self) -> bool {
        false
    }

    /// Whether the trained network can be written as the model alone.
    fn merges(&self) -> bool {
        true
    }

    /// The parameter of this name of a network without additions that computes the same; `value` has those of the
    /// network as it is, and `layout` says how the weights of linear layers lie.
    fn merged(&self, name: &str, _: WeightLayout, value: &mut dyn FnMut(&str) -> TensorData) -> TensorData {
        value(name)
    }

    /// Writes what is added as [`has_peft_folder`](Self::has_peft_folder) has it. `base`: the folder of the model's
    /// weights; `table`: the network's parameters.
    ///
    /// # Errors
    /// When a file cannot be written.
    fn write(
        &self,
        _folder: &Path,
        _base: Option<&Path>,
        _layout: WeightLayout,
        _table: &Table,
        _value: &mut dyn FnMut(&str) -> TensorData,
    ) -> io::Result<()> {
        Err(io::Error::other("this method adds nothing that PEFT could read"))
    }

    /// Refuses a folder of first values that does not go with the settings.
    ///
    /// # Errors
    /// The key, and what to write.
    fn check_files(&self) -> Result<(), Rule> {
        Ok(())
    }

    /// Refuses what does not go with a block of these layers.
    ///
    /// # Errors
    /// The key, and what to write.
    fn check(&self, _layers: &[LinearLayer]) -> Result<(), Rule> {
        Ok(())
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
            .default(Word("full"))
            .reads(&[
                ("full", "full tuning"),
                ("lora", "LoRA"),
                ("qlora", "QLoRA"),
                ("bitfit", "BitFit"),
                ("adapter", "bottleneck adapters"),
            ])
            .since(4)],
    );

    /// `seed`: of the first values of what is added.
    pub fn tuning(&self, seed: u32) -> Tuning {
        let trained = self.trained();
        let trains = move |name: &str, group| match group {
            Group::Adapter => true,
            _ if name.ends_with(".bias") => trained.biases,
            _ => trained.weights,
        };
        let folder = self.folder().map(Path::to_path_buf);
        Tuning { trainable: Arc::new(trains), packs: self.packs(), adapter: self.adapter(), seed, folder }
    }

    /// Whether nothing is added and nothing frozen.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}

#[cfg(test)]
mod tests;
