//! Page 1 of made-up rows.

use super::super::testing::{bad_row, language_recipe, loading_row, ok_row, recipe};
use super::*;
use crate::recipe::{Cell, Recipe};
use crate::row::Row;

fn page(recipe: &Recipe, rows: &[Row]) -> Table {
    let comparison = Comparison::new(recipe, rows);
    table(&comparison, &shown(&comparison)).expect("a table")
}

#[test]
fn a_table_has_memory_rate_and_ratio_with_their_intervals() {
    let recipe = language_recipe("[grid]\n\"offload.strategy\" = [\"none\", \"naive\"]\n");
    let row = |cell: &Cell, repeat: usize| {
        let moves = cell.settings()["offload.strategy"] != "none";
        let time = if moves { 0.02 } else { 0.01 } * (0.98 + 0.01 * repeat as f64);
        let mut row = Row { repeat, ..ok_row(cell, time / 2.2, time / 2.0, 40 << 20) };
        let memory = &mut row.measurement.as_mut().expect("a measured row").memory;
        memory.driver_peak = Some(64 << 20);
        memory.pinned = moves.then_some(8 << 20);
        memory.host = moves.then_some(8 << 20);
        row
    };
    let rows: Vec<Row> =
        recipe.cells.iter().flat_map(|cell| [1, 2, 3].map(|repeat| row(cell, repeat))).collect();
    let table = page(&recipe, &rows);
    assert_eq!(
        table.header,
        ["method", "device memory, by the driver", "of it in tensors", "host memory", "tokens/s", "× time"]
    );
    assert_eq!(table.rows[0], ["offload none", "64.0 MiB", "40.0 MiB", "–", "204,800 ± 5,088", "–"]);
    assert_eq!(
        table.rows[1],
        ["offload naive", "64.0 MiB", "40.0 MiB", "16.0 MiB", "102,400 ± 2,544", "2.00 ± 0.05"]
    );
    let single = page(&recipe, &[rows[0].clone(), rows[3].clone()]);
    assert_eq!(single.header.last().map(String::as_str), Some("× time (1 process)"));
    assert_eq!(single.rows[1][5], "2.00");
    assert!(single.caption.contains("no difference in time is claimed"), "{}", single.caption);
}

/// 14 rates, of which the last one is the fastest: it and the baseline are among the twelve.
#[test]
fn at_most_twelve_methods_are_shown_and_those_of_the_answer_are_among_them() {
    let rates: Vec<String> = (1..=14).map(|i| format!("1e-{i}")).collect();
    let recipe = language_recipe(&format!("[grid]\n\"train.optimizer.lr\" = [{}]\n", rates.join(", ")));
    let row = |(i, cell): (usize, &Cell)| match i {
        13 => ok_row(cell, 0.01, 0.01, 1 << 20),
        _ => ok_row(cell, 0.02, 0.02, 2 << 20),
    };
    let rows: Vec<Row> = recipe.cells.iter().enumerate().map(row).collect();
    let table = page(&recipe, &rows);
    let methods: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!((methods.len(), methods[0], methods[11]), (12, "lr 0.1", "lr 1e-14"));
    assert!(table.caption.contains("In the appendix: 2 more methods"), "{}", table.caption);
}

#[test]
fn a_cell_without_a_result_says_how_it_ended() {
    let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 1]\n");
    let rows = [
        bad_row(&recipe.cells[0], Status::Oom, "needs 9 GiB"),
        ok_row(&recipe.cells[1], 0.01, 0.02, 1 << 20),
    ];
    let table = page(&recipe, &rows);
    assert_eq!(table.header, ["method", "peak memory", "step time"]);
    assert_eq!(table.rows, [["level 0", "–", "oom"], ["level 1", "1.00 MiB", "31.0 ms"]]);
}

/// Each rung beside the one before it: 250, 500 and 500 real tokens a second.
#[test]
fn a_ladder_tells_one_effect_after_the_other() {
    let ladder = "[[ladder]]\nname = \"plain\"\nwhy = \"The loop waits.\"\n\
                  [[ladder]]\nname = \"prefetching\"\nset = { \"data.num_workers\" = 2 }\n\
                  [[ladder]]\nname = \"more\"\nset = { \"data.num_workers\" = 3 }\n";
    let sampler = "[data]\ncorpus = \"generated\"\nsize = \"1 MiB\"\nvocab_size = 1024\nsampler = \"padded\"\nnum_workers = 1\n";
    let text = language_recipe("")
        .text
        .replace("[data]\ncorpus = \"generated\"\nsize = \"1 MiB\"\nvocab_size = 1024\n", sampler);
    let source = crate::recipe::Source { path: "r.toml".into(), text: text + ladder };
    let recipe = Recipe::parse(&source).expect("a valid recipe");
    let row = |(cell, seconds): (_, f64)| loading_row(cell, seconds, &[250, 250], 100, 0);
    let rows: Vec<Row> = recipe.cells.iter().zip([2.0, 1.0, 1.0]).map(row).collect();
    let table = page(&recipe, &rows);
    let place = table.header.iter().position(|of| of.starts_with("× row before")).expect("a ratio");
    let gains: Vec<&str> = table.rows.iter().map(|row| row[place].as_str()).collect();
    assert_eq!(gains, ["–", "2.00", "1.00"]);
    let comparison = Comparison::new(&recipe, &rows);
    let verdict = Verdict::new(&comparison).expect("measured");
    assert_eq!(techniques(&comparison, &shown(&comparison)), ["Plain: The loop waits."]);
    let said = verdict.sentences();
    assert!(
        said[0].starts_with("All rungs together train on 2.00 times the real tokens a second of plain"),
        "{said:?}"
    );
    assert!(
        said[0].contains("prefetching gains most, 2.00 times the rung before (1 process each)"),
        "{said:?}"
    );
}

#[test]
fn each_technique_has_its_sentence() {
    let recipe = language_recipe(
        "[grid]\n\"offload.strategy\" = [\"none\", \"naive\"]\n\"train.graph\" = false\n\"checkpoint.blocks\" = [0, 1]\n",
    );
    let comparison = Comparison::new(&recipe, &[]);
    let said = techniques(&comparison, &comparison.groups());
    assert_eq!(
        said,
        [
            "Checkpoint blocks – Blocks of a segment: only its input is kept, and backward computes it again; 0: no segments.",
            "Offload none – Blocks stay on the device.",
            "Offload naive – Each block is copied in, computes and is released; the host waits for every copy.",
        ]
    );
}

/// Values of one section share a sentence, which says how they differ.
#[test]
fn techniques_of_one_sentence_stand_together() {
    let recipe = language_recipe("[grid]\n\"train.optimizer.kind\" = [\"sgd\", \"adamw\", \"adamw8bit\"]\n");
    let comparison = Comparison::new(&recipe, &[]);
    let said = techniques(&comparison, &comparison.groups());
    assert_eq!(
        said,
        [
            "Optimizer sgd – Stochastic gradient descent, as torch.optim.SGD.",
            "Optimizer adamw, adamw8bit – AdamW (Loshchilov and Hutter 2019), as torch.optim.AdamW; adamw8bit keeps its moments in 8 bits, adamw_bf16 in bf16.",
        ]
    );
}
