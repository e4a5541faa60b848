//! Intervals of made-up and of committed times.

use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::testing::{ok_row, recipe};
use super::*;
use crate::recipe::{Recipe, Source};
use crate::row::Row;

const GRID: &str = "[grid]\n\"checkpoint.level\" = [0, 1]\n";

/// The ratio of level 1 to level 0, whose processes take these times.
fn ratio(rows: &[Row], recipe: &Recipe) -> Ratio {
    let comparison = Comparison::new(recipe, rows);
    let groups = comparison.groups();
    Ratio::of_times(&comparison, &groups[1], &groups[0]).expect("both ran")
}

/// Rows of each level with these step times.
fn rows(recipe: &Recipe, times: [&[f64]; 2]) -> Vec<Row> {
    let of_cell = |(cell, times): (_, &&[f64])| -> Vec<Row> {
        let row = |(repeat, time): (usize, &f64)| Row { repeat, ..ok_row(cell, 0.5 * time, 0.45 * time, 1) };
        (1..).zip(times.iter()).map(row).collect()
    };
    recipe.cells.iter().zip(&times).flat_map(of_cell).collect()
}

#[test]
fn a_ratio_is_written_with_its_interval() {
    let recipe = recipe(GRID);
    let of = |times| ratio(&rows(&recipe, times), &recipe);
    // Standard deviations of 1 % on both sides: 2.776 · √(2 · 0.01² / 3) = 2.27 %.
    let clear = of([&[0.99, 1.0, 1.01], &[1.485, 1.5, 1.515]]);
    assert_eq!(clear.to_string(), "1.50 ± 0.03");
    assert!(!clear.is_shorter() && !clear.is_no_cost());
    let equal = of([&[0.99, 1.0, 1.01], &[1.0, 1.01, 1.02]]);
    assert_eq!(equal.to_string(), "1.01 ± 0.02");
    assert!(equal.is_no_cost() && !equal.is_shorter());
    // Nothing is no cost of which nothing is known.
    let unknown = of([&[0.8, 1.0, 1.2], &[0.8, 1.0, 1.2]]);
    assert!(!unknown.is_no_cost() && !unknown.is_shorter(), "{unknown}");
    let single = of([&[1.0], &[0.5]]);
    assert_eq!(single.to_string(), "0.50 (1 process)");
    assert!(!single.is_known() && !single.is_shorter() && !single.is_no_cost());
    let mut builds = rows(&recipe, [&[1.0, 1.0], &[1.0, 1.0]]);
    builds[0].environment.commit = "fedcba987654".into();
    assert_eq!(ratio(&builds, &recipe).to_string(), "1.00 (other build)");
}

#[test]
fn a_value_is_written_with_its_interval() {
    assert_eq!(with_half_width(Unit::PerSecond, 92_761.0, Some(0.01)), "92,761 ± 928");
    assert_eq!(with_half_width(Unit::Seconds, 0.0123, Some(0.02)), "12.3 ± 0.2 ms");
    assert_eq!(with_half_width(Unit::Seconds, 0.0123, None), "12.3 ms");
    // As many decimals as the value, also where the interval is wide.
    assert_eq!(with_half_width(Unit::Seconds, 0.046, Some(0.47)), "46.0 ± 21.6 ms");
}

/// A normal number (Box and Muller).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (random.random_range(f64::MIN_POSITIVE..1.0), random.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Of 200 pairs of methods of three processes each, how many intervals are above 1. `spread`: the standard deviation of the
/// logarithm of a time; `factor`: how much longer the second method takes.
fn above_one(spread: f64, factor: f64) -> usize {
    let recipe = recipe(GRID);
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut times = |factor: f64| [0; 3].map(|_| (spread * normal(&mut random)).exp() * factor);
    let is_above = |_: &usize| {
        let ratio = ratio(&rows(&recipe, [&times(1.0), &times(factor)]), &recipe);
        matches!(ratio.half, Spread::Known(half) if ratio.value - half > 1.0)
    };
    (0..200).filter(is_above).count()
}

/// A null experiment: a GPU at work has a spread of 1.5 %, one that waits for its host of 12 %.
#[test]
fn few_intervals_of_equal_work_exclude_one_and_a_tenth_is_found() {
    for spread in [0.015, 0.12] {
        let missed = above_one(spread, 1.0);
        assert!(missed <= 10, "{missed} of 200, a spread of {spread}");
    }
    assert!(above_one(0.015, 1.1) >= 190);
    // Where processes are an eighth apart, three of them do not show a tenth.
    assert!(above_one(0.12, 1.1) < 100);
}

/// Static loss scales are a constant: the committed runs of three seeds each did the same work. One of ten intervals may miss.
#[test]
fn committed_runs_of_equal_work_do_not_differ() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/amp_wikitext/h100-80gb-hbm3");
    let source = Source::read(&folder.join("recipe.toml")).expect("a recipe");
    let recipe = Recipe::parse_finished(&source, false).expect("a recipe");
    let files = std::fs::read_dir(folder.join("rows")).expect("rows");
    let rows: Vec<Row> = files
        .map(|file| std::fs::read(file.expect("a row").path()).expect("a row"))
        .map(|bytes| serde_json::from_slice(&bytes).expect("a row"))
        .collect();
    let comparison = Comparison::new(&recipe, &rows);
    assert_eq!(comparison.problems(), 1, "seeds are one problem");
    let groups = comparison.groups();
    let is_constant = |group: &&Group| {
        let settings = &comparison.lines[group.lines[0]].settings;
        let scale = settings.get("precision.scaler.scale").and_then(serde_json::Value::as_f64);
        scale.is_some_and(|scale| [-14, -7, 0, 16, 23].map(|power| f64::powi(2.0, power)).contains(&scale))
    };
    let scaled: Vec<&Group> = groups.iter().filter(is_constant).collect();
    assert_eq!(scaled.len(), 5, "{:?}", comparison.methods);
    let pairs = (0..5).flat_map(|i| (i + 1..5).map(move |j| (i, j)));
    let differ = pairs.filter(|(i, j)| {
        let ratio = Ratio::of_times(&comparison, scaled[*i], scaled[*j]).expect("both ran");
        matches!(ratio.half, Spread::Known(half) if (ratio.value - 1.0).abs() > half)
    });
    assert!(differ.count() <= 1);
}
