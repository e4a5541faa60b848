//! [`Timelines`]: the traces of a recipe's cells, drawn and in numbers.

use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::Path;

use super::charts;
use super::columns::{TRACES, Traced};
use super::document::{Chart, Element};
use super::line::Line;
use super::offload::others;
use super::profile::{LAUNCHED, StepProfile};
use super::table::Comparison;
use crate::device::trace::{self, Activity, Summary, read_chrome_trace};
use crate::residence::Strategy;
use crate::words::text::{and, seconds};

/// So many timelines are in every document, each of another method; the others are details.
const SHOWN: usize = 2;
/// The timeline of a device this busy on a single stream would have one colour.
const BUSY: f64 = 0.95;

/// A caption names the time of a traced step that differs from the measured ones by more than this share.
const UNLIKE: f64 = 0.05;

/// What the caption of the first timeline says.
const LANES: &str = " A lane is a stream of the device; each point in time has the colour of what ran longest then, paler where \
                     the stream was idle for part of it.";

/// What a trace of one of several ranks is of.
const OF_RANK: &str = " Of several ranks the trace is that of rank 0.";

/// What stands below naive offload and overlap on one time axis.
const COMPARED: &str = "Naive offload copies a block before it computes it, and overlap copies the next blocks meanwhile. The \
                        timeline has one recorded step of each.";

/// Kernels of each trace in the document.
const TOP_KERNELS: usize = 10;

/// Empty when no cell was traced.
#[derive(Default)]
pub struct Timelines {
    drawn: Vec<Timeline>,
    /// Offload strategies above one another.
    compared: Option<Chart>,
    /// Which traces could not be used, and why.
    problems: Vec<String>,
}

struct Timeline {
    /// Index into [`Comparison::lines`].
    line: usize,
    summary: Summary,
    /// Absent where it would be one block.
    chart: Option<Chart>,
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
    /// Adds the times of kernels to the lines that were traced, and [`TRACES`].
    pub fn add_to(&self, comparison: &mut Comparison) {
        for Timeline { line, summary, .. } in &self.drawn {
            comparison.lines[*line].kernels = Some(summary.kernel_seconds());
        }
        let traced = |timeline: &Timeline| {
            let busy = comparison.lines[timeline.line].busy().unwrap_or(timeline.summary.busy_share());
            let update = timeline.profile.of_update();
            (timeline.line, Traced { summary: timeline.summary.clone(), busy, update })
        };
        let traced: HashMap<usize, Traced> = self.drawn.iter().map(traced).collect();
        comparison.frame.add("", TRACES, comparison.lines.len(), |line| traced.get(&line));
    }

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
            let file = trace::path(Path::new(""), &row.key).display().to_string();
            let device = row.environment.device.id.as_str();
            let Some(trace) = trace(folder, &row.key) else {
                missing.push((device, file));
                continue;
            };
            traced_devices.insert(device);
            match trace {
                Err(why) => timelines.problems.push(format!(
                    "The trace {file} of {} cannot be read: {why}. Run the cell again with --trace and --force.",
                    comparison.title(line)
                )),
                Ok(activities) => {
                    let name = format!("timeline-{}", row.key);
                    let chart = charts::timeline(&name, &comparison.title(line), &activities)?;
                    let summary = Summary::new(&activities);
                    let mut chart = chart.filter(|_| says_more(&activities, summary.as_ref()));
                    let longer = summary.as_ref().and_then(|summary| unlike_measured(comparison, i, summary));
                    let launched = if line.cell.train.graph { LAUNCHED } else { "" };
                    let of_rank = if line.cell.parallel.is_alone() { "" } else { OF_RANK };
                    chart.iter_mut().for_each(|chart| {
                        chart.caption += &format!("{of_rank}{launched}");
                        chart.caption.extend(longer.clone());
                    });
                    match summary.zip(StepProfile::new(line.cell, row, &activities)) {
                        Some((summary, profile)) => {
                            timelines.drawn.push(Timeline { line: i, summary, chart, profile });
                        }
                        None => timelines.problems.push(format!(
                            "The trace {file} of {} holds no kernels and no copies.",
                            comparison.title(line)
                        )),
                    }
                    if line.cell.offload.moves() {
                        moving.push((i, activities));
                    }
                }
            }
        }
        timelines.compared = strategies(comparison, &moving)?;
        // Without any trace none was asked for, or the device has none.
        missing.retain(|(device, _)| traced_devices.contains(device));
        let missing: Vec<String> = missing.into_iter().map(|(_, file)| file).collect();
        if !missing.is_empty() {
            timelines.problems.push(format!(
                "Some measured cells have no trace: {} missing. Run these cells again with --trace and --force.",
                match missing.as_slice() {
                    [one] => format!("{one} is"),
                    several => format!("{} are", and(several)),
                }
            ));
        }
        Ok(timelines)
    }

    /// Naive offload above overlap, and what to see there. It comes first: a document that is too long leaves out what comes
    /// last.
    pub fn take_compared(&mut self) -> Vec<Element> {
        let Some(mut chart) = self.compared.take() else { return Vec::new() };
        chart.caption.push_str(LANES);
        vec![Element::Figure(chart), Element::paragraph(COMPARED)]
    }

    pub fn charts(&self) -> impl Iterator<Item = &Chart> {
        self.compared.iter().chain(self.drawn.iter().filter_map(|timeline| timeline.chart.as_ref()))
    }
}

