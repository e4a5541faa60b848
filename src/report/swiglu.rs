//! The SwiGLU operator in the report: the derivation of its gradients, and the bytes that each checkpoint level keeps.

use itertools::Itertools;

use super::document::{Element, Table};
use super::line::Line;
use super::table::Comparison;
use crate::model::Model;
use crate::ops::cost::Setting;
use crate::ops::dense::WeightLayout;
use crate::ops::{Level, Ops, swiglu};
use crate::recipe::Cell;
use crate::words::Bytes;
use crate::words::text::percent;

/// Levels and what they keep from forward to backward besides the weights.
const KEPT: [(Level, &str); 3] =
    [(Level::Keep, "x, a, s, b"), (Level::Elementwise, "x, a, b"), (Level::Full, "x")];

/// Blocks for recipes of SwiGLU stacks; none for others.
pub fn elements(comparison: &Comparison) -> Vec<Element> {
    let rows = kept_rows(comparison);
    if rows.is_empty() {
        return Vec::new();
    }
    let header = ["sizes", "tokens N", "hidden H", "intermediate I", "element"];
    let levels = KEPT.iter().map(|(level, kept)| format!("level {level}: {kept}"));
    vec![
        Element::heading("What each level keeps"),
        Element::paragraph(
            "Bytes that one SwiGLU layer keeps from forward to backward, its weights not counted. Level 0 keeps the \
             input x, the matmul results a = xW and b = xV and the activation s = SiLU(a), N(H + 3I) elements; level \
             0.5 recomputes s and keeps N(H + 2I); level 1 keeps only x, NH elements, and repeats the two matmuls.",
        ),
        Element::Table(Table {
            caption: "Bytes kept per layer, and how much less than level 0.".into(),
            header: header.iter().map(|h| h.to_string()).chain(levels).collect(),
            rows,
            texts: 1,
            left_out: 0,
        }),
        Element::heading("The gradients of SwiGLU"),
        Element::Derivation { markup: include_str!("swiglu.typ") },
    ]
}

/// One row for each shape and element size.
fn kept_rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let row = |line: &Line| {
        let (tokens, hidden, intermediate) = sizes(line.cell)?;
        let kept = |level| {
            let setting = Setting { level, ops: Ops::default(), ..line.cell.workload().setting() };
            let cost = swiglu::cost(&setting, [hidden, intermediate], WeightLayout::InOut);
            cost.input + cost.kept
        };
        let all = kept(Level::Keep);
        let mut row = vec![comparison.shapes[line.shape].label.clone()];
        row.extend([tokens, hidden, intermediate].map(|n| n.to_string()));
        row.push(format!("{} B", line.cell.precision.compute.bytes()));
        row.extend(KEPT.map(|(level, _)| match (kept(level), all - kept(level)) {
            (bytes, 0) => Bytes(bytes).to_string(),
            (bytes, less) => format!("{} (−{})", Bytes(bytes), percent(less as f64 / all as f64)),
        }));
        Some(row)
    };
    comparison.lines.iter().filter_map(row).unique().collect()
}

/// N, H and I of a SwiGLU stack.
fn sizes(cell: &Cell) -> Option<(u64, u64, u64)> {
    match &cell.model {
        Model::Swiglu(config) => {
            Some((cell.train.tokens() as u64, config.hidden_size as u64, config.intermediate_size as u64))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{STUDY, recipe};
    use super::*;

    #[test]
    fn kept_bytes_by_hand() {
        let recipe = recipe(STUDY);
        let rows = kept_rows(&Comparison::new(&recipe, &[]));
        assert_eq!(rows.len(), 5);
        // N = 16·128 = 2048, H = 512, I = 2048, 4 bytes: 2048·(512 + 6144)·4 = 52 MiB,
        // 2048·(512 + 4096)·4 = 36 MiB (31 % less), 2048·512·4 = 4 MiB (92 % less).
        assert_eq!(
            rows[0],
            ["16×128, 512", "2048", "512", "2048", "4 B", "52.0 MiB", "36.0 MiB (−31 %)", "4.00 MiB (−92 %)"]
        );
    }
}
