//! QLoRA (Dettmers et al. 2023, "QLoRA: Efficient Finetuning of Quantized LLMs"): LoRA on frozen weights
//! in 4 bits.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Lora, Method, Tunes};
use crate::keys::Section;
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

    fn folder(&self) -> Option<&Path> {
        self.0.folder()
    }

    fn peft_type(&self) -> Option<PeftType<'_>> {
        self.0.peft_type()
    }
}
