//! [`Timelines`]: the traces of a recipe's cells in numbers, and one picture of naive offload above overlap.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::charts;
use super::columns::TRACES;
use super::prelude::*;
use super::profile::StepProfile;
use crate::common::text::and;
use crate::measure::trace::{self, Activity, Summary, read_chrome_trace};

/// What stands below the picture.
const COMPARED: &str =
    "Naive offload copies a block before it computes it, and overlap copies the next blocks meanwhile.";

/// Kernels of each trace in the document.
const TOP_KERNELS: usize = 10;

/// Empty when no cell was traced.
#[derive(Default)]
pub struct Timelines {
    traced: Vec<TracedCell>,
    /// Offload strategies above one another.
    pub compared: Option<Chart>,
    /// Which traces could not be used, and why.
    problems: Vec<String>,
}

struct TracedCell {
    /// Index into [`Comparison::lines`].
    line: usize,
    summary: Arc<Summary>,
    profile: StepProfile,
}

/// The trace of the row with this key, or why it cannot be read; `None` when there is none.
pub fn trace(folder: &Path, key: &str) -> Option<Result<Vec<Activity>, String>> {
    match std::fs::read(trace::path(folder, key)) {
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        file => Some(file.map_err(|e| e.to_string()).and_then(|file| read_chrome_trace(&file))),
    }
}

impl Timelines {
    /// Reads `traces/<row key>.json.gz` of every row. A trace that cannot be read, or that is missing
    /// where other cells of the device have one, becomes a sentence of the document.
    ///
    /// # Errors
    /// When Plotters cannot draw.
    pub fn read(folder: &Path, comparison: &Comparison) -> miette::Result<Self> {
        let mut timelines = Self::default();
        let (mut traced_devices, mut missing) = (BTreeSet::new(), Vec::new());
        let mut moving: Vec<(usize, Vec<Activity>)> = Vec::new();
        for (i, line) in comparison.lines.iter().enumerate() {
            // A trace is of a cell's first process.
            let Some(row) = line.row.filter(|row| row.measurement.is_some() && row.repeat == 1) else {
                continue;
            };
            let device = row.environment.device.id.as_str();
            let file = trace::path(Path::new(""), &row.key).display().to_string();
            let Some(trace) = trace(folder, &row.key) else {
                missing.push((device, file));
                continue;
            };
            traced_devices.insert(device);
            let found = trace.and_then(|activities| {
                let parts = Summary::new(&activities).zip(StepProfile::new(row, &activities));
                let (summary, profile) = parts.ok_or("it holds no kernels and no copies")?;
                Ok((activities, TracedCell { line: i, summary: Arc::new(summary), profile }))
            });
            match found {
                Ok((activities, traced)) => {
                    timelines.traced.push(traced);
                    moving.extend(MOVING.contains(&line.setting(STRATEGY)).then_some((i, activities)));
                }
                Err(why) => timelines.problems.push(format!(
                    "The trace {file} of {} cannot be used: {why}. Run the cell again with --trace and --force.",
                    comparison.title(line)
                )),
            }
        }
        timelines.compared = strategies(comparison, &moving)?;
        // Without any trace none was asked for, or the device has none.
        missing.retain(|(device, _)| traced_devices.contains(device));
        if !missing.is_empty() {
            let are = if missing.len() == 1 { "is" } else { "are" };
            timelines.problems.push(format!(
                "Some measured cells have no trace: {} {are} missing. Run these cells again with --trace and --force.",
                and(missing.into_iter().map(|(_, file)| file))
            ));
        }
        Ok(timelines)
    }

    /// Adds the traces to their lines, and [`TRACES`].
    pub fn add_to(&self, comparison: &mut Comparison) {
        for TracedCell { line, summary, .. } in &self.traced {
            comparison.lines[*line].trace = Some(Arc::clone(summary));
        }
        comparison.frame.add_cells(TRACES, &comparison.lines);
    }

    /// Naive offload above overlap, and what to see there. It comes first: a document that is too long leaves out what comes
    /// last.
    pub fn take_compared(&mut self) -> Vec<Element> {
        let chart = self.compared.take().into_iter();
        chart.flat_map(|chart| [Element::Figure(chart), Element::paragraph(COMPARED)]).collect()
    }
}

const STRATEGY: &str = "offload.strategy";
/// The strategies that are drawn, one above the other.
const MOVING: [&str; 2] = ["naive", "overlap"];

