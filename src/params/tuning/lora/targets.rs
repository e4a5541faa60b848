//! Which layers have an adapter, and of which rank: what `target_modules`, `layers_to_transform`, `rank_pattern` and
//! `alpha_pattern` say, as PEFT reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokenizers::utils::SysRegex;

use super::{Biases, Lora, listed};
use crate::params::table::{Group, Table};
use crate::params::tuning::{Adapters, Method, Own};
use crate::params::weights::{HEAD, is_embedding};

/// PEFT's word for every linear layer.
const ALL: &str = "all-linear";

/// What only a regular expression has.
const OF_EXPRESSIONS: [char; 13] = ['\\', '*', '+', '?', '|', '(', ')', '[', ']', '{', '}', '^', '$'];

/// What `target_modules` names.
pub enum Targets<'l> {
    All,
    /// Ends of paths.
    Ends(Vec<&'l str>),
    /// A regular expression of whole paths.
    Whole(SysRegex),
}

impl Targets<'_> {
    /// Whether the layer of this path, or of this name alone, is one of them.
    pub fn has(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Ends(ends) => ends.iter().any(|end| has_end(path, end)),
            Self::Whole(expression) => is_found(expression, path),
        }
    }
}

fn has_end(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn is_found(expression: &SysRegex, text: &str) -> bool {
    expression.find_iter(text).next().is_some()
}

fn expression(text: &str) -> Result<SysRegex, String> {
    SysRegex::new(text).map_err(|e| e.to_string())
}

/// A value of some layers.
pub struct Pattern<'l> {
    pub text: &'l str,
    end: SysRegex,
    pub value: f64,
}

impl Pattern<'_> {
    pub fn fits(&self, path: &str) -> bool {
        is_found(&self.end, path)
    }
}

/// The patterns of a text such as "q_proj = 4, layers.0.*v_proj = 16".
///
/// # Errors
/// What cannot be read of it.
pub fn patterns(text: &str) -> Result<Vec<Pattern<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.trim().is_empty() {
        // An expression may have commas: a pattern ends with the first number between = and a comma.
        let ends = rest.match_indices(',').map(|(end, _)| end).chain([rest.len()]);
        let read = |end: usize| {
            let (text, value) = rest[..end].rsplit_once('=')?;
            Some((text.trim(), value.trim().parse::<f64>().ok()?, end))
        };
        let first = ends.into_iter().find_map(read);
        let (text, value, end) = first.ok_or_else(|| format!("{} is no pattern = number", rest.trim()))?;
        let end_of_path =
            expression(&format!("^(?:.*\\.)?(?:{text})$")).map_err(|e| format!("{text}: {e}"))?;
        found.push(Pattern { text, end: end_of_path, value });
        rest = rest[end..].trim_start_matches(',');
    }
    Ok(found)
}

/// A linear layer of a block.
pub struct Place {
    pub block: usize,
    pub path: String,
}

impl Place {
    /// All of a model.
    pub fn of_all(own: &Table) -> Vec<Self> {
        let place = |(name, group, dims): (&String, Group, usize)| match (name.strip_suffix(".weight"), group)
        {
            (Some(path), Group::Block(block)) if dims == 2 => Some(Self { block, path: path.into() }),
            _ => None,
        };
        own.entries
            .iter()
            .map(|entry| (&entry.name, entry.group, entry.shape.len()))
            .filter_map(place)
            .collect()
    }

    pub fn layer(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }
}

