//! Shapes, methods and baselines of recipes.

use super::*;
use crate::report::testing::recipe;

#[test]
fn of_several_baselines_a_cell_has_the_one_most_like_it() {
    let recipe = recipe(
        "[grid]\n\"checkpoint.level\" = [0, 1]\n\"precision.compute\" = [\"fp32\", \"bf16\"]\n\
         [report]\nbaseline = { \"checkpoint.level\" = 0 }\n",
    );
    let lines = Comparison::new(&recipe, &[]).lines;
    // Level 0 in bf16 is a baseline, and has one.
    assert_eq!(lines.iter().map(|line| line.baseline).collect::<Vec<_>>(), [0, 0, 0, 1].map(Some));
    assert_eq!(lines.iter().map(|line| line.nearest).collect::<Vec<_>>(), [false, false, false, true]);
}
/// A graph that no fp32 baseline lacks and the bf16 one does: the precision counts more than all else.
#[test]
fn a_cell_is_compared_within_its_precision() {
    let settings =
        [("fp32", true, 4), ("bf16", false, 3), ("bf16", true, 4)].map(|(compute, graph, level)| {
            Settings::from_iter([
                ("precision.compute".to_string(), compute.into()),
                ("train.graph".to_string(), graph.into()),
                ("checkpoint.blocks".to_string(), level.into()),
            ])
        });
    let nearest = nearest_baselines(&[true, true, false], &[0; 3], &settings);
    assert_eq!(nearest, [Some(0), Some(0), Some(1)]);
}

#[test]
fn a_size_of_the_baseline_divides_no_shapes() {
    let grid = "[grid]\n\"train.seq_len\" = [64, 128]\n\"checkpoint.level\" = [0, 1]\n";
    let report = "[report]\nbaseline = { \"checkpoint.level\" = 0, \"train.seq_len\" = 64 }\n";
    let [apart, one] = ["", report].map(|report| {
        let recipe = recipe(&format!("{grid}{report}"));
        let comparison = Comparison::new(&recipe, &[]);
        let baselines: Vec<Option<usize>> = comparison.lines.iter().map(|line| line.baseline).collect();
        (comparison.shapes.len(), comparison.methods, baselines)
    });
    assert_eq!((apart.0, apart.2), (2, [0, 0, 2, 2].map(Some).into()));
    assert_eq!((one.0, one.2), (1, [0, 0, 0, 0].map(Some).into()));
    let labels = [
        "sequence length 64",
        "level 1, sequence length 64",
        "sequence length 128",
        "level 1, sequence length 128",
    ];
    assert_eq!(one.1, labels);
}

/// The recipe names fp32 in its baseline, and level 1 in bf16 is still compared with level 0 in bf16.
#[test]
fn a_baseline_has_a_twin_in_each_precision() {
    let grid = "[grid]\n\"checkpoint.level\" = [0, 1]\n\"precision.compute\" = [\"fp32\", \"bf16\"]\n";
    let report = "[report]\nbaseline = { \"checkpoint.level\" = 0, \"precision.compute\" = \"fp32\" }\n";
    for report in ["", report] {
        let recipe = recipe(&format!("{grid}{report}"));
        let lines = Comparison::new(&recipe, &[]).lines;
        assert_eq!(lines.iter().map(|line| line.baseline).collect::<Vec<_>>(), [0, 0, 0, 1].map(Some));
    }
    // Where precisions alone differ, that is what is asked.
    let recipe = recipe("[grid]\n\"precision.compute\" = [\"fp32\", \"bf16\"]\n");
    assert_eq!(Comparison::new(&recipe, &[]).lines[1].baseline, Some(0));
}
