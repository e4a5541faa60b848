//! Saving a training between two steps, and resuming it; files of trained weights.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::beside::Beside;
use super::shares::Shares;
use super::{Results, Training};
use crate::data::Position;
use crate::measure::Load;
use crate::optim::{Kept, Visit};
use crate::params::save::{LAYOUT, WEIGHTS, write_weights, write_within};
use crate::params::weights::Weights;
use crate::recipe::Cell;
use crate::train::build::Build;

/// How far a training has come, apart from its parameters and from the state of optimizer and scaler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Standing {
    updates: usize,
    pub position: Position,
    pub loads: Vec<Load>,
    results: Results,
}

impl<N: Build> Training<'_, N> {
    pub fn standing(&self) -> Standing {
        Standing {
            updates: self.current().updates,
            position: self.feed.position(),
            loads: self.feed.loads().to_vec(),
            results: self.results.clone(),
        }
    }

    /// Goes on from `standing`; the network and the feed already do. `restore` fills in the state of optimizer and scaler,
    /// which is that of the last update: a phase that ends there has not been left.
    pub fn resume(&mut self, standing: &Standing, restore: &mut Visit) {
        let last = standing.updates.saturating_sub(1);
        if self.cell.tuning.phase(last) != self.cell.tuning.phase(0) {
            self.make(self.cell, last);
            self.make_states();
        }
        let step = self.step.as_mut().expect("begun");
        step.updates = standing.updates;
        step.visit(restore);
        self.results = standing.results.clone();
    }

    /// Visits the state of optimizer and scaler.
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

    /// Writes what the tuning method adds to the model, in PEFT's layout, with the tokenizer. `base`: the folder of the model, which is not that of
    /// the first weights where the cell goes on from a state.
    pub fn write_adapter(&mut self, folder: &Path, base: Option<&Path>, shares: &Shares) -> io::Result<()> {
        let Cell { tuning, model, .. } = self.cell;
        let layout = model.layout().expect("checked: a language model");
        let residence = &mut self.step.as_mut().expect("begun").stage.residence;
        let mut value = |name: &str| shares.asked_for(name, residence);
        let peft_type = tuning.peft_type().expect("checked: PEFT has the method");
        peft_type.write(folder, (base, layout), &shares.table, &mut value)?;
        self.beside(base).write_tokenizer(folder)
    }

    /// Writes the model for Hugging Face's programs and `runner generate`; what the tuning method adds is merged into the
    /// weights. `base`: as there.
    pub fn write_model(&mut self, folder: &Path, base: Option<&Path>, shares: &Shares) -> io::Result<()> {
        let Cell { model, .. } = self.cell;
        let layout = model.layout().expect("checked: a language model");
        let mut table = shares.table.clone();
        table.entries.retain(|entry| !entry.group.is_added());
        table.entries.iter_mut().for_each(|entry| entry.packed = false);
        let residence = &mut self.step.as_mut().expect("begun").stage.residence;
        let mut value = |name: &str| shares.asked_for(name, residence);
        let tuning = self.cell.tuning();
        let merged = |name: &str| tuning.merged(name, layout, &mut value);
        let first = base.map(|base| Weights::open(base).map_err(io::Error::other)).transpose()?;
        let path = folder.join(WEIGHTS);
        match first.filter(|first| first.inner().is_some()) {
            Some(first) => write_within(&path, &table, &first, merged),
            None => write_weights(&path, &table, LAYOUT, merged),
        }
        .map_err(io::Error::other)?;
        let beside = self.beside(base);
        let (first, ends) = beside.config()?;
        let config = model.config_file(self.cell.precision.stored(), first, ends);
        let config = serde_json::to_vec_pretty(&config.expect("checked: a language model"))?;
        fs::write(folder.join("config.json"), config)?;
        beside.write_tokenizer(folder)?;
        beside.write_generation(folder)
    }

    fn beside(&self, base: Option<&Path>) -> Beside<'_> {
        Beside::new(&self.cell.data, self.feed.tokenizer(), base)
    }
}
