//! [`Located`]: the recipe that runs a plan.

use miette::{Result, miette};
use serde_json::Value;

use super::AdviseArgs;
use crate::advise::Limits;
use crate::common::Bytes;
use crate::common::text::argument;
use crate::recipe::{Cell, Recipe, Setting, Source, without_nulls};

/// A recipe with a plan within limits as one of its cells.
pub struct Located {
    pub recipe: Recipe,
    /// The plan's position among the cells.
    pub position: usize,
    how: How,
}

/// How the recipe is made.
enum How {
    /// Settings of the recipe that was asked about.
    Set(Vec<(String, String)>),
    /// A recipe of its own, where the settings would make other cells of that one invalid.
    Written(String),
}

impl Located {
    /// # Errors
    /// When the recipe has changed meanwhile.
    pub fn of(args: &AdviseArgs, base: &Cell, plan: &Cell, limits: Limits) -> Result<Self> {
        let target = args.checked.target.clone().unwrap_or_default();
        let mut changed = settings(base, plan);
        changed.push(("measure.memory_limit".into(), limits.memory.to_string()));
        let host = limits.host_memory.map(|bytes| ("measure.host_memory_limit".into(), bytes.to_string()));
        changed.extend(host);
        let mut wanted = plan.clone();
        wanted.measure.memory_limit = Some(Bytes(limits.memory));
        wanted.measure.host_memory_limit = limits.host_memory.map(Bytes);
        let written = changed.iter().map(|(key, value)| format!("{key}={value}").parse().expect("a setting"));
        let all: Vec<Setting> = args.checked.settings.set.iter().cloned().chain(written).collect();
        let wanted_json = wanted.to_json();
        let place = |recipe: &Recipe| recipe.cells.iter().position(|cell| cell.to_json() == wanted_json);
        if let Ok(recipe) = Recipe::load(&args.recipe, &all, &target)
            && let Some(position) = place(&recipe)
        {
            return Ok(Self { recipe, position, how: How::Set(changed) });
        }
        let name = args.recipe.file_stem().unwrap_or_default().to_string_lossy();
        let text = text_of(&wanted, &format!("{name}, as advised"));
        let path = args.recipe.with_file_name(format!("{name}_advised.toml"));
        let recipe = Recipe::parse_for(&Source { path, text: text.clone() }, &target)?;
        let position = place(&recipe)
            .ok_or_else(|| miette!(help = "run it again", "the recipe has changed meanwhile"))?;
        Ok(Self { recipe, position, how: How::Written(text) })
    }

    /// The command that runs the plan, with the text of its recipe where that is a new one.
    pub fn command(&self, args: &AdviseArgs) -> String {
        let changed = match &self.how {
            How::Set(changed) => changed,
            How::Written(text) => {
                let file = self.recipe.path.file_name().unwrap_or_default().to_string_lossy();
                return format!("runner run {}, a file with this text:\n\n{text}", argument(file));
            }
        };
        let own = args.checked.settings.set.iter().map(ToString::to_string);
        let settings = own.chain(changed.iter().map(|(key, value)| format!("{key}={value}")));
        let mut command = format!("runner run {}", argument(args.recipe.display()));
        settings.for_each(|setting| command += &format!(" --set {}", argument(setting)));
        if self.recipe.cells.len() > 1 {
            command += &format!(" --cell {}", self.position + 1);
        }
        command
    }
}

/// A recipe of one cell.
fn text_of(cell: &Cell, title: &str) -> String {
    let mut table = toml::Table::from_iter([("title".to_string(), title.into())]);
    table.extend(toml::Table::try_from(cell.written()).expect("a cell is a table"));
    toml::to_string(&table).expect("a cell is written as a recipe has it")
}

/// The settings that turn the recipe's cell into the plan, in TOML.
fn settings(base: &Cell, plan: &Cell) -> Vec<(String, String)> {
    const LAUNCHED: Value = Value::Bool(false);
    const KEYS: [&str; 8] = [
        "precision",
        "checkpoint.level",
        "checkpoint.blocks",
        "train.batch_size",
        "train.accumulation_steps",
        "train.optimizer",
        "train.graph",
        "offload",
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
