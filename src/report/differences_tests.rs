//! Experiments with a known truth: at most 5 of 100 reports find a difference in equal work, and a true tenth is found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::line::busy;
use super::super::statistics::{LEVEL, holm, welch};
use super::super::testing::{ok_row, on_gpu, recipe};
use super::super::timelines::trace;
use super::*;
use crate::device::trace::Summary;
use crate::recipe::{Cell, Recipe};
use crate::row::Row;

const GRID: &str = "[grid]\n\"train.batch_size\" = [8, 16]\n\"checkpoint.level\" = [0, 0.5, 1]\n";

/// Two normal numbers (Box and Muller).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (random.random_range(f64::MIN_POSITIVE..1.0), random.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Rows of so many processes of each cell, whose times are apart by the spread, and those of level 1 longer by a factor.
fn drawn(recipe: &Recipe, processes: usize, spread: f64, factor: f64, random: &mut ChaCha8Rng) -> Vec<Row> {
    let mut rows = Vec::new();
    for cell in &recipe.cells {
        for repeat in 1..=processes {
            let longer = if cell.checkpoint.level.number() == 1.0 { factor } else { 1.0 };
            let time = (spread * normal(random)).exp() * longer;
            rows.push(Row { repeat, ..ok_row(cell, 0.01 * time, 0.02 * time, 1 << 20) });
        }
    }
    rows
}

/// Steps' medians of processes that did the same work, by what they did.
type EqualWork = BTreeMap<String, Vec<f64>>;

/// The committed rows under a folder that are of a GPU, each with the folder of its results.
fn committed(folder: &Path) -> impl Iterator<Item = (PathBuf, Row)> {
    let files = walkdir::WalkDir::new(folder).into_iter().map(|entry| entry.expect("a file").into_path());
    let is_of_gpu =
        |rows: &Path| ["h100-80gb-hbm3", "h200"].iter().any(|gpu| rows.ends_with(format!("{gpu}/rows")));
    let rows = files.filter(move |file| file.parent().is_some_and(is_of_gpu));
    rows.map(|file| {
        let row = serde_json::from_slice(&std::fs::read(&file).expect("a row")).expect("a row");
        (file.ancestors().nth(2).expect("a results folder").to_path_buf(), row)
    })
}

/// Of small steps, which wait for the host: committed rows that differ in the seed, or in a loss scale that is one constant.
fn small_steps() -> EqualWork {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/amp_wikitext");
    let mut by_work = EqualWork::new();
    for (_, row) in committed(&folder) {
        let mut cell = Cell::from_json(&row.cell).expect("a cell").to_json();
        for key in ["seed", "measure", "save"] {
            cell.as_object_mut().expect("a table").remove(key);
        }
        let scale = cell.pointer_mut("/precision/scaler/scale");
        scale.into_iter().for_each(|scale| *scale = serde_json::Value::Null);
        let times = by_work.entry(cell.to_string()).or_default();
        times.extend(row.measurement.map(|m| m.step.median));
    }
    by_work
}

/// Of Qwen2.5-0.5B with 8,192 tokens and more, which keep a GPU at work: committed steps beside PyTorch's.
fn large_steps() -> EqualWork {
    let raw = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/strong/h200/raw.jsonl");
    let text = std::fs::read_to_string(raw).expect("committed steps");
    let runs = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a run"));
    let mut by_work = EqualWork::new();
    for run in runs.filter(|run| run["side"] == "runner") {
        let [work, setup, commit] = ["/work", "/setup", "/versions/commit"]
            .map(|key| run.pointer(key).and_then(serde_json::Value::as_str).expect("text"));
        if work.ends_with("16 x 512") || work.ends_with("8 x 2048") {
            let times = by_work.entry(format!("{work} {setup} {commit}")).or_default();
            times.extend(run["ms"].as_f64());
        }
    }
    by_work
}

