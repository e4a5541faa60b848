//! Every chart at many sizes of grid: no label meets another or leaves the canvas. The boxes are
//! those of the glyphs as resvg lays them out, not those the charts reckon with.

use resvg::usvg::{Group, Node, Rect};

use super::super::table::Comparison;
use super::super::testing::{STUDY, bad_row, language_recipe, language_rows, recipe, rows, step_trace};
use super::*;
use crate::measure::{GradientHistogram, Magnitudes, ScalerRecord};
use crate::recipe::Recipe;
use crate::row::{Row, Status};

fn texts(group: &Group, out: &mut Vec<(String, Rect)>) {
    for node in group.children() {
        match node {
            Node::Group(inner) => texts(inner, out),
            Node::Text(text) => {
                let name: String = text.chunks().iter().map(|chunk| chunk.text().to_string()).collect();
                // The outlines of the glyphs: the metric box has empty room above and below.
                out.push((name, text.flattened().abs_bounding_box()));
            }
            _ => {}
        }
    }
}

pub fn assert_labels_are_apart(chart: &Chart, what: &str) {
    let tree = png::tree(&chart.svg).expect("valid SVG");
    let mut found = Vec::new();
    texts(tree.root(), &mut found);
    assert!(found.len() >= 3, "{what}, {}: only {} labels", chart.name, found.len());
    let (width, height) = (tree.size().width(), tree.size().height());
    for (i, (name, a)) in found.iter().enumerate() {
        assert!(
            a.left() >= 0.0 && a.top() >= 0.0 && a.right() <= width && a.bottom() <= height,
            "{what}, {}: \"{name}\" leaves the canvas: {a:?}",
            chart.name
        );
        for (other, b) in &found[i + 1..] {
            let meet =
                a.left() < b.right() && b.left() < a.right() && a.top() < b.bottom() && b.top() < a.bottom();
            assert!(!meet, "{what}, {}: \"{name}\" {a:?} meets \"{other}\" {b:?}", chart.name);
        }
    }
}

/// RUNNER_CHARTS=folder cargo test never_meet: the pictures, to look at.
fn keep(chart: &Chart, what: &str) {
    if let Ok(folder) = std::env::var("RUNNER_CHARTS") {
        let name = format!("{what}-{}.png", chart.name).replace([' ', ','], "");
        let bytes = png(&chart.svg).expect("PNG");
        std::fs::write(std::path::Path::new(&folder).join(name), bytes).expect("a written PNG");
    }
}

/// Grids from 1 to 240 cells.
fn grids() -> Vec<(&'static str, Recipe)> {
    let grid = |batches: &str, sequences: &str, levels: &str| {
        recipe(&format!(
            "[grid]\n\"train.batch_size\" = {batches}\n\"train.seq_len\" = {sequences}\n\
             \"checkpoint.level\" = {levels}\n"
        ))
    };
    vec![
        ("1 cell", recipe("")),
        ("3 cells", grid("16", "128", "[0, 0.5, 1]")),
        ("6 cells", grid("[4, 8]", "128", "[0, 0.5, 1]")),
        ("15 cells", recipe(STUDY)),
        ("48 cells", grid("[1, 2, 4, 8]", "[128, 256, 512, 1024]", "[0, 0.5, 1]")),
        ("30 shapes", grid("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]", "[100000, 200000]", "[0, 0.5, 1]")),
        (
            "long names",
            recipe(
                "[grid]\n\"seed\" = [1, 2, 3]\n\"measure.memory_limit\" = [\"1 GiB\", \"2500 MB\"]\n\
                 \"train.optimizer.kind\" = [\"sgd\", \"adamw\"]\n\"checkpoint.level\" = [0, 0.5]\n",
            ),
        ),
        (
            "240 cells",
            recipe(
                "[[grid]]\n\"train.batch_size\" = [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]\n\
                 \"train.seq_len\" = [128, 256]\n\"checkpoint.level\" = [0, 0.5, 1]\n\
                 \"precision.compute\" = [\"fp32\", \"bf16\"]\n[[grid]]\n\
                 \"train.batch_size\" = [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]\n\
                 \"train.seq_len\" = [128, 256]\n\"ops.swiglu\" = \"plain\"\n\
                 \"precision.compute\" = [\"fp32\", \"bf16\"]\n",
            ),
        ),
    ]
}

