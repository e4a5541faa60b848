//! Answers of made-up rows.

use super::super::testing::{bad_row, language_recipe, learned_row, loading_row, ok_row, recipe};
use super::*;
use crate::common::Compute;
use crate::recipe::{Cell, Recipe};
use crate::row::{Row, Status};

fn said(recipe: &Recipe, rows: &[Row]) -> Vec<String> {
    let comparison = Comparison::new(recipe, rows);
    Verdict::new(&comparison).map_or_else(Vec::new, |verdict| verdict.sentences())
}

/// Processes of each cell, whose times are 1 % apart, by what a cell takes: its step in seconds and its peak in bytes.
fn rows(recipe: &Recipe, processes: usize, of: impl Fn(&Cell) -> (f64, u64)) -> Vec<Row> {
    let row = |cell, repeat: usize| {
        let (time, peak) = of(cell);
        let time = time * (1.0 + 0.01 * (repeat as f64 - (processes as f64 + 1.0) / 2.0));
        Row { repeat, ..ok_row(cell, time / 2.2, time / 2.0, peak) }
    };
    recipe.cells.iter().flat_map(|cell| (1..=processes).map(move |repeat| row(cell, repeat))).collect()
}

/// The recipe of README: 22.5 MiB, 3.0 and 4.5 MiB less.
fn of_level(cell: &Cell) -> (f64, u64) {
    match cell.checkpoint.level.number() {
        0.0 => (0.020, 22_500 << 10),
        0.5 => (0.0202, 19_500 << 10),
        _ => (0.0232, 18_000 << 10),
    }
}

const LEVELS: &str = "[[grid]]\nname = \"keeping all\"\n\"checkpoint.level\" = 0\n\
    [[grid]]\n\"checkpoint.level\" = 0.5\n\
    [[grid]]\nname = \"recomputing everything (level 1)\"\n\"checkpoint.level\" = 1\n";

#[test]
fn an_answer_has_three_sentences_with_intervals() {
    let recipe = recipe(LEVELS);
    assert_eq!(
        said(&recipe, &rows(&recipe, 3, of_level)),
        [
            "Recomputing everything (level 1) makes a step 1.16 ± 0.03 times as long as keeping all and saves 4.39 MiB (20 %).",
            "Level 0.5 saves 2.93 MiB (13 %) at no cost (1.01 ± 0.02 times the time).",
            "Take level 0.5; recomputing everything (level 1) where its last 1.46 MiB decide.",
        ]
    );
}

#[test]
fn nothing_is_claimed_of_one_process() {
    let recipe = recipe(LEVELS);
    assert_eq!(
        said(&recipe, &rows(&recipe, 1, of_level)),
        [
            "Recomputing everything (level 1) makes a step 1.16 times as long as keeping all (1 process) and saves 4.39 MiB (20 %).",
            "Level 0.5 makes a step 1.01 times as long (1 process) and saves 2.93 MiB (13 %).",
        ]
    );
}

/// Level 1 takes a tenth longer at batch size 8, and a tenth less from 16 on.
#[test]
fn an_answer_says_from_which_size_a_method_pays() {
    let recipe = recipe("[grid]\n\"train.batch_size\" = [8, 16, 32]\n\"checkpoint.level\" = [0, 1]\n");
    let of = |cell: &Cell| {
        let times = if cell.train.batch_size == 8 { 1.1 } else { 0.9 };
        let level = cell.checkpoint.level.number();
        let times = if level == 1.0 { times } else { 1.0 };
        (0.001 * cell.train.batch_size as f64 * times, (40 - 10 * level as u64) << 20)
    };
    let mut rows = rows(&recipe, 3, of);
    // Operations of a step in proportion to its batch.
    rows.iter_mut().filter_map(|row| row.measurement.as_mut()).for_each(|m| m.flops_per_second = 1e9);
    let said = said(&recipe, &rows);
    assert_eq!(
        said[0],
        "At batch size 32, level 1 makes a step 0.90 ± 0.02 times as long as level 0 and saves 10.0 MiB (25 %)."
    );
    assert_eq!(
        said[1],
        "Take level 1; over 3 sizes level 1 takes 0.90 ± 0.02 at batch size 16 to 1.10 ± 0.02 times as long at batch size 8, and \
         less time from batch size 16 on."
    );
}

#[test]
fn each_precision_has_its_own_baseline_and_sentence() {
    let recipe =
        recipe("[grid]\n\"precision.compute\" = [\"fp32\", \"bf16\"]\n\"checkpoint.level\" = [0, 1]\n");
    let of = |cell: &Cell| {
        let (time, peak) = of_level(cell);
        let half = if cell.precision.stored_bytes() < 4 { 2 } else { 1 };
        (time / half as f64, peak / half)
    };
    let said = said(&recipe, &rows(&recipe, 3, of));
    assert_eq!(
        said,
        [
            "With precision fp32, level 1 makes a step 1.16 ± 0.03 times as long as level 0 and saves 4.39 MiB (20 %).",
            "With precision bf16, “level 1, precision bf16” makes a step 1.16 ± 0.03 times as long as precision bf16 and saves 2.20 MiB (20 %).",
        ]
    );
}

