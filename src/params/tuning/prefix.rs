//! Prefix tuning (Li and Liang 2021, "Prefix-Tuning: Optimizing Continuous Prompts for Generation"), without the network
//! that makes the prefix: the keys and values of virtual tokens before each sample are trained, in every layer.

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
    /// Virtual tokens before each sample, whose keys and values in every layer alone are trained.
    pub struct Prefix: Section::of("tuning", "method", &["prefix"]) => {
        /// Virtual tokens before each sample, beyond `train.seq_len`.
        pub num_virtual_tokens: usize =
            Key::method(COUNT).default(Whole(20)).reads(&[("", "{} virtual tokens")]).since(4),
        /// Folder of PEFT's whose keys and values training begins with; else they are drawn from the seed.
        pub adapter: Option<String> =
            Key::method(Values::Text).default(Nothing).called("first adapter").without("a new adapter").since(4),
    }
}

impl Tunes for Prefix {
    fn trained(&self) -> Trained {
        Trained::NONE
    }

    fn virtual_tokens(&self) -> Option<VirtualTokens> {
        Some(VirtualTokens::KeysAndValues(self.num_virtual_tokens))
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
        peft::write_virtual(folder, VirtualTokens::KeysAndValues(self.num_virtual_tokens), base, table, value)
    }

    fn check_files(&self) -> Result<(), Rule> {
        peft::check_virtual(VirtualTokens::KeysAndValues(self.num_virtual_tokens), self.folder())
    }
}
