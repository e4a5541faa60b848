//! A training that is saved between two steps, and one that goes on from there.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Training;
use super::gathered::gathered;
use crate::data::{Data, Position, Tokenizer, TokenizerSource};
use crate::measure::{Answers, Continuation, Evaluation, Load};
use crate::optim::{Kept, Visit};
use crate::params::save::{LAYOUT, WEIGHTS, write_weights};
use crate::recipe::Cell;
use crate::train::build::Build;

/// Where a training stands, apart from its parameters and from what its optimizer and scaler keep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Standing {
    updates: usize,
    pub position: Position,
    pub loads: Vec<Load>,
    evaluations: Vec<Evaluation>,
    answers: Vec<Answers>,
    continuations: Vec<Continuation>,
    host_updates: Vec<f64>,
}

impl<N: Build> Training<'_, N> {
    pub fn standing(&self) -> Standing {
        Standing {
            updates: self.current().updates,
            position: self.feed.position(),
            loads: self.feed.loads().to_vec(),
            evaluations: self.evaluations.clone(),
            answers: self.answers.clone(),
            continuations: self.continuations.clone(),
            host_updates: self.host_updates.clone(),
        }
    }

    /// Goes on from there: the network and the feed do already. `restore` puts values in the place of the first
    /// ones.
    pub fn resume(&mut self, standing: &Standing, restore: &mut Visit) {
        if self.cell.tuning.phase(standing.updates) != self.cell.tuning.phase(0) {
            self.make(self.cell, standing.updates);
            self.make_states();
        }
        let step = self.step.as_mut().expect("begun");
        step.updates = standing.updates;
        step.visit(restore);
        self.evaluations = standing.evaluations.clone();
        self.answers = standing.answers.clone();
        self.continuations = standing.continuations.clone();
        self.host_updates = standing.host_updates.clone();
    }

    /// All that optimizer and scaler keep between steps.
    pub fn visit(&mut self, visit: &mut dyn FnMut(&str, Kept<'_>)) {
        self.step.as_mut().expect("begun").visit(visit);
    }

    /// Writes all parameters into a folder.
    pub fn write_weights(&mut self, folder: &Path) -> io::Result<()> {
        let residence = &mut self.step.as_mut().expect("begun").stage.residence;
        let table = residence.table().clone();
        write_weights(&folder.join(WEIGHTS), &table, LAYOUT, |name| residence.value(name))
            .map_err(io::Error::other)
    }

    /// Writes what is added to the model, in PEFT's layout.
    pub fn write_adapter(&mut self, folder: &Path) -> io::Result<()> {
        let Cell { tuning, model, .. } = self.cell;
        let layout = model.layout().expect("checked: a language model");
        let table = self.table();
        let (ranks, elsewhere) = (&self.groups.tensor, &self.elsewhere);
        let residence = &mut self.step.as_mut().expect("begun").stage.residence;
        let mut value = |name: &str| gathered(name, elsewhere, residence, ranks);
        let peft_type = tuning.peft_type().expect("checked: PEFT has the method");
        peft_type.write(folder, (model.weights_folder(), layout), &table, &mut value)
    }

    /// Writes what Hugging Face's programs read, and `runner generate`: the model without additions, which are merged
    /// into its weights.
    pub fn write_model(&mut self, folder: &Path) -> io::Result<()> {
        let Cell { tuning, model, .. } = self.cell;
        let layout = model.layout().expect("checked: a language model");
        let mut table = self.table();
        table.entries.retain(|entry| !entry.group.is_added());
        table.entries.iter_mut().for_each(|entry| entry.packed = false);
        let (ranks, elsewhere) = (&self.groups.tensor, &self.elsewhere);
        let residence = &mut self.step.as_mut().expect("begun").stage.residence;
        let mut value = |name: &str| gathered(name, elsewhere, residence, ranks);
        let merged = |name: &str| tuning.merged(name, layout, &mut value);
        write_weights(&folder.join(WEIGHTS), &table, LAYOUT, merged).map_err(io::Error::other)?;
        let end = self.feed.tokenizer().and_then(Tokenizer::eos);
        let config = self.cell.model.config_file(self.cell.precision.stored(), end);
        let config = serde_json::to_vec_pretty(&config.expect("checked: a language model"))?;
        fs::write(folder.join("config.json"), config)?;
        match (&self.cell.data, self.feed.tokenizer()) {
            // Also the other files of the tokenizer: they say which token ends a text.
            (Data::Text { tokenizer: TokenizerSource::Path(path), .. }, _) => {
                for (i, file) in Tokenizer::files(path).iter().enumerate() {
                    let name = if i == 0 { Some("tokenizer.json".as_ref()) } else { file.file_name() };
                    fs::copy(file, folder.join(name.expect("a file")))?;
                }
                Ok(())
            }
            (_, Some(trained)) => trained.save(folder).map(|_| ()).map_err(io::Error::other),
            (_, None) => Ok(()),
        }
    }
}