impl Lora {
    /// What `target_modules` names.
    ///
    /// # Errors
    /// Why it is no regular expression.
    pub fn targets(&self) -> Result<Targets<'_>, String> {
        let text = self.target_modules.trim();
        match () {
            () if text.eq_ignore_ascii_case(ALL) => Ok(Targets::All),
            () if text.contains(OF_EXPRESSIONS) => expression(&format!("^(?:{text})$")).map(Targets::Whole),
            () => Ok(Targets::Ends(listed(text).collect())),
        }
    }

    /// The numbers in `layers_to_transform`.
    ///
    /// # Errors
    /// What is no number.
    pub fn blocks(&self) -> Result<Option<Vec<usize>>, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("{text} is no number of a block"));
        self.layers_to_transform.as_deref().map(|text| listed(text).map(number).collect()).transpose()
    }

    /// Whether all layers of a name have the same adapter, or none.
    pub(super) fn is_alike(&self) -> bool {
        let by_name = match self.targets() {
            Ok(Targets::Ends(ends)) => ends.iter().all(|end| !end.contains('.')),
            targets => matches!(targets, Ok(Targets::All)),
        };
        by_name
            && self.layers_to_transform.is_none()
            && self.rank_pattern.is_none()
            && self.alpha_pattern.is_none()
    }

    /// The settings of each adapted layer of a model, with its own rank and alpha; none where a key cannot be read.
    pub fn placed(&self, own: &Table) -> Vec<(Place, Self)> {
        let read = |text: &'_ Option<String>| text.clone().unwrap_or_default();
        let texts = [read(&self.rank_pattern), read(&self.alpha_pattern)];
        let [ranks, alphas] = texts.each_ref().map(|text| patterns(text).unwrap_or_default());
        let value = |all: &[Pattern<'_>], path: &str| {
            all.iter().find(|pattern| pattern.fits(path)).map(|pattern| pattern.value)
        };
        let (Ok(targets), Ok(blocks)) = (self.targets(), self.blocks()) else { return Vec::new() };
        let is_adapted = |place: &Place| {
            targets.has(&place.path) && blocks.as_ref().is_none_or(|blocks| blocks.contains(&place.block))
        };
        let settings = |place: Place| {
            let settings = Self {
                rank: value(&ranks, &place.path).map_or(self.rank, |rank| rank as usize),
                alpha: value(&alphas, &place.path).unwrap_or(self.alpha),
                ..self.clone()
            };
            (place, settings)
        };
        Place::of_all(own).into_iter().filter(is_adapted).map(settings).collect()
    }

    pub(super) fn by_layer(&self, own: Own<'_>) -> Adapters {
        if self.is_alike() {
            return Adapters::Alike(Arc::new(self.clone()));
        }
        let mut blocks: Vec<BTreeMap<String, Arc<dyn Method>>> = Vec::new();
        for (place, settings) in self.placed(&own()) {
            let count = blocks.len().max(place.block + 1);
            blocks.resize_with(count, BTreeMap::new);
            blocks[place.block].insert(place.layer().to_string(), Arc::new(settings));
        }
        Adapters::ByLayer(blocks)
    }

    /// The names of the model's own parameters that `bias = "lora_only"` and `modules_to_save` train.
    pub(super) fn saved_of(&self, own: Own<'_>) -> BTreeSet<String> {
        if self.bias != Biases::LoraOnly && self.modules_to_save.is_none() {
            return BTreeSet::new();
        }
        let own = own();
        let mut biases = BTreeSet::new();
        if self.bias == Biases::LoraOnly {
            biases.extend(self.placed(&own).into_iter().map(|(place, _)| format!("{}.bias", place.path)));
        }
        let of_modules = |name: &str| self.modules().any(|module| is_of_module(&own, name, module));
        let names = own.entries.iter().map(|entry| &entry.name);
        names.filter(|name| biases.contains(*name) || of_modules(name)).cloned().collect()
    }
}

/// Whether a parameter is one of the modules whose paths end so. A head that is the embedding is its module.
pub(super) fn is_of_module(own: &Table, name: &str, module: &str) -> bool {
    let ends = |name: &str| name.rsplit_once('.').is_some_and(|(path, _)| path.ends_with(module));
    let is_tied = !own.entries.iter().any(|entry| entry.name == HEAD);
    ends(name) || (is_tied && is_embedding(name) && ends(HEAD))
}
