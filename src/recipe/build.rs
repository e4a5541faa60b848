//! From a recipe's table to a [`Recipe`]: its grid expanded, every cell read and checked, and what tells them apart.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use itertools::Itertools;
use rayon::prelude::*;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use super::diagnostic::{RecipeError, Source};
use super::grid::{self, Layer, Variant};
use super::report::{ReportConfig, Stage};
use super::{CPU, Cell, GRID, LADDER, Recipe, keys, ladder, overlay, read, save};
use crate::data::Found;
use crate::device::Target;
use crate::keys::{Settings, settings};

/// The keys of a recipe that do not belong to a cell.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    title: String,
    #[serde(default)]
    question: String,
    #[serde(default)]
    report: ReportConfig,
}

const HEADER_KEYS: [&str; 3] = ["title", "question", "report"];

impl Header {
    /// `title`: where the recipe has it.
    fn read(table: DeTable<'_>, title: Option<Range<usize>>, source: &Source) -> Result<Self, RecipeError> {
        let start = 0..source.text.len().min(1);
        let header = Self::deserialize(Deserializer::from(Spanned::new(start, table)))
            .map_err(|e| source.toml_error(&e, &[]))?;
        for (key, text) in [("title", &header.title), ("question", &header.question)] {
            source.require_seen(key, text)?;
        }
        if header.title.trim().is_empty() {
            let help = "say what the report is called, such as title = \"What does recomputation cost?\"";
            return Err(source.at(title, "`title` is empty".into(), help.into()));
        }
        Ok(header)
    }
}

impl Recipe {
    /// `set`: what every cell takes, whatever the grid says.
    pub(super) fn built(
        mut root: Spanned<DeTable<'_>>,
        set: &[Layer<'_>],
        source: &Source,
        target: Option<&Target>,
    ) -> Result<Self, RecipeError> {
        let table = root.get_mut();
        if table.is_empty() {
            return Err(source.plain(
                "the recipe is empty",
                "a recipe needs at least a title, [model] and [train]; recipes/quickstart.toml is a good start",
            ));
        }
        let title = table.get("title").map(|title| title.span());
        let header = HEADER_KEYS.into_iter().filter_map(|key| table.remove_entry(key)).collect();
        let combinations = combinations(table, source)?;
        let Cells { cells, names, stages, settings, elsewhere } =
            Cells::read(&root, combinations, set, (source, target))?;
        let swept = keys::swept(&settings);
        save::check_apart(&cells, &swept).map_err(|rule| source.plain(&rule.message, &rule.help))?;
        require_one_gpu(&cells, source)?;
        // After the cells: a misspelt `title` is an unknown key, not a missing title.
        let mut header = Header::read(header, title, source)?;
        if !stages.is_empty() {
            header.report.ladder = stages;
        }
        let of_ladder = header.report.ladder.iter().map(|stage| stage.name.clone());
        let names = if of_ladder.len() == names.len() { of_ladder.collect() } else { names };
        header.report.leave_out(|key| set.iter().flatten().any(|setting| overlay::writes(setting, key)));
        header.report.check(&settings, source)?;
        let goes_along = |key: &&String| keys::goes_along(key, &settings);
        let telling = swept.iter().filter(|key| !goes_along(key)).cloned().collect();
        // Millions of keys of a large grid take time to free, too.
        settings.into_par_iter().for_each(drop);
        Ok(Self {
            path: source.path.clone(),
            text: source.text.clone(),
            title: header.title,
            question: header.question,
            cells,
            names,
            devices: Vec::new(),
            elsewhere: elsewhere.into_iter().map(|(position, why)| (position, why.to_string())).collect(),
            report: header.report,
            swept,
            telling,
        })
    }
}

/// Takes the grid or the ladder out of the recipe's table.
fn combinations<'t>(table: &mut DeTable<'t>, source: &Source) -> Result<Vec<Variant<'t>>, RecipeError> {
    let (grid, rungs) = (table.remove_entry(GRID), table.remove_entry(LADDER));
    if let (Some((name, _)), Some(_)) = (&grid, &rungs) {
        return Err(source.at(
            Some(name.span()),
            "`grid` and `ladder` both say which cells there are".into(),
            "remove one of them".into(),
        ));
    }
    match rungs {
        Some(rungs) => ladder::expand(rungs, source),
        None => grid::expand(grid, source),
    }
}

/// The cells of a recipe, each read and checked.
#[derive(Default)]
struct Cells {
    cells: Vec<Cell>,
    /// By cell.
    names: Vec<String>,
    /// Of a ladder.
    stages: Vec<Stage>,
    /// By cell.
    settings: Vec<Settings>,
    /// Why a cell cannot run here, by its position.
    elsewhere: BTreeMap<usize, RecipeError>,
}

