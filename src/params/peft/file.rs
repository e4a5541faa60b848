//! [`AdapterFile`]: the tensors of an adapter's folder: what it adds to a model, and parameters of the model itself that it
//! has other values of, such as an embedding that was trained with it (PEFT's `modules_to_save` and `save_embedding_layers`).

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use safetensors::tensor::TensorView;

use super::virtual_tokens::{self, Part};
use super::{Config, MOST, TENSORS, WRAPPED, adapters, plain_name, wrapped};
use crate::params::table::{Entry, Table};
use crate::params::tuning::MAGNITUDE;
use crate::params::weights::{HEAD, TensorFile, float, is_embedding, shortened};

/// The tensors of a folder.
#[derive(Debug)]
pub struct AdapterFile {
    file: TensorFile,
    /// Of virtual tokens, by name.
    parts: HashMap<String, Part>,
    /// The model's own parameters that the file has, with their names there.
    replaced: BTreeMap<String, String>,
}

/// What the folder's `adapter_config.json` says of modules of the model that were trained with the adapter.
struct Modules {
    names: Vec<String>,
    /// Whether a head and an embedding that are one parameter stay one.
    stay_tied: bool,
}

impl Modules {
    fn of(folder: &Path, expected: &Table) -> Self {
        let config = Config::read(folder).ok();
        let get = |key: &str| config.as_ref().map(|config| config.get(key).clone()).unwrap_or_default();
        let stay_tied = get("ensure_weight_tying") == true;
        let is_tied = !expected.entries.iter().any(|entry| entry.name == HEAD);
        let names = get("modules_to_save").as_array().cloned().unwrap_or_default();
        let names = names.iter().filter_map(|name| name.as_str().map(String::from));
        // Of two that are one, one is saved.
        let is_saved = |name: &String| !(is_tied && stay_tied && HEAD.starts_with(name.as_str()));
        Self { names: names.filter(is_saved).collect(), stay_tied }
    }

    /// Whether a module of this name has one of these parameters: PEFT takes the end of its path.
    fn is_of<T: AsRef<str>>(&self, module: &str, parameters: &[T]) -> bool {
        parameters.iter().any(|parameter| {
            let path = plain_name(parameter.as_ref());
            path.match_indices('.').any(|(end, _)| path[..end].ends_with(module))
        })
    }

    /// Whether one of these parameters is of the modules.
    fn have(&self, parameters: &[&str]) -> bool {
        self.names.iter().any(|module| self.is_of(module, parameters))
    }
}

/// What does not fit, in a line each, by its cause.
#[derive(Default)]
struct Problems {
    missing: Vec<String>,
    unexpected: Vec<String>,
    /// Of another rank alone.
    ranks: Vec<String>,
    others: Vec<String>,
}

impl AdapterFile {
    /// # Errors
    /// A missing or damaged file, and every tensor that is neither one of the adapter parameters in `expected` nor one of the
    /// model's own.
    pub fn open(folder: &Path, expected: &Table) -> Result<Self, String> {
        let file = TensorFile::open(&folder.join(TENSORS));
        let file = file.map_err(|e| format!("{e}; name a folder that PEFT's save_pretrained has written"))?;
        let mut problems = Problems::default();
        let parts = virtual_tokens::parts(&file, expected).unwrap_or_else(|problem| {
            problems.others.push(problem);
            Some(HashMap::new())
        });
        let (of_virtual_tokens, parts) = (parts.is_some(), parts.unwrap_or_default());
        let replaced = replaced(&file, expected);
        let file = Self { file, parts, replaced };
        if problems.others.is_empty() {
            adapters(expected).for_each(|entry| file.compare(entry, &mut problems));
        }
        let own = expected.entries.iter().filter(|entry| file.replaced.contains_key(&entry.name));
        own.for_each(|entry| file.compare(entry, &mut problems));
        let modules = Modules::of(folder, expected);
        file.tied(&modules, &mut problems);
        let is_known = |name: &String| {
            let is_added = adapters(expected).any(|entry| entry.name == plain_name(name));
            let is_vectors = of_virtual_tokens && name == virtual_tokens::VECTORS;
            is_added || is_vectors || file.is_own(name)
        };
        let unexpected = file.file.names().into_iter().filter(|name| !is_known(name));
        problems.unexpected.extend(unexpected.map(|name| format!("  unexpected: {name}")));
        problems.others.extend(file.without_tensors(&modules));
        problems.result(folder).map(|()| file)
    }

    fn compare(&self, Entry { name, shape, .. }: &Entry, problems: &mut Problems) {
        let Some(tensor) = self.get(name) else {
            return problems.missing.push(format!("  missing: {name} {shape:?}"));
        };
        let found = tensor.shape();
        // PEFT's magnitude is a vector.
        if found == shape || (name.ends_with(MAGNITUDE) && found == &shape[1..]) {
            if float(tensor.dtype()).is_none() {
                problems.others.push(format!("  wrong dtype: {name} is {:?}", tensor.dtype()));
            }
            return;
        }
        let line = format!("  wrong shape: {name} is {found:?}, expected {shape:?}");
        let axis = if name.contains("lora_A") { 1 } else { 0 };
        let of_rank = name.contains(".lora_") && found.len() == 2 && found[axis] == shape[axis];
        if of_rank {
            problems.ranks.push(line);
        } else if is_embedding(name) || name == HEAD {
            let rows = found.first().copied().unwrap_or_default();
            problems.others.push(format!(
                "{line}: it was trained on a model with {rows} tokens; enlarge the model first, \
                 model.resize_token_embeddings({rows}), and save it"
            ));
        } else {
            problems.others.push(line);
        }
    }

