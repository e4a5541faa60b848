//! Sweeps of many cells: what is planned, and what goes on from thousands of rows.

use std::path::Path;
use std::time::{Duration, Instant};

use runner::device::Target;
use runner::recipe::Recipe;
use runner::row::{Inputs, key};

use crate::place::{Place, SMALL, changed};

/// A language model at so many sequence lengths and ten batch sizes, with so many seeds.
fn sweep(lengths: usize, seeds: usize) -> String {
    let numbers = |from: usize, count: usize| {
        (from..from + count).map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
    };
    let recipe = changed(SMALL, &[("max_position_embeddings = 32", "max_position_embeddings = 4096")]);
    format!(
        "{recipe}[grid]\n\"train.batch_size\" = [{}]\n\"train.seq_len\" = [{}]\nseed = [{}]\n",
        numbers(1, 10),
        numbers(8, lengths),
        numbers(0, seeds)
    )
}

/// Measures the first cell, and gives all other cells but the last its row.
fn place_with_rows(recipe: &str) -> Place {
    let place = Place::new(recipe);
    place.runner(&["run", "recipe.toml", "--cell", "1"]).exits(0);
    let mut row = place.rows().remove(0);
    let name = row["environment"]["device"]["name"].as_str().expect("a name").to_string();
    let recipe =
        Recipe::load(&place.path().join("recipe.toml"), &[], &"cpu".parse::<Target>().expect("a target"));
    let cells = recipe.expect("a recipe").cells;
    for cell in &cells[1..cells.len() - 1] {
        let key = key(&cell.to_json(), &name, &Inputs::new());
        row["cell"] = cell.to_json();
        row["key"] = key.clone().into();
        let path = place.results().join(Path::new("rows").join(key).with_extension("json"));
        std::fs::write(path, row.to_string()).expect("writable");
    }
    place
}

#[test]
fn a_sweep_of_many_cells_goes_on_from_its_rows() {
    let place = place_with_rows(&sweep(5, 4));
    place.runner(&["plan", "recipe.toml"]).exits(0).says(&["200 cells; every cell fits"]);
    let dry = ["run", "recipe.toml", "--dry-run"];
    let short = place.runner(&dry).exits(0).says(&["would run 1 of 200 cells: 200", "and 100 more cells"]);
    assert!(short.out.contains("│  100 ┆") && !short.out.contains("│  101 ┆"), "{}", short.out);
    let last = ["run", "recipe.toml", "--dry-run", "--shard", "4/4"];
    place.runner(&last).exits(0).says(&["would run 1 of 200 cells: 200"]);
    place.runner(&["run", "recipe.toml", "--dry-run", "--shard", "1/4"]).exits(0).says(&["nothing to run"]);
}

/// cargo test --release --test cli ten_thousand -- --ignored --nocapture
#[test]
#[ignore = "has limits of time for a release build"]
fn ten_thousand_cells_are_planned_in_a_second_resumed_in_two_and_reported_in_ten() {
    let place = place_with_rows(&sweep(100, 10));
    let timed = |args: &[&str], limit: f64, said: &str| {
        let start = Instant::now();
        place.runner(args).exits(0).says(&[said]);
        let taken = start.elapsed();
        println!("{args:?}: {taken:?}");
        assert!(taken < Duration::from_secs_f64(limit), "{args:?} took {taken:?}");
    };
    timed(&["plan", "recipe.toml"], 1.0, "10000 cells; every cell fits");
    timed(&["run", "recipe.toml", "--dry-run"], 2.0, "would run 1 of 10000 cells: 10000");
    let results = place.results();
    timed(&["report", results.to_str().expect("a path")], 10.0, "report.pdf");
}
