//! Estimates against what was measured: every committed row of a cell that ran to its end.

use std::path::{Path, PathBuf};

use super::Row;
use crate::recipe::Cell;

fn rows(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            rows(&path, found);
        } else if path.parent().is_some_and(|folder| folder.ends_with("rows")) {
            found.push(path);
        }
    }
}

#[test]
fn estimates_are_near_what_was_measured() {
    let mut paths = Vec::new();
    rows(&Path::new(env!("CARGO_MANIFEST_DIR")).join("results"), &mut paths);
    paths.sort();
    for path in paths {
        let row: Row = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let Some(m) = row.measurement.clone() else { continue };
        let mut cell = Cell::from_json(row.cell.clone()).unwrap();
        if let Some([b, s]) = m.loading.as_ref().and_then(|l| l.largest_batch) {
            (cell.train.batch_size, cell.train.seq_len) = (b, s);
        }
        let mem = &m.memory;
        let ratio = cell.estimate().total() as f64 / mem.live_peak as f64;
        let phases = cell.outline().phases(&cell.workload());
        let kept = mem.after_forward;
        let name = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
        let d = |a: u64, b: u64| (a as i64 - b as i64) as f64 / 1e6;
        println!("{ratio:.4} {name:60} live {:9.1} fwd {:8.1} bwd {:8.1} opt {:8.1} after {:8.1}", mem.live_peak as f64/1e6, d(phases[0], mem.forward_peak), d(phases[1], mem.backward_peak), d(phases[2], mem.optimizer_peak), d(phases[3], kept));
    }
}