/// The fastest naive offload above the fastest overlap with the same other settings, at the sizes with the most work at which
/// both were traced.
fn strategies(comparison: &Comparison, moving: &[(usize, Vec<Activity>)]) -> miette::Result<Option<Chart>> {
    let line = |i: usize| &comparison.lines[i];
    let step = |i: usize| comparison.frame.get("step_s_median", i).unwrap_or(f64::INFINITY);
    let is_other = |key: &str| ![STRATEGY, "offload.buffers"].contains(&key);
    let others = |i: usize| line(i).settings.iter().filter(|(key, _)| is_other(key)).collect_vec();
    let fastest = |strategy: &str, fits: &dyn Fn(usize) -> bool| {
        let those = moving.iter().filter(|(i, _)| line(*i).setting(STRATEGY) == strategy && fits(*i));
        those.min_by(|(a, _), (b, _)| step(*a).total_cmp(&step(*b)))
    };
    let pair = |shape: usize| {
        let naive = fastest(MOVING[0], &|i| line(i).shape == shape)?;
        let overlap = fastest(MOVING[1], &|i| others(i) == others(naive.0))?;
        Some((shape, [naive, overlap]))
    };
    let work = |i: usize| line(i).row.map_or(0.0, |row| row.flops.forward);
    let pairs = (0..comparison.shapes.len()).filter_map(pair);
    let most = pairs.max_by(|(_, [a, _]), (_, [b, _])| work(a.0).total_cmp(&work(b.0)));
    let Some((shape, pair)) = most else { return Ok(None) };
    let method = |i: usize| comparison.methods[line(i).method].clone();
    let cells = pair.map(|(i, activities)| (method(*i), activities.as_slice()));
    let title = format!("Copies before computation and behind it, at {}", comparison.shapes[shape].name);
    charts::compared("strategies", &title, &cells)
}

/// The table of the traces; and as details each step by operators and kernels. Empty without traces.
pub fn elements(comparison: &Comparison, timelines: Timelines) -> (Vec<Element>, Vec<Element>) {
    let (mut out, mut details) = (Vec::new(), Vec::new());
    if let Some(mut table) = comparison.table("traces") {
        let mut cells = timelines.traced.iter().map(|traced| comparison.lines[traced.line].cell);
        if cells.clone().any(|cell| cell.train.graph) {
            table.caption.push_str(" The steps of graphs were launched kernel by kernel, not as graphs.");
        }
        if !cells.all(|cell| cell.parallel.is_alone()) {
            table.caption.push_str(" The trace is rank 0's.");
        }
        out.push(Element::Table(table));
        for TracedCell { line, profile, .. } in &timelines.traced {
            let name = comparison.title(&comparison.lines[*line]);
            details.push(Some(profile.table(&name)));
            details.push(profile.top_kernels(TOP_KERNELS));
        }
    }
    out.extend(timelines.problems.into_iter().map(Element::paragraph));
    if !out.is_empty() {
        out.insert(0, Element::heading("What the device did"));
    }
    (out, Element::section("Operators and kernels", details))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{recipe, rows, step_trace, write_traces};
    use super::*;
    use crate::recipe::Recipe;

    /// A folder with a trace of each row.
    fn traced(rows: &[Row]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let trace = step_trace();
        write_traces(folder.path(), rows.iter().map(|row| (row, &*trace)));
        folder
    }

    fn levels() -> (Recipe, Vec<Row>) {
        let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 0.5, 1]\n");
        let rows = rows(&recipe);
        (recipe, rows)
    }

    #[test]
    fn the_table_by_hand() {
        let (recipe, rows) = levels();
        let folder = traced(&rows[1..2]);
        let mut comparison = Comparison::new(&recipe, &rows);
        let timelines = Timelines::read(folder.path(), &comparison).expect("timelines");
        timelines.add_to(&mut comparison);
        let (elements, _) = elements(&comparison, timelines);
        let [Element::Heading { .. }, Element::Table(table), Element::Paragraph { text }] =
            elements.as_slice()
        else {
            panic!("{} elements", elements.len())
        };
        // Numbers of `step_trace`: 7 of its 10 ms have kernels, and the measured step takes a second.
        assert_eq!(
            table.rows,
            [["level 0.5", "10.0 ms", "3", "0.7 %", "48.0 MiB", "25.2", "16.0 MiB", "16.8", "67 %"]]
        );
        assert!(
            text.contains(&format!("{}.json.gz and traces/{}.json.gz are missing", rows[0].key, rows[2].key))
        );
    }

    #[test]
    fn without_traces_nothing_is_said() {
        let (recipe, rows) = levels();
        let folder = traced(&[]);
        let mut comparison = Comparison::new(&recipe, &rows);
        let timelines = Timelines::read(folder.path(), &comparison).expect("timelines");
        timelines.add_to(&mut comparison);
        assert!(timelines.compared.is_none() && elements(&comparison, timelines).0.is_empty());
    }

    #[test]
    fn damaged_traces_are_named() {
        let (recipe, rows) = levels();
        let folder = traced(&rows);
        std::fs::write(trace::path(folder.path(), &rows[0].key), "{").expect("a written trace");
        write_traces(folder.path(), [(&rows[1], &[][..])]);
        let comparison = Comparison::new(&recipe, &rows);
        let timelines = Timelines::read(folder.path(), &comparison).expect("timelines");
        assert_eq!(timelines.traced.len(), 1);
        let [damaged, empty] = timelines.problems.as_slice() else { panic!("{:?}", timelines.problems) };
        assert!(damaged.contains(&format!("traces/{}.json.gz of level 0 cannot be used: ", rows[0].key)));
        assert!(empty.contains(&format!(
            "traces/{}.json.gz of level 0.5 cannot be used: it holds no kernels",
            rows[1].key
        )));
    }
}