#[test]
fn labels_never_meet() {
    for (what, recipe) in grids() {
        let all = rows(&recipe);
        let of_status = |status: Status| -> Vec<Row> {
            recipe.cells.iter().map(|cell| bad_row(cell, status, "reason")).collect()
        };
        // Every third cell out of memory: among them baselines.
        let mixed: Vec<Row> = all
            .iter()
            .zip(of_status(Status::Oom))
            .enumerate()
            .map(|(i, (ok, oom))| if i % 4 == 0 { oom } else { ok.clone() })
            .collect();
        let mut one = of_status(Status::Failed);
        one[0] = all[0].clone();
        let cases = [("ok", all), ("oom", mixed), ("failed", one)];
        for (case, rows) in &cases {
            let comparison = Comparison::new(&recipe, rows);
            for chart in draw(&comparison).expect("charts") {
                assert_labels_are_apart(&chart, &format!("{what}, {case}"));
                keep(&chart, &format!("{what}-{case}"));
            }
        }
    }
}

/// Pictures stay of a size that a page holds, and say what they leave out.
#[test]
fn charts_of_500_cells_are_readable_and_their_labels_never_meet() {
    let numbers = |of: fn(usize) -> String| (1..=500).map(of).collect::<Vec<_>>().join(", ");
    let methods = format!("\"train.optimizer.lr\" = [{}]", numbers(|i| format!("{i}e-5")));
    let sizes = format!("\"train.batch_size\" = [{}]", numbers(|i| i.to_string()));
    for (what, axis) in [("500 methods", methods), ("500 sizes", sizes)] {
        let recipe = recipe(&format!(
            "optimizer = {{ kind = \"sgd\", lr = 0.1 }}\n[measure]\nsteps = 2\n[grid]\n{axis}\n"
        ));
        let rows = rows(&recipe);
        let charts = draw(&Comparison::new(&recipe, &rows)).expect("charts");
        assert!(charts.iter().any(|chart| chart.name == "time"));
        for chart in charts {
            assert_labels_are_apart(&chart, what);
            let height = png::tree(&chart.svg).expect("valid SVG").size().height();
            assert!(height < 1300.0, "{what}, {}: {height} pixels", chart.name);
            let left_out =
                ["Not drawn: 446 more", "Shown are 6 of"].iter().any(|said| chart.caption.contains(said));
            let is_whole = chart.name.starts_with("lines") || chart.name == "methods";
            assert!(left_out || is_whole, "{what}, {}: {}", chart.name, chart.caption);
            keep(&chart, what);
        }
    }
}

/// Language models: how many cells, how many steps, names short and long.
fn trainings() -> Vec<(String, Recipe, usize)> {
    let rates = "\"train.optimizer.lr\" = [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3]";
    let grids = [
        ("1 cell", String::new()),
        ("2 cells", "[grid]\n\"train.optimizer.lr\" = [1e-3, 2e-3]\n".into()),
        ("6 cells", format!("[grid]\n{rates}\n")),
        ("12 sizes and methods", format!("[grid]\n{rates}\n\"train.batch_size\" = [4, 8]\n")),
        ("12 methods", format!("[grid]\n{rates}\n\"model.positions\" = [\"learned\", \"sinusoidal\"]\n")),
        (
            "long names",
            "[grid]\n\"train.optimizer.lr\" = [1.25e-3, 2.125e-3]\n\"train.clip_norm\" = [0.5, 1]\n\
             \"model.positions\" = [\"learned\", \"sinusoidal\"]\n\
             \"train.schedule\" = { kind = \"cosine\", warmup_steps = 5 }\n\
             \"ops.norm\" = \"plain\"\n\"measure.memory_limit\" = \"2500 MB\"\n[report]\n\
             baseline = { \"train.clip_norm\" = 1 }\n"
                .into(),
        ),
    ];
    let both = |(what, grid): (&str, String)| {
        [20, 2000].map(|steps| (format!("{what}, {steps} steps"), language_recipe(&grid), steps))
    };
    grids.into_iter().flat_map(both).collect()
}

#[test]
fn labels_of_curves_never_meet() {
    for (what, recipe, steps) in trainings() {
        let rows = language_rows(&recipe, steps);
        for chart in draw(&Comparison::new(&recipe, &rows)).expect("charts") {
            assert_labels_are_apart(&chart, &what);
            keep(&chart, &what);
        }
    }
}