/// Whether a timeline shows more than that the device was busy.
fn says_more(activities: &[Activity], summary: Option<&Summary>) -> bool {
    let streams: BTreeSet<u32> = activities.iter().map(|activity| activity.stream).collect();
    streams.len() > 1 || summary.is_some_and(|summary| summary.busy_share() < BUSY)
}

/// The times of the traced step and of the measured ones, where they differ.
fn unlike_measured(comparison: &Comparison, line: usize, traced: &Summary) -> Option<String> {
    let measured = comparison.frame.get("step_s_median", line)?;
    let traced = traced.span as f64 / 1e9;
    let unlike = (traced / measured - 1.0).abs() > UNLIKE;
    unlike.then(|| {
        format!(" Traced, the step took {}; the measured ones {}.", seconds(traced), seconds(measured))
    })
}

/// Naive offload above overlap at the sizes with the most work at which both were traced.
fn strategies(comparison: &Comparison, moving: &[(usize, Vec<Activity>)]) -> miette::Result<Option<Chart>> {
    let line = |i: usize| &comparison.lines[i];
    let step = |i: usize| comparison.frame.get("step_s_median", i).unwrap_or(f64::INFINITY);
    let fastest = |wanted: &dyn Fn(&Line) -> bool| {
        let fits = moving.iter().filter(|(i, _)| wanted(line(*i)));
        fits.min_by(|(a, _), (b, _)| step(*a).total_cmp(&step(*b)))
    };
    let pair = |shape: usize| {
        let is_naive = |line: &Line| matches!(line.cell.offload.strategy, Strategy::Naive(_));
        let naive = fastest(&|line| line.shape == shape && is_naive(line))?;
        let overlap = fastest(&|other| {
            matches!(other.cell.offload.strategy, Strategy::Overlap(_))
                && others(other) == others(line(naive.0))
        })?;
        Some((shape, [naive, overlap]))
    };
    let work =
        |(_, [(naive, _), _]): &(usize, [&(usize, Vec<Activity>); 2])| line(*naive).cell.flops().forward;
    let pairs = (0..comparison.shapes.len()).filter_map(pair);
    let Some((shape, pair)) = pairs.max_by(|a, b| work(a).total_cmp(&work(b))) else { return Ok(None) };
    let cells =
        pair.map(|(i, activities)| (comparison.methods[line(*i).method].clone(), activities.as_slice()));
    let label = &comparison.shapes[shape].name;
    let title = format!("Copies before computation and behind it, at {label}");
    let mut chart = charts::compared("strategies", &title, &cells)?;
    for (i, activities) in pair {
        let unlike = Summary::new(activities).and_then(|traced| unlike_measured(comparison, *i, &traced));
        let name = comparison.said(line(*i).method);
        let unlike = unlike.map(|times| times.replacen("Traced,", &format!("Traced, of {name},"), 1));
        chart.iter_mut().for_each(|chart| chart.caption.extend(unlike.clone()));
    }
    Ok(chart)
}

