//! `[report]`: what the report compares with what.

use std::collections::BTreeMap;
use std::ops::Range;

use itertools::Itertools;
use serde::Deserialize;
use serde_json::Value;

use super::diagnostic::{RecipeError, Source};
use super::{Cell, keys};
use crate::keys::{Settings, nearest};

/// `[report]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportConfig {
    /// Settings that mark the method every other one is compared with, at equal sizes: of several such cells the one with
    /// the most equal settings. A size among them is compared across. Empty: the first cell of each size,
    /// and none where all cells have memory limits that differ.
    pub baseline: BTreeMap<String, Value>,
    /// Results published elsewhere, shown next to ours.
    pub published: Vec<Published>,
    /// Who published them and on what, for the table's caption.
    pub published_source: String,
    /// Of a recipe whose cells each improve on the one before: what each of them is, in their order.
    /// `[[ladder]]` gives both, the cells and this.
    pub ladder: Vec<Stage>,
}

/// What the report says of one rung of a ladder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Its name in tables and charts.
    #[serde(alias = "stage")]
    pub name: String,
    /// What the stage before it wasted, and why that costs.
    #[serde(default)]
    pub why: String,
}

/// One published result: the settings it belongs to and what was reported.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    pub cell: BTreeMap<String, Value>,
    /// Seconds.
    pub forward: Option<f64>,
    /// Seconds.
    pub backward: Option<f64>,
    /// Peak memory in GB, as published.
    pub memory: Option<f64>,
}

impl ReportConfig {
    /// The baseline without keys that all cells have been given.
    pub(super) fn leave_out(&mut self, given: impl Fn(&str) -> bool) {
        self.baseline.retain(|key, _| !given(key));
    }

    /// Each published result must be of one of these cells.
    pub(super) fn check_published<'c>(
        &self,
        cells: impl IntoIterator<Item = &'c Cell>,
        source: &Source,
    ) -> Result<(), RecipeError> {
        if self.published.is_empty() {
            return Ok(());
        }
        let cells: Vec<Settings> = cells.into_iter().map(Cell::settings).collect();
        let of_none = |of: &&Published| !cells.iter().any(|cell| matches(cell, &of.cell));
        let Some(of_none) = self.published.iter().find(of_none) else { return Ok(()) };
        let names = of_none.cell.iter().map(|(key, value)| format!("{key} = {value}")).join(", ");
        Err(source.at(
            source.find("report.published"),
            format!("a result of `report.published` is of {names}, which no cell has"),
            "use values that the grid has".into(),
        ))
    }

    /// Every key must be one that cells have, and the baseline must select at least one cell.
    pub(super) fn check(&self, settings: &[Settings], source: &Source) -> Result<(), RecipeError> {
        let texts = self.ladder.iter().flat_map(|stage| [("name", &stage.name), ("why", &stage.why)]);
        for (key, text) in texts.chain([("published_source", &self.published_source)]) {
            source.require_seen(key, text)?;
        }
        self.check_ladder(settings.len(), source)?;
        self.check_selections(settings, source)?;
        self.check_numbers(source)
    }

    /// Each cell has a rung with a name of its own, or none has one.
    fn check_ladder(&self, cells: usize, source: &Source) -> Result<(), RecipeError> {
        let span = |words: &str| source.find(words);
        if !self.ladder.is_empty() && self.ladder.len() != cells {
            return Err(source.at(
                span("report.ladder"),
                format!("`report.ladder` has {} stages, and the grid {cells} cells", self.ladder.len()),
                "write one [[report.ladder]] with `name` and `why` for each cell, in their order; if --set makes cells \
                 equal, leave them out: --set 'report={}'"
                    .into(),
            ));
        }
        for stage in &self.ladder {
            require_name(&stage.name, span("name").or_else(|| span("stage")), source)?;
        }
        if !self.ladder.iter().map(|stage| stage.name.trim()).all_unique() {
            return Err(source.at(
                span("name").or_else(|| span("stage")),
                "two rungs of the ladder have the same name".into(),
                "give each rung a `name` of its own".into(),
            ));
        }
        Ok(())
    }

    /// Keys of selections are keys of cells.
    fn check_selections(&self, settings: &[Settings], source: &Source) -> Result<(), RecipeError> {
        let span = |words: &str| source.find(words);
        let known: Vec<&str> = settings[0].keys().map(String::as_str).collect();
        let selections = std::iter::once(("report.baseline", &self.baseline))
            .chain(self.published.iter().map(|p| ("report.published", &p.cell)));
        for (what, selection) in selections {
            for key in selection.keys() {
                if !settings.iter().any(|s| s.contains_key(key)) {
                    let help = match nearest(key, &known) {
                        Some(best) => format!("did you mean `{best}`?"),
                        None => format!("keys of a cell: {}", known.join(", ")),
                    };
                    return Err(source.at(
                        span(&format!("\"{key}\"")),
                        format!("`{what}` names `{key}`, which no cell has"),
                        help,
                    ));
                }
            }
            if what == "report.baseline" && !settings.iter().any(|s| matches(s, selection)) {
                return Err(source.at(
                    span("baseline"),
                    "`report.baseline` matches no cell of the grid".into(),
                    "use values that the grid has; for a grid of [on_cpu], write [on_cpu.report]".into(),
                ));
            }
        }
        Ok(())
    }

    /// Each published result has a number, and numbers have results.
    fn check_numbers(&self, source: &Source) -> Result<(), RecipeError> {
        let span = |words: &str| source.find(words);
        if self.published.is_empty() && !self.published_source.is_empty() {
            return Err(source.at(
                span("published_source"),
                "`published_source` has no effect without `published`".into(),
                "add the results with [[report.published]], or remove the key".into(),
            ));
        }
        for published in &self.published {
            let numbers = [
                ("forward", published.forward),
                ("backward", published.backward),
                ("memory", published.memory),
            ];
            if numbers.iter().all(|(_, number)| number.is_none()) {
                return Err(source.at(
                    span("published"),
                    "a result of `report.published` has no number".into(),
                    "give it `forward`, `backward` or `memory`, or remove it".into(),
                ));
            }
            let wrong = |(_, number): &(_, Option<f64>)| number.is_some_and(|n| !(n > 0.0 && n.is_finite()));
            if let Some((key, Some(number))) = numbers.into_iter().find(wrong) {
                return Err(source.at(
                    span("report.published"),
                    format!("`{key}` of `report.published` is {number}"),
                    "write a number above 0: seconds, or GB of memory".into(),
                ));
            }
        }
        Ok(())
    }
}

/// A name of cells is text of one line.
pub(super) fn require_name(
    name: &str,
    span: Option<Range<usize>>,
    source: &Source,
) -> Result<(), RecipeError> {
    if !name.trim().is_empty() && !name.chars().any(char::is_control) {
        return source.require_seen("name", name);
    }
    Err(source.at(
        span,
        "a `name` of cells is no text, empty, or has a line break or another control character".into(),
        "write text of one line, such as name = \"recompute blocks\"".into(),
    ))
}

/// Whether `settings` has every key and value of `selection`.
pub fn matches(settings: &Settings, selection: &BTreeMap<String, Value>) -> bool {
    selection.iter().all(|(key, want)| keys::value(key, settings).is_some_and(|have| keys::same(&have, want)))
}
