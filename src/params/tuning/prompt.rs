//! Prompt tuning (Lester et al. 2021, "The Power of Scale for Parameter-Efficient Prompt Tuning"): the embeddings of
//! virtual tokens before each sample are trained.

use std::io;
use std::path::Path;

use burn::tensor::TensorData;

use super::{Tunes, VirtualTokens};
use crate::ops::cost::Trained;
use crate::ops::dense::WeightLayout;
use crate::params::peft;
use crate::params::table::Table;
use crate::words::key::DefaultValue::{Nothing, Whole};
use crate::words::section::section;
use crate::words::values::{COUNT, Values};
use crate::words::{Key, Rule, Section};

section! {
    /// Virtual tokens before each sample, whose embeddings alone are trained.
    pub struct Prompt: Section::of("tuning", "method", &["prompt"]) => {
        /// Virtual tokens before each sample, beyond `train.seq_len`.
        pub num_virtual_tokens: usize =
            Key::method(COUNT).default(Whole(20)).reads(&[("", "{} virtual tokens")]).since(4),
        /// Folder of PEFT's whose embeddings training begins with; else they are drawn from the seed.
        pub adapter: Option<String> =
            Key::method(Values::Text).default(Nothing).called("first adapter").without("a new adapter").since(4),
    }
}

impl Tunes for Prompt {
    fn trained(&self) -> Trained {
        Trained::NONE
    }

    fn virtual_tokens(&self) -> Option<VirtualTokens> {
        Some(VirtualTokens::Embeddings(self.num_virtual_tokens))
    }

    fn folder(&self) -> Option<&Path> {
        self.adapter.as_deref().map(Path::new)
    }

    fn has_peft_folder(&self) -> bool {
        true
    }

    fn merges(&self) -> bool {
        false
    }

    fn write(
        &self,
        folder: &Path,
        base: Option<&Path>,
        _: WeightLayout,
        table: &Table,
        value: &mut dyn FnMut(&str) -> TensorData,
    ) -> io::Result<()> {
        peft::write_virtual(folder, VirtualTokens::Embeddings(self.num_virtual_tokens), base, table, value)
    }

    fn check_files(&self) -> Result<(), Rule> {
        peft::check_virtual(VirtualTokens::Embeddings(self.num_virtual_tokens), self.folder())
    }
}
