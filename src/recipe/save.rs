//! `[save]`: folders for the trained weights and for the state of training.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::cell::Cell;
use super::keys;
use crate::common::files::check_writable;
use crate::keys::key::DefaultValue::Nothing;
use crate::keys::section::section;
use crate::keys::values::{COUNT, Values};
use crate::keys::{Key, Rule, Section};
use crate::params::save::{Saved, check_free};

section! {
    /// What a language model's cell saves besides its row. Without the section it saves nothing.
    ///
    /// Folders are relative to the current directory; `{key}` in their names is the cell's value of that dotted
    /// key, so that each cell of a grid has folders of its own.
    #[derive(Eq)]
    pub struct Save: Section::new("save") => {
        /// Folder for the weights after the last step, in Hugging Face's layout; `{seed}` in its name is the cell's seed, and
        /// so on for other keys.
        weights: Option<String> = Key::method(Values::Text).default(Nothing).called("saved weights"),
        /// Folder for the trained adapter, in PEFT's layout; `{seed}` as above. If save.weights is set too, that folder has the
        /// model with the adapter merged.
        adapter: Option<String> = Key::method(Values::Text).default(Nothing).called("saved adapter"),
        /// Whether to replace a folder that another program wrote, or a model by an adapter and the reverse. A model or an
        /// adapter of the runner is always replaced by a new one of its kind.
        pub overwrite: Option<bool> = Key::method(Values::Bool).default(Nothing).called("overwriting"),
        /// Folder for the state of training, from which an interrupted cell resumes; `{seed}` as above.
        state: Option<String> = Key::method(Values::Text).default(Nothing).called("saved state"),
        /// Steps between states.
        every: Option<usize> = Key::method(COUNT).default(Nothing).called("steps between states"),
    }
}

impl Save {
    /// Refuses keys that have no effect.
    pub(super) fn check(&self) -> Result<(), Rule> {
        let rule = |key, message: &str, help: &str| Err(Rule::new(&[key], message, help));
        match (self.weights.as_ref().or(self.adapter.as_ref()), &self.state, self.every) {
            (None, None, None) => rule(
                "save",
                "[save] says nothing to save",
                "write weights = \"out/model\" under it, or remove it",
            ),
            (_, None, Some(_)) => rule(
                "save.every",
                "save.every has no effect without a folder for the state",
                "write state = \"out/state\" too, or remove save.every",
            ),
            (_, Some(_), None) => rule(
                "save.state",
                "nothing says how often the state is saved",
                "write every = 100 too: the steps between two states",
            ),
            (None, ..) if self.overwrite.is_some() => rule(
                "save.overwrite",
                "save.overwrite has no effect on the state of training: it is for save.weights and save.adapter",
                "remove save.overwrite",
            ),
            _ => Ok(()),
        }
    }
}

/// The folders of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders {
    pub weights: Option<PathBuf>,
    pub adapter: Option<PathBuf>,
    pub overwrite: bool,
    /// With the steps between states.
    pub state: Option<(PathBuf, usize)>,
}

impl Folders {
    /// # Errors
    /// A `{key}` that the cell does not have.
    pub fn of(cell: &Cell) -> Result<Self, Rule> {
        let Some(save) = &cell.save else { return Ok(Self::default()) };
        let named =
            |key, name: &Option<String>| name.as_ref().map(|name| filled(cell, key, name)).transpose();
        let state = named("save.state", &save.state)?;
        Ok(Self {
            weights: named("save.weights", &save.weights)?,
            adapter: named("save.adapter", &save.adapter)?,
            overwrite: save.overwrite.unwrap_or(false),
            state: state.zip(save.every),
        })
    }

    /// Whether weights and adapter may be written where they are to be, before anything is trained.
    ///
    /// # Errors
    /// What is in the way.
    pub fn check_free(&self) -> Result<(), String> {
        self.trained().try_for_each(|(_, saved, folder)| check_free(folder, saved, self.overwrite))?;
        self.all().try_for_each(|(key, folder)| {
            check_writable(folder).map_err(|e| {
                format!("{} cannot be written: {e}; name another folder in {key}", folder.display())
            })
        })
    }

