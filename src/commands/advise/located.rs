//! [`Located`]: the recipe that runs a plan.

use std::path::PathBuf;

use miette::{Result, miette};
use serde_json::Value;

use super::question::Question;
use super::written;
use crate::advise::Limits;
use crate::common::Bytes;
use crate::common::text::argument;
use crate::recipe::{Cell, Recipe, Setting, Source, without_nulls};

/// A recipe with a plan within limits as one of its cells.
pub struct Located {
    pub recipe: Recipe,
    /// The plan's position among the cells.
    pub position: usize,
    /// Settings of the recipe that was asked about; `None`: the recipe is one of its own, since a model was asked about, or the
    /// settings would make other cells of that one invalid.
    settings: Option<Vec<(String, String)>>,
}

impl Located {
    /// # Errors
    /// When the recipe has changed meanwhile.
    pub fn new(question: &Question, plan: &Cell, limits: Limits) -> Result<Self> {
        let (cell, target) = (question.cell(), &question.target);
        let mut changed = changed(cell, plan);
        changed.push(("measure.memory_limit".into(), limits.memory.to_string()));
        let host = limits.host_memory.map(|bytes| ("measure.host_memory_limit".into(), bytes.to_string()));
        changed.extend(host);
        let mut wanted = plan.clone();
        wanted.measure.memory_limit = Some(Bytes(limits.memory));
        wanted.measure.host_memory_limit = limits.host_memory.map(Bytes);
        let wanted = saving(question, &wanted);
        let written = changed.iter().map(|(key, value)| format!("{key}={value}").parse().expect("a setting"));
        let all: Vec<Setting> = question.settings.iter().cloned().chain(written).collect();
        let json = wanted.to_json();
        let place = |recipe: &Recipe| recipe.cells.iter().position(|cell| cell.to_json() == json);
        let set =
            question.named.is_none().then(|| Recipe::parse_for(&question.source.clone().with(&all), target));
        if let Some(Ok(recipe)) = set
            && let Some(position) = place(&recipe)
        {
            return Ok(Self { recipe, position, settings: Some(changed) });
        }
        let text = written_for(question, &wanted, true);
        let recipe = Recipe::parse_for(&Source { path: path(question), text }, target)?;
        let position = place(&recipe)
            .ok_or_else(|| miette!(help = "run it again", "the recipe has changed meanwhile"))?;
        Ok(Self { recipe, position, settings: None })
    }

    /// The command that runs the plan; `None` where the recipe is one of its own.
    pub fn command(&self, question: &Question) -> Option<String> {
        let changed = self.settings.as_ref()?;
        let own = question.settings.iter().map(ToString::to_string);
        let settings = own.chain(changed.iter().map(|(key, value)| format!("{key}={value}")));
        let mut command = format!("runner run {}", argument(question.source.path.display()));
        settings.for_each(|setting| command += &format!(" --set {}", argument(setting)));
        if self.recipe.cells.len() > 1 {
            command += &format!(" --cell {}", self.position + 1);
        }
        Some(command)
    }
}

/// The text of the recipe of a plan. `checked`: with what a check needs where weights are not here.
pub fn written_for(question: &Question, plan: &Cell, checked: bool) -> String {
    let title = match (&question.named, question.target.card()) {
        (Some(named), Some((card, _))) => format!("{} on the {}", named.name, card.name),
        (Some(named), None) => named.name.clone(),
        (None, _) => format!("{}, as advised", question.recipe.title),
    };
    let plan = saving(question, plan);
    written::recipe(&plan, &title, question.named.as_ref().map(|named| (named, checked)))
}

/// The plan, which saves what it has learned if a model was asked about that learns from data.
fn saving(question: &Question, plan: &Cell) -> Cell {
    let Some(named) = question.named.as_ref().filter(|_| !plan.data.is_random() && plan.save.is_none())
    else {
        return plan.clone();
    };
    let what = if plan.tuning.is_full() { "weights" } else { "adapter" };
    let mut json = plan.to_json();
    json["save"] = serde_json::json!({ what: format!("out/{}", named.name) });
    Cell::from_json(&json).map_or_else(|_| plan.clone(), |cell| Cell { capability: plan.capability, ..cell })
}

/// Where the recipe of a plan is written if nobody says.
pub fn path(question: &Question) -> PathBuf {
    let name = question.source.path.file_stem().unwrap_or_default().to_string_lossy();
    question.source.path.with_file_name(format!("{name}_advised.toml"))
}

/// The settings that turn the recipe's cell into the plan, in TOML.
fn changed(base: &Cell, plan: &Cell) -> Vec<(String, String)> {
    const LAUNCHED: Value = Value::Bool(false);
    const KEYS: [&str; 10] = [
        "precision",
        "tuning",
        "checkpoint.level",
        "checkpoint.blocks",
        "train.batch_size",
        "train.accumulation_steps",
        "train.optimizer",
        "train.graph",
        "offload",
        // A graph is recorded in the second step.
        "measure.warmup",
    ];
    let [base, plan] = [base, plan].map(|cell| without_nulls(&cell.to_json()));
    let changed = |key: &str| {
        let place = format!("/{}", key.replace('.', "/"));
        // A cell by launches has no such key.
        let launched = (key == "train.graph").then_some(&LAUNCHED);
        let [base, value] = [&base, &plan].map(|cell| cell.pointer(&place).or(launched));
        let value = value.filter(|_| value != base)?;
        Some((key.to_string(), toml::Value::try_from(value).expect("JSON without null").to_string()))
    };
    KEYS.into_iter().filter_map(changed).collect()
}