#[test]
fn of_many_precisions_the_fastest_and_the_smallest_are_named() {
    let recipe = recipe(
        "[grid]\n\"precision.compute\" = [\"fp32\", \"bf16\", \"fp16\"]\n\"checkpoint.level\" = [0, 1]\n",
    );
    let of = |cell: &Cell| {
        let (time, peak) = of_level(cell);
        let half = if cell.precision.stored_bytes() < 4 { 2 } else { 1 };
        let slower = if cell.precision.compute == Compute::Fp16 { 1.1 } else { 1.0 };
        (slower * time / half as f64, peak / half)
    };
    let said = said(&recipe, &rows(&recipe, 1, of));
    assert_eq!(
        said,
        [
            "Of 6 ways precision bf16 is the fastest: 204,800 tokens/s (1 process) in 11.0 MiB.",
            "“level 1, precision bf16” needs the least memory: 8.79 MiB, at 176,552 tokens/s (1 process).",
        ]
    );
}

/// The fastest of all that are held to a limit, and nothing about less memory.
#[test]
fn memory_below_a_limit_is_free() {
    let recipe = recipe("[measure]\nmemory_limit = \"1 GiB\"\n[grid]\n\"checkpoint.level\" = [1, 0]\n");
    let said = said(&recipe, &rows(&recipe, 3, of_level));
    let last = said.last().expect("an answer");
    assert_eq!(last, "All are held to 1.00 GiB, and memory below that is free: take level 0.", "{said:?}");
}

/// Another way of tuning learns something else, which time and memory do not say.
#[test]
fn nothing_is_recommended_among_methods_that_learn_differently() {
    let recipe = recipe(
        "[grid]\n\"train.optimizer\" = [{ kind = \"sgd\", lr = 0.1 }, { kind = \"sgd\", lr = 0.2 }]\n",
    );
    let said = said(&recipe, &rows(&recipe, 3, |_| (0.02, 1 << 20)));
    assert!(!said.is_empty() && !said.iter().any(|text| text.contains("ake ")), "{said:?}");
}

/// Packed samples take fewer steps: what they learn is said beside their speed. The padding is the median of both seeds, and
/// the perplexity e¹ and e².
#[test]
fn samplers_are_compared_by_what_is_learned_of_other_text() {
    let recipe = language_recipe(
        "[grid]\n\"data.sampler\" = [\"padded\", \"packed\"]\nseed = [1, 2]\n[report]\nbaseline = { \"data.sampler\" = \"padded\" }\n",
    );
    let row = |cell| {
        let is_padded = format!("{cell:?}").contains("Padded");
        let (seconds, padding, loss) = if is_padded { (4.0, 100, 1.0) } else { (1.0, 0, 2.0) };
        let mut row = loading_row(cell, seconds, &[50, 50], padding, 0);
        let learned = learned_row(cell, vec![5.0; 40], &[(0, 3.0, 0.0), (40, loss, 0.0)]).measurement;
        let m = row.measurement.as_mut().expect("a measured row");
        (m.loss, m.evaluations) = learned.map(|of| (of.loss, of.evaluations)).expect("a measured row");
        row
    };
    let rows: Vec<Row> = recipe.cells.iter().map(row).collect();
    let comparison = Comparison::new(&recipe, &rows);
    let said = Verdict::new(&comparison).expect("an answer").sentences();
    assert_eq!(said.len(), 3, "{said:?}");
    assert_eq!(said[0], "With sampler padded, 50 % of all tokens are padding.");
    assert!(said[2].contains("is 2.718 with") && said[2].contains("; 7.389 with"), "{said:?}");
}

#[test]
fn a_single_row_has_an_answer_and_failed_rows_have_none() {
    let recipe = recipe(LEVELS);
    let rows = rows(&recipe, 1, of_level);
    let one = said(&recipe, &rows[..1]);
    assert!(one.len() == 1 && one[0].starts_with("Keeping all: 102,400 tokens/s, 20.0 ms a step"), "{one:?}");
    let failed: Vec<Row> = recipe.cells.iter().map(|cell| bad_row(cell, Status::Failed, "why")).collect();
    let comparison = Comparison::new(&recipe, &failed);
    assert!(Verdict::new(&comparison).is_none());
}

/// Adapters are faster within each limit; all parameters fit into the larger alone.
#[test]
fn of_several_memory_limits_an_answer_has_the_fastest_within_the_ends() {
    let recipe = language_recipe(
        "[[grid]]\n\"train.batch_size\" = [2, 4]\n\"tuning.method\" = \"bitfit\"\n\"measure.memory_limit\" = \"1 GiB\"\n\
         [[grid]]\n\"train.batch_size\" = [2, 4]\n\"tuning.method\" = [\"full\", \"adapter\"]\n\"measure.memory_limit\" = \"2 GiB\"\n",
    );
    let of = |cell: &Cell| {
        let faster = if cell.tuning.is_full() { 1.0 } else { 0.5 };
        (0.001 * cell.train.batch_size as f64 * faster, 20 << 20)
    };
    let rows = rows(&recipe, 3, of);
    assert_eq!(
        said(&recipe, &rows),
        [
            "Batch size 2: at most 2,048,000 tokens/s within 1.00 GiB and 2,048,000 tokens/s within 2.00 GiB; of all parameters \
             1,024,000 tokens/s within 2.00 GiB.",
            "Batch size 4: at most 1,024,000 tokens/s within 1.00 GiB and 1,024,000 tokens/s within 2.00 GiB; of all parameters \
             512,000 tokens/s within 2.00 GiB.",
        ]
    );
    let comparison = Comparison::new(&recipe, &rows);
    assert_eq!(super::super::page::shown(&comparison).len(), 6, "those of both sizes");
}