/// The table of the traces; and as details the timelines with their tables. Empty without traces. `compared`: whether naive
/// offload and overlap are shown already.
pub fn elements(
    comparison: &Comparison,
    mut timelines: Timelines,
    compared: bool,
) -> (Vec<Element>, Vec<Element>) {
    let (mut out, mut details) = (Vec::new(), Vec::new());
    if let Some(mut table) = comparison.table("traces") {
        if timelines.drawn.iter().any(|timeline| comparison.lines[timeline.line].cell.train.graph) {
            table.caption.push_str(" The steps of graphs were launched kernel by kernel, not as graphs.");
        }
        let alone = |timeline: &Timeline| comparison.lines[timeline.line].cell.parallel.is_alone();
        if !timelines.drawn.iter().all(alone) {
            table.caption.push_str(OF_RANK);
        }
        let shown = if compared { 0 } else { SHOWN };
        let mut first = timelines.drawn.iter_mut().find_map(|timeline| timeline.chart.as_mut());
        first.iter_mut().filter(|_| !compared).for_each(|chart| chart.caption.push_str(LANES));
        out.push(Element::Table(table));
        // Of different methods.
        let mut drawn = BTreeSet::new();
        for timeline in timelines.drawn {
            let line = &comparison.lines[timeline.line];
            let name = comparison.title(line);
            let is_shown = timeline.chart.is_some() && drawn.len() < shown && drawn.insert(line.method);
            let to = if is_shown { &mut out } else { &mut details };
            to.extend(timeline.chart.map(Element::Figure));
            details.push(Element::Table(timeline.profile.table(&name)));
            details.extend(timeline.profile.top_kernels(TOP_KERNELS).map(Element::Table));
        }
    }
    out.extend(timelines.problems.into_iter().map(Element::paragraph));
    for (elements, heading) in [(&mut out, "What the device did"), (&mut details, "Timelines and kernels")] {
        if !elements.is_empty() {
            elements.insert(0, Element::heading(heading));
        }
    }
    (out, details)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{recipe, rows, step_trace, write_traces};
    use super::*;
    use crate::recipe::Recipe;
    use crate::row::Row;

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
        let (elements, _) = elements(&comparison, timelines, false);
        let [Element::Heading { .. }, Element::Table(table), Element::Figure(Chart { svg, caption, .. }), ..] =
            elements.as_slice()
        else {
            panic!("{} elements", elements.len())
        };
        // Numbers of `step_trace`: 7 of its 10 ms have kernels, and the measured step takes a second.
        assert_eq!(
            table.rows,
            [["level 0.5", "10.0 ms", "3", "0.7 %", "48.0 MiB", "25.2", "16.0 MiB", "16.8", "67 %"]]
        );
        assert!(caption.ends_with(LANES), "{caption}");
        assert!(svg.contains("step 10.0 ms · 3 kernels · device busy 70 % · 67 % of copy time hidden"));
        let Some(Element::Paragraph { text }) = elements.last() else { panic!("no sentence") };
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
        assert!(timelines.charts().next().is_none() && elements(&comparison, timelines, false).0.is_empty());
    }

    #[test]
    fn damaged_traces_are_named() {
        let (recipe, rows) = levels();
        let folder = traced(&rows);
        std::fs::write(trace::path(folder.path(), &rows[0].key), "{").expect("a written trace");
        write_traces(folder.path(), [(&rows[1], &[][..])]);
        let comparison = Comparison::new(&recipe, &rows);
        let timelines = Timelines::read(folder.path(), &comparison).expect("timelines");
        assert_eq!(timelines.drawn.len(), 1);
        let [damaged, empty] = timelines.problems.as_slice() else { panic!("{:?}", timelines.problems) };
        assert!(damaged.contains(&format!("traces/{}.json.gz of level 0 cannot be read", rows[0].key)));
        assert!(empty.contains(&format!("traces/{}.json.gz of level 0.5 holds no kernels", rows[1].key)));
    }
}
