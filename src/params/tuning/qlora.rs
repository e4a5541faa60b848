//! QLoRA (Dettmers et al. 2023, "QLoRA: Efficient Finetuning of Quantized LLMs"): LoRA beside weights of 4 bits.

use std::io;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::TensorData;
use serde::{Deserialize, Serialize};

use super::{LinearLayer, Lora, Method, Tunes};
use crate::ops::cost::Trained;
use crate::ops::dense::WeightLayout;
use crate::params::table::Table;
use crate::words::{Rule, Section};

/// LoRA whose model has the weights of its blocks' linear layers, with adapters or without, in NormalFloat codes with double
/// quantization. Embeddings, norms, biases and the head are as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QLora(pub Lora);

impl QLora {
    /// LoRA's.
    pub const SECTION: Section = Lora::SECTION;
}

impl Tunes for QLora {
    fn trained(&self) -> Trained {
        self.0.trained()
    }

    fn packs(&self) -> bool {
        true
    }

    fn adapter(&self) -> Option<Arc<dyn Method>> {
        Tunes::adapter(&self.0)
    }

    fn folder(&self) -> Option<&Path> {
        self.0.folder()
    }

    fn has_peft_folder(&self) -> bool {
        self.0.has_peft_folder()
    }

    /// Into the numbers that the codes give.
    fn merged(
        &self,
        name: &str,
        layout: WeightLayout,
        value: &mut dyn FnMut(&str) -> TensorData,
    ) -> TensorData {
        self.0.merged(name, layout, value)
    }

    fn write(
        &self,
        folder: &Path,
        base: Option<&Path>,
        layout: WeightLayout,
        table: &Table,
        value: &mut dyn FnMut(&str) -> TensorData,
    ) -> io::Result<()> {
        self.0.write(folder, base, layout, table, value)
    }

    fn check_files(&self) -> Result<(), Rule> {
        self.0.check_files()
    }

    fn check(&self, layers: &[LinearLayer]) -> Result<(), Rule> {
        self.0.check(layers)
    }
}
