//! QLoRA (Dettmers et al. 2023, "QLoRA: Efficient Finetuning of Quantized LLMs"): LoRA on frozen weights
//! in 4 bits.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Adapters, LinearLayer, Lora, Method, Own, Tunes};
use crate::keys::{Rule, Section};
use crate::ops::cost::Trained;
use crate::params::peft::PeftType;

/// LoRA whose model has the weights of its blocks' linear layers, with adapters or without, in NormalFloat codes with double
/// quantization. Embeddings, norms, biases and the head are as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QLora(pub Lora);

impl QLora {
    /// LoRA's.
    pub const SECTION: Section = Lora::SECTION;
}

impl Tunes for QLora {
    fn packs(&self) -> bool {
        true
    }

    fn adapter(&self) -> Option<Arc<dyn Method>> {
        Tunes::adapter(&self.0)
    }

    fn adapters(&self, own: Own<'_>) -> Option<Adapters> {
        self.0.adapters(own)
    }

    fn trained(&self) -> Trained {
        self.0.trained()
    }

    fn saved(&self, own: Own<'_>) -> BTreeSet<String> {
        self.0.saved(own)
    }

    fn check(&self, layers: &[LinearLayer], own: Own<'_>) -> Result<(), Rule> {
        Tunes::check(&self.0, layers, own)
    }

    fn folder(&self) -> Option<&Path> {
        self.0.folder()
    }

    fn peft_type(&self) -> Option<PeftType<'_>> {
        self.0.peft_type()
    }
}