    /// A model whose head is its embedding has one of both, and PEFT's copy of a module is of that module alone.
    fn tied(&self, modules: &Modules, problems: &mut Problems) {
        let embedding = self.replaced.keys().find(|name| is_embedding(name));
        let Some(embedding) = embedding.filter(|_| !self.replaced.contains_key(HEAD)) else { return };
        let contents = |name: &str| self.file.tensor(&format!("{WRAPPED}{name}"));
        match (contents(HEAD), contents(embedding)) {
            (Some(head), Some(own)) if (head.dtype(), head.data()) != (own.dtype(), own.data()) => {
                problems.others.push(format!(
                    "  {HEAD} is not equal to {embedding}, but the model ties the two (tie_word_embeddings)"
                ));
            }
            (None, _) | (_, None) if !modules.stay_tied && modules.have(&[embedding.as_str(), HEAD]) => {
                problems.others.push(format!(
                    "  modules_to_save has only one of {embedding} and {HEAD}, which the model ties (tie_word_embeddings): with \
                     PEFT the other stays as it was; train with ensure_weight_tying"
                ));
            }
            _ => {}
        }
    }

    /// Whether a tensor is one of the model's own; the head of a model that ties it is its embedding.
    fn is_own(&self, stored: &str) -> bool {
        let of_head =
            stored == format!("{WRAPPED}{HEAD}") && self.replaced.keys().any(|name| is_embedding(name));
        of_head || self.replaced.values().any(|own| own == stored)
    }

    /// The modules that `modules_to_save` says are in the file and that are not.
    fn without_tensors(&self, modules: &Modules) -> Option<String> {
        let has = |module: &&String| modules.is_of(module, &self.file.names());
        let lost: Vec<&str> = modules.names.iter().filter(|name| !has(name)).map(String::as_str).collect();
        (!lost.is_empty()).then(|| format!("  missing: the weights of {} (modules_to_save)", lost.join(", ")))
    }

    /// A parameter by its name in the model.
    pub fn get(&self, name: &str) -> Option<TensorView<'_>> {
        match (self.parts.get(name), self.replaced.get(name)) {
            (Some(part), _) => Some(part.view()),
            (None, Some(stored)) => self.file.tensor(stored),
            (None, None) => self.file.tensor(&format!("{WRAPPED}{name}")),
        }
    }

    /// The model's own parameters that a folder's file has.
    ///
    /// # Errors
    /// A missing or damaged file.
    pub fn own<'t>(folder: &Path, table: &'t Table) -> Result<Vec<&'t Entry>, String> {
        let replaced = replaced(&TensorFile::open(&folder.join(TENSORS))?, table);
        Ok(table.entries.iter().filter(|entry| replaced.contains_key(&entry.name)).collect())
    }
}

/// The parameters of the model itself that a file has, each with its name there.
fn replaced(file: &TensorFile, expected: &Table) -> BTreeMap<String, String> {
    let is_tied = !expected.entries.iter().any(|entry| entry.name == HEAD);
    let own = expected.entries.iter().filter(|entry| !entry.group.is_added());
    let stored = |entry: &Entry| {
        let there =
            |name: &str, adapted| Some(wrapped(name, adapted)).filter(|name| file.tensor(name).is_some());
        let of_head = || if is_tied && is_embedding(&entry.name) { there(HEAD, false) } else { None };
        let stored = there(&entry.name, false).or_else(|| there(&entry.name, true)).or_else(of_head)?;
        Some((entry.name.clone(), stored))
    };
    own.filter_map(stored).collect()
}

impl Problems {
    fn result(self, folder: &Path) -> Result<(), String> {
        let Self { missing, unexpected, ranks, others } = self;
        let folder = folder.display();
        let (what, help) = match (
            missing.is_empty(),
            unexpected.is_empty(),
            ranks.is_empty(),
            others.is_empty(),
        ) {
            (true, true, true, true) => return Ok(()),
            (true, true, false, true) => (
                "is of another rank than its adapter_config.json says",
                "correct r there, or take the adapter_config.json that belongs to it",
            ),
            (false, true, true, true) => (
                "has only some of the layers that its target_modules name",
                "an adapter of some of the layers with one name (a path in its target_modules) cannot be read",
            ),
            _ => ("does not fit the model", "name the model that it was trained with"),
        };
        let all = [missing, unexpected, ranks, others].concat();
        Err(format!("the adapter in {folder} {what}:\n{}\n{help}", shortened(&all, MOST)))
    }
}