impl Cells {
    /// Each cell is read like a recipe of its own; the first error counts, in the grid's order.
    fn read(
        root: &Spanned<DeTable<'_>>,
        combinations: Vec<Variant<'_>>,
        set: &[Layer<'_>],
        (source, target): (&Source, Option<&Target>),
    ) -> Result<Self, RecipeError> {
        let found = Found::default();
        let target = target.map(|target| (target, &found));
        let built = combinations.par_iter().map(|variant| {
            let layers = [variant.layers.as_slice(), set].concat();
            let (mut cell, missing) = read::from_table(root.clone(), &layers, source, target)?;
            // Cells are not told apart by what follows from other keys.
            let settings = settings(&cell.to_json());
            let open = cell.train.graph_is_open && target.is_none();
            if target.is_some() {
                cell.decide_graph();
            }
            Ok((cell.clone(), missing, ((cell.to_json().to_string(), open), settings)))
        });
        let mut built: Vec<Result<_, RecipeError>> = built.collect();
        if let Some(wrong) = built.iter().position(Result::is_err) {
            let all = built.iter().filter_map(|built| built.as_ref().err()).collect::<Vec<_>>();
            let in_all = all.len() == built.len() && all.iter().all(|error| error.says_the_same(all[0]));
            let name = if in_all { None } else { name(wrong, &combinations, set, all[0], source) };
            let error = built.swap_remove(wrong).expect_err("it is one");
            return Err(name.into_iter().fold(error, |error, name| error.in_cell(&name)));
        }
        let (mut all, mut seen) = (Self::default(), HashMap::new());
        for (built, Variant { layers, name, stage }) in built.into_iter().zip(combinations) {
            let (cell, missing, (identity, settings)) = built?;
            let position = all.cells.len();
            if let Some(same) = seen.insert(identity, position) {
                // What is set takes the place of an axis: cells that differed in it are one.
                if !set.is_empty() {
                    continue;
                }
                let span = layers.iter().flatten().next().map(|(key, _)| key.span());
                return Err(twice(position, same, stage.as_ref(), span, source));
            }
            all.elsewhere.extend(missing.map(|missing| (position, missing)));
            all.cells.push(cell);
            all.names.push(name);
            all.settings.push(settings);
            all.stages.extend(stage);
        }
        match all.elsewhere.len() == all.cells.len() {
            true => all.elsewhere.pop_first().map_or(Ok(all), |(_, missing)| Err(missing)),
            false => Ok(all),
        }
    }
}

/// Two cells of a recipe that are the same.
fn twice(
    position: usize,
    same: usize,
    stage: Option<&Stage>,
    span: Option<Range<usize>>,
    source: &Source,
) -> RecipeError {
    let help = match stage {
        None => "remove the repeated value from the grid".to_string(),
        Some(stage) => format!("let the rung \"{}\" set something else, or remove it", stage.name),
    };
    source.at(span, format!("cell {} is the same as cell {}", position + 1, same + 1), help)
}

fn require_one_gpu(cells: &[Cell], source: &Source) -> Result<(), RecipeError> {
    let mut devices = cells.iter().map(|cell| cell.device.as_str()).filter(|device| *device != CPU);
    let first = devices.next();
    match devices.find(|device| Some(*device) != first).zip(first) {
        None => Ok(()),
        Some((other, first)) => Err(source.plain(
            &format!("a recipe runs on one GPU, and this one names {first} and {other}"),
            "take one of them out of the grid and run the recipe once for each; the CPU may be in it together with one",
        )),
    }
}

/// What tells a cell with an error from the others; `None` where the error is drawn on it.
fn name(
    cell: usize,
    combinations: &[Variant<'_>],
    set: &[Layer<'_>],
    error: &RecipeError,
    source: &Source,
) -> Option<String> {
    let Variant { layers: own, stage, .. } = &combinations[cell];
    if let Some(stage) = stage {
        return Some(format!("the rung \"{}\"", stage.name));
    }
    // Of a grid a cell has one.
    let others: Vec<&Layer> = combinations.iter().flat_map(|other| &other.layers).collect();
    let mut own = own.concat();
    // What is set is the same in all.
    own.retain(|(key, _)| set.iter().flatten().all(|(other, _)| other.get_ref() != key.get_ref()));
    match grid::apart(&own, &others, source).as_slice() {
        [] => None,
        [(place, _)] if error.is_at(place) => None,
        settings => Some(settings.iter().map(|(_, setting)| setting).join(", ")),
    }
}