#[test]
fn labels_of_scales_and_gradients_never_meet() {
    let recipe = language_recipe(
        "[precision]\ncompute = \"fp16\"\nautocast = true\n[grid]\n\"precision.scaler\" = [\
         { kind = \"dynamic\" }, { kind = \"static\", scale = 0.0001 }, { kind = \"static\", scale = 1 }, \
         { kind = \"static\", scale = 1024 }, { kind = \"static\", scale = 2048 }, { kind = \"static\", scale = 65536 }, \
         { kind = \"static\", scale = 16777216 }]\nseed = [1, 2, 3]\n",
    );
    let mut rows = language_rows(&recipe, 40);
    for (i, row) in rows.iter_mut().enumerate() {
        let scaler = recipe.cells[i].precision.scaler.expect("every cell has one");
        let measured = row.measurement.as_mut().expect("a measured row");
        let scale = scaler.first_scale() as f32;
        let updates: Vec<Vec<f32>> = (0..40)
            .map(|step| {
                // A dynamic scale grows.
                let grown = if i < 3 { scale * (1 + step / 20) as f32 } else { scale };
                vec![f32::from(u8::from(step > i)), grown]
            })
            .collect();
        measured.scaler = Some(ScalerRecord::new(scaler.first_scale(), &updates));
        let mut activations = Magnitudes::default();
        activations.add(&(0..500).map(|n| (n as f32 / 50.0 - 8.0).exp() * scale).collect::<Vec<_>>());
        let parameters = activations.clone();
        let scale = f64::from(scale);
        measured.gradient_histogram = Some(GradientHistogram { scale, activations, parameters });
    }
    // One scale diverged with every seed.
    for (row, cell) in rows.iter_mut().zip(&recipe.cells).skip(18) {
        *row = bad_row(cell, Status::Diverged, "every step was skipped");
    }
    let charts = draw(&Comparison::new(&recipe, &rows)).expect("charts");
    for name in ["scales", "growth", "gradients"] {
        let chart = charts.iter().find(|chart| chart.name == name).expect("it is drawn");
        assert_labels_are_apart(chart, "scalers");
        keep(chart, "scalers");
        assert_eq!(chart.svg.contains("diverged"), name == "scales");
    }
}

#[test]
fn texts_are_as_wide_as_reckoned() {
    for text in ["level 0.5, limit 1.00 GiB, adamw", "16×128, hidden size 512", "1.31x · 12.3 ms", "…"] {
        let svg = canvas::svg("", 60, |canvas| {
            canvas.text(text, (100, 30), canvas::TEXT, canvas::INK, canvas::Anchor::Left)
        });
        let mut found = Vec::new();
        texts(png::tree(&svg.expect("SVG")).expect("valid SVG").root(), &mut found);
        let (drawn, reckoned) = (found[0].1.width(), canvas::text_width(text, canvas::TEXT) as f32);
        // Outlines start and end a little within their advances.
        assert!(drawn <= reckoned && drawn > reckoned - 4.0, "{text}: {drawn} of {reckoned}");
    }
}

/// A title of several lines moves all below it down, the areas under the pointer too.
#[test]
fn a_long_title_is_wrapped_and_not_cut() {
    let cell = "overlap, activations on host, autocast, 4 micro-batches, sgd at 64×1024 with a name for which one line has no room";
    let trace = step_trace();
    let steps = ["naive", "overlap"].map(|name| (name.to_string(), trace.as_slice()));
    let [short, long] = ["level 0", cell]
        .map(|title| compared("strategies", title, &steps).expect("a chart").expect("two steps"));
    assert_labels_are_apart(&long, "long title");
    keep(&long, "long title");
    let mut found = Vec::new();
    texts(png::tree(&long.svg).expect("valid SVG").root(), &mut found);
    let lines: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).take(2).collect();
    assert_eq!(lines.join(" "), cell);
    let height = |chart: &Chart| png::tree(&chart.svg).expect("valid SVG").size().height();
    assert_eq!(height(&long) - height(&short), 22.0);
    let hover = canvas::svg(cell, 60, |canvas| {
        canvas.hover((5, 50), (9, 60), "here");
        Ok(())
    });
    assert!(hover.expect("SVG").contains("x=\"5\" y=\"72\""));
}

#[test]
fn charts_that_need_several_values_are_left_out() {
    let names = |recipe: &Recipe, rows: &[Row]| -> Vec<String> {
        let charts = draw(&Comparison::new(recipe, rows)).expect("charts");
        charts.into_iter().map(|chart| chart.name).collect()
    };
    let of_several = |recipe: &Recipe| -> Vec<String> {
        let names = names(recipe, &rows(recipe));
        names.into_iter().filter(|name| name == "pareto" || name.starts_with("lines-")).collect()
    };
    assert!(names(&recipe(""), &rows(&recipe(""))).is_empty(), "one bar is a number");
    let study = recipe(STUDY);
    // The batch size has two values while the others are held.
    assert_eq!(of_several(&study), ["pareto"]);
    let sizes = recipe("[grid]\n\"train.batch_size\" = [1, 2, 4]\n\"checkpoint.level\" = [0, 1]\n");
    assert_eq!(of_several(&sizes), ["lines-train-batch-size", "pareto"]);
    assert!(names(&study, &[]).is_empty());
}