/// The standard deviation of the logarithms within groups of several processes, pooled.
fn spread(by_work: &EqualWork) -> f64 {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for group in by_work.values().filter(|group| group.len() > 1) {
        let logs: Vec<f64> = group.iter().map(|time| time.ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        freedom += logs.len() as f64 - 1.0;
    }
    (squares / freedom).sqrt()
}

/// Of 100 reports, in how many some level was told to differ from level 0: any, and level 1 at both shapes.
fn told(processes: usize, spread: f64, factor: f64) -> (usize, usize) {
    let recipe = recipe(GRID);
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let (mut any, mut found) = (0, 0);
    for _ in 0..100 {
        let rows = drawn(&recipe, processes, spread, factor, &mut random);
        let comparison = Comparison::new(&recipe, &rows);
        let differences = Differences::new(&comparison);
        assert_eq!(differences.all.len(), 12, "two methods, two shapes, three times");
        any += usize::from(differences.all.iter().any(|of| of.known == Known::Clear));
        let level_1 = comparison.methods.iter().position(|name| name == "level 1").expect("level 1");
        let clear = differences.of(level_1, "step").filter(|of| of.known == Known::Clear && of.ratio > 1.0);
        found += usize::from(clear.count() == 2);
    }
    (any, found)
}

#[test]
fn equal_work_shows_no_difference_and_a_tenth_is_found() {
    // A GPU at work: 1.5 %. One that waits for its host: 10 % and more.
    let [busy, waiting] = [large_steps(), small_steps()].map(|by_work| spread(&by_work));
    assert!((0.005..0.03).contains(&busy) && (0.05..0.3).contains(&waiting), "{busy} {waiting}");
    for spread in [busy, waiting] {
        for processes in [2, 3, 5] {
            let (any, _) = told(processes, spread, 1.0);
            assert!(any <= 5, "{any} of 100 reports tell of a difference, {processes} processes, {spread}");
        }
    }
    for spread in [busy / 5.0, busy] {
        let (_, found) = told(5, spread, 1.1);
        assert!(found >= 95, "a tenth is found in {found} of 100 reports at a spread of {spread}");
    }
    // Where processes are a tenth apart, five of them do not show a tenth, and it is not claimed as none or some.
    assert!(told(5, waiting, 1.1).1 < 50);
}

/// A step, and by which share another process of it may be shorter and longer.
type Single = (f64, [f64; 2]);

/// Committed rows that differ in the seed alone, or are of two recipes. Of the processes of one cell, whose report has their own
/// spread, 9 of 10 pairs: four of `results/data_parallel_gpus` ran by launches beside other recipes on the host.
#[test]
fn single_processes_of_equal_work_are_as_near_as_is_said() {
    let (mut by_work, mut of_several) = (BTreeMap::<String, Vec<Single>>::new(), BTreeSet::new());
    for (folder, row) in committed(Path::new(env!("CARGO_MANIFEST_DIR")).join("results").as_path()) {
        let Some(measured) = row.measurement.clone() else { continue };
        let (step, cell) = (measured.step.median, Cell::from_json(&row.cell).expect("a cell"));
        let trace = trace(&folder, &row.key).map(|trace| trace.expect("a trace"));
        let summary = trace.and_then(|activities| Summary::new(&activities));
        let busy = summary.and_then(|summary| busy(&cell, &measured, summary.kernel_seconds()));
        let environment = row.environment.clone();
        let mut work = cell.to_json();
        for key in ["seed", "save"] {
            work.as_object_mut().expect("a table").remove(key);
        }
        work["measure"] = work["measure"]["memory_limit"].take();
        let work = format!("{work} {} {}", environment.commit, environment.device.name);
        of_several.extend((row.repeat > 1).then(|| work.clone()));
        by_work.entry(work).or_default().push((step, apart(&cell, &environment, busy)));
    }
    let ratio = |(a, b): (&Single, &Single)| {
        let (slower, faster) = if a.0 > b.0 { (a, b) } else { (b, a) };
        (slower.0 / faster.0, slower.1[0].max(faster.1[1]))
    };
    for (several, most_beyond) in [(false, 0.0), (true, 0.1)] {
        let of = by_work.iter().filter(|(work, _)| of_several.contains(*work) == several);
        let ratios: Vec<(f64, f64)> =
            of.flat_map(|(_, rows)| rows.iter().tuple_combinations()).map(ratio).collect();
        assert!(ratios.len() >= 40, "{} pairs", ratios.len());
        let beyond: Vec<_> = ratios.iter().filter(|(ratio, apart)| *ratio > 1.0 + apart).collect();
        assert!(
            beyond.len() as f64 <= most_beyond * ratios.len() as f64,
            "{beyond:.3?} of {} pairs",
            ratios.len()
        );
    }
}

/// A step whose kernels take nearly all of it is as long in every process, and none is shorter than its kernels.
#[test]
fn a_traced_step_bounds_what_another_process_may_take() {
    let recipe = recipe("");
    let rows = on_gpu(&drawn(&recipe, 1, 0.0, 1.0, &mut ChaCha8Rng::seed_from_u64(1)));
    let mut environment = rows[0].environment.clone();
    environment.ceilings.launch = Some(1.0);
    let of = |busy| apart(&recipe.cells[0], &environment, busy);
    assert_eq!(of(None), [OF_HOST; 2], "launches take all of the step");
    assert_eq!(of(Some(0.95)), [ON_GPU; 2]);
    let [shorter, longer] = of(Some(0.8));
    assert!((shorter - (ON_GPU + 0.25)).abs() < 1e-9 && longer == OF_HOST, "{shorter} {longer}");
}

/// Static loss scales are a constant: the committed runs of three seeds each did the same work.
#[test]
fn committed_runs_of_equal_work_do_not_differ() {
    let recipe =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("results/amp_wikitext/h100-80gb-hbm3/recipe.toml");
    let source = crate::recipe::Source::read(&recipe).expect("a recipe");
    let recipe = Recipe::parse_finished(&source, false).expect("a recipe");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/amp_wikitext");
    let rows: Vec<Row> = committed(&folder).map(|(_, row)| row).collect();
    let comparison = Comparison::new(&recipe, &rows);
    assert_eq!(comparison.problems(), 1, "seeds are one problem");
    let scales = ["2⁻¹⁴", "2⁻⁷", "2⁰", "2¹⁶", "2²³"];
    let of = |name: &&str| {
        let method = comparison.methods.iter().position(|method| method.ends_with(name)).expect("a scale");
        times(&comparison, &comparison.of_problem(0, method), "step")
    };
    let times: Vec<Vec<f64>> = scales.iter().map(of).collect();
    assert!(times.iter().all(|times| times.len() == 3), "{:?}", comparison.methods);
    let pairs = (0..5).flat_map(|i| (i + 1..5).map(move |j| (i, j)));
    let p_values: Vec<f64> = pairs.map(|(i, j)| welch(&times[i], &times[j]).expect("three each")).collect();
    assert!(!holm(&p_values, LEVEL).contains(&true), "{p_values:?}");
}

#[test]
fn one_process_and_several_builds_are_told() {
    let recipe = recipe(GRID);
    let mut rows = on_gpu(&drawn(&recipe, 1, 0.0, 1.1, &mut ChaCha8Rng::seed_from_u64(1)));
    let caveats = |rows: &[Row]| {
        let comparison = Comparison::new(&recipe, rows);
        let differences = Differences::new(&comparison);
        (
            differences.caveats(&comparison).join(" "),
            differences.of(2, "step").map(|of| of.known).collect::<Vec<_>>(),
        )
    };
    let (told, known) = caveats(&rows);
    assert!(
        told.ends_with("of one cell may be: 6 % on a GPU. measure.repeats = 5 shows by how much they do."),
        "{told}"
    );
    assert!(told.contains("one process each") && told.contains("was not measured"), "{told}");
    assert_eq!(known, [Known::Clear; 2], "a tenth is beyond 6 %");
    rows[2].environment.commit = "fedcba987654".into();
    let (told, known) = caveats(&rows);
    assert!(told.contains("2 builds of the runner, 0123456789ab and fedcba987654"), "{told}");
    assert_eq!(known, [Known::OtherBuild, Known::Clear]);
    // What is said of a GPU does not run on into what is said of a CPU.
    rows[0].environment.device.id = "cpu".into();
    let (told, _) = caveats(&rows);
    assert!(told.contains("of one cell may be: 33 % on a CPU and 6 % on a GPU. "), "{told}");
}
