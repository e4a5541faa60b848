//! Learning curves of made-up losses.

use super::super::super::testing::{language_recipe, language_rows, learned_row, recipe, rows};
use super::panel::{apart, thin};
use super::*;

fn names(charts: &[Chart]) -> Vec<&str> {
    charts.iter().map(|chart| chart.name.as_str()).collect()
}

#[test]
fn only_language_models_that_trained_have_curves() {
    let network = recipe("");
    let mut long = rows(&network);
    long[0].measurement.as_mut().expect("a measured row").loss = vec![1.0; 100];
    assert!(curves(&Comparison::new(&network, &long)).expect("charts").is_empty());
    let model = language_recipe("");
    let drawn = |losses: usize, evaluations: &[(usize, f64, f64)]| {
        let falling = (0..losses).map(|step| 5.0 - 0.1 * step as f64).collect();
        let rows = [learned_row(&model.cells[0], falling, evaluations)];
        curves(&Comparison::new(&model, &rows)).expect("charts").len()
    };
    assert_eq!((drawn(19, &[]), drawn(20, &[]), drawn(3, &[(0, 7.0, 0.0)])), (0, 1, 1));
}

#[test]
fn a_running_mean_and_its_window() {
    let recipe = language_recipe("");
    let losses: Vec<f64> = (0..1000).map(|step| if step % 2 == 0 { 4.0 } else { 6.0 }).collect();
    let rows = [learned_row(&recipe.cells[0], losses, &[])];
    let comparison = Comparison::new(&recipe, &rows);
    let measured = trained(&comparison.lines[0]).expect("a trained model");
    let curve = Curve { sign: 0, measured, base: None, tokens: None };
    let means = curve.means();
    // 21 steps around step 500, 11 of them even; at the start the 11 that there are, 6 of them even.
    assert_eq!(
        (means[500].1, means[0].1),
        ((11.0 * 4.0 + 10.0 * 6.0) / 21.0, (6.0 * 4.0 + 5.0 * 6.0) / 11.0)
    );
    let charts = curves(&comparison).expect("charts");
    assert!(charts[0].caption.contains("its mean over 2 % of the steps"), "{}", charts[0].caption);
}

#[test]
fn too_many_curves_are_split_by_sizes_or_left_out_by_name() {
    let grid = "[grid]\n\"train.optimizer.lr\" = [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3]\n";
    let by_size = language_recipe(&format!("{grid}\"train.batch_size\" = [4, 8]\n"));
    let rows = language_rows(&by_size, 30);
    let charts = curves(&Comparison::new(&by_size, &rows)).expect("charts");
    assert_eq!(names(&charts), ["curves-1", "curves-2"]);
    assert!(charts[1].svg.contains("Learning curves at batch size 8"));

    let one_size = language_recipe(
        "[grid]\n\"train.optimizer.lr\" = [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 7e-3, 8e-3, 9e-3]\n",
    );
    // The last losses rise with the learning rate, but for the baseline's, which is the highest.
    let ends = [9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let rows: Vec<_> = one_size
        .cells
        .iter()
        .zip(ends)
        .map(|(cell, end)| learned_row(cell, vec![9.0; 30], &[(0, 9.5, 0.0), (30, end, 0.1)]))
        .collect();
    let charts = curves(&Comparison::new(&one_size, &rows)).expect("charts");
    assert_eq!(names(&charts), ["curves"]);
    assert!(
        charts[0].caption.ends_with("nearer to the baseline at the end: lr 0.007, lr 0.008 and lr 0.009."),
        "{}",
        charts[0].caption
    );
    assert!(!charts[0].svg.contains("lr 0.009") && charts[0].svg.contains("lr 0.001"));
}

#[test]
fn runs_that_agree_are_one_curve_with_their_names() {
    let recipe = language_recipe("[grid]\n\"train.optimizer.lr\" = [1e-3, 2e-3, 3e-3]\n");
    let falling = |more: f64| (0..30).map(|step| 6.0 - 0.1 * f64::from(step) + more).collect::<Vec<f64>>();
    let ends = [0.0, 0.001, 0.5];
    let rows: Vec<_> =
        recipe.cells.iter().zip(ends).map(|(cell, more)| learned_row(cell, falling(more), &[])).collect();
    let charts = curves(&Comparison::new(&recipe, &rows)).expect("charts");
    assert!(charts[0].svg.contains("lr 0.001 and lr 0.002") && charts[0].svg.contains("lr 0.003"));
    assert!(
        charts[0].caption.contains("nowhere by more than 0.2 % of the first loss"),
        "{}",
        charts[0].caption
    );
}

#[test]
fn a_loss_that_blows_up_hides_no_other() {
    let recipe = language_recipe("[grid]\n\"train.optimizer.lr\" = [1e-3, 1.0]\n");
    let mut rows = language_rows(&recipe, 60);
    rows[1].measurement.as_mut().expect("a measured row").loss =
        [7.0, 8.0, 1e30].into_iter().chain([9.0; 20]).collect();
    let charts = curves(&Comparison::new(&recipe, &rows)).expect("charts");
    assert!(
        charts[0].caption.contains("Losses above 10.5 are drawn at the upper edge"),
        "{}",
        charts[0].caption
    );
}

#[test]
fn thinned_lines_keep_their_extremes() {
    assert_eq!(
        thin(vec![(0, 5), (0, 9), (0, 1), (0, 4), (1, 3), (2, 2), (2, 2)]),
        [(0, 9), (0, 1), (1, 3), (2, 2)]
    );
    assert_eq!(apart(vec![(0, 1), (10, 2), (20, 3), (30, 4)]), [(30, 4), (10, 2)]);
}