    /// The key, the kind and the folder of what is saved after training.
    pub fn trained(&self) -> impl Iterator<Item = (&'static str, Saved, &Path)> {
        let weights = self.weights.iter().map(|folder| ("save.weights", Saved::Weights, folder.as_path()));
        let adapter = self.adapter.iter().map(|folder| ("save.adapter", Saved::Adapter, folder.as_path()));
        weights.chain(adapter)
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let trained = self.trained().map(|(key, _, folder)| (key, folder));
        trained.chain(self.state.iter().map(|(folder, _)| ("save.state", folder.as_path())))
    }
}

/// The name of a folder with the cell's values in it. `key`: the key that it is of.
///
/// # Errors
/// A `{key}` that the cell does not have, or an empty name.
pub(super) fn filled(cell: &Cell, key: &'static str, name: &str) -> Result<PathBuf, Rule> {
    let settings = cell.settings();
    let mut parts = name.split('{');
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let value =
            part.split_once('}').and_then(|(setting, rest)| Some((keys::value(setting, &settings)?, rest)));
        let Some((value, rest)) = value else {
            return Err(Rule::new(
                &[key],
                format!("\"{{{part}\" in \"{name}\" is no key that this cell has, in braces"),
                "write a dotted key such as {seed} or {offload.strategy}",
            ));
        };
        // A path among the values does not make folders within folders.
        let value = value.as_str().map_or_else(|| value.to_string(), String::from).replace('/', "-");
        text += &value;
        text += rest;
    }
    // Joined with a file's name it would be the current directory.
    Rule::refuse_if(
        text.is_empty(),
        &[key],
        format!("{key} is empty"),
        format!("name a folder, or remove {key}"),
    )?;
    Ok(PathBuf::from(text))
}

/// Where a folder is, or will be: one place for all the ways to write it.
fn place(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.into());
    let real = |there: &Path| Some(fs::canonicalize(there).ok()?.join(absolute.strip_prefix(there).ok()?));
    absolute.ancestors().find_map(real).unwrap_or_else(|| absolute.clone())
}

/// Refuses one folder for two things, and one that a cell reads. `swept`: the keys in which cells differ.
pub(super) fn check_apart(cells: &[Cell], swept: &[String]) -> Result<(), Rule> {
    if cells.iter().all(|cell| cell.save.is_none()) {
        return Ok(());
    }
    let what = |key: &'static str| key.trim_start_matches("save.");
    let weights = cells.iter().filter_map(|cell| Some(("model.weights", cell.model.weights_folder()?)));
    let adapters = cells.iter().filter_map(|cell| Some(("tuning.adapter", cell.tuning.folder()?)));
    let read: HashMap<&Path, &str> = weights.chain(adapters).map(|(key, folder)| (folder, key)).collect();
    let read: HashMap<PathBuf, &str> = read.into_iter().map(|(folder, key)| (place(folder), key)).collect();
    let mut taken: HashMap<PathBuf, (&'static str, usize)> = HashMap::new();
    for (i, cell) in cells.iter().enumerate() {
        for (key, folder) in Folders::of(cell)?.all() {
            let (at, folder) = (place(folder), folder.display());
            if let Some(reads) = read.get(&at) {
                return Err(Rule::new(
                    &[key],
                    format!("{key} would write over \"{folder}\", which {reads} reads"),
                    format!("name another folder in {key}"),
                ));
            }
            let Some((first, other)) = taken.get(&at) else {
                taken.insert(at, (key, i));
                continue;
            };
            Rule::refuse_if(
                *other == i,
                &[key],
                format!("\"{folder}\" is to hold the {} and the {}", what(first), what(key)),
                "name another folder for one of them",
            )?;
            let braces: Vec<String> = swept.iter().map(|key| format!("{{{key}}}")).collect();
            return Err(Rule::new(
                &[key],
                format!("cells {} and {} would both write to \"{folder}\"", other + 1, i + 1),
                format!("let the name hold the values that differ: \"{folder}/{}\"", braces.join("-")),
            ));
        }
    }
    let within = |at: &PathBuf| at.ancestors().skip(1).any(|parent| taken.contains_key(parent));
    match taken.iter().find(|(at, _)| within(at)) {
        None => Ok(()),
        Some((at, (key, _))) => Err(Rule::new(
            &[key],
            format!("{} lies in another folder of [save], which is written as a whole", at.display()),
            "name folders side by side",
        )),
    }
}

#[cfg(test)]
#[path = "save_tests.rs"]
mod tests;
