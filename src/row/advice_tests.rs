//! What advice chooses in a space of cells that were all measured, `results/advise_space`.

use std::path::{Path, PathBuf};

use itertools::Itertools;

use super::ceilings::highest;
use super::estimate_tests::files;
use super::{Row, Status};
use crate::advise::{Limits, Plan, Rates};
use crate::common::DeviceId;
use crate::recipe::Cell;

/// Cells that ran fit by the prediction and those that were out of memory do not; the one that the prediction takes for the
/// fastest of those that fit is the fastest that was measured.
#[test]
fn what_fits_and_what_is_fastest_is_predicted() {
    let mut paths: Vec<PathBuf> = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("results/advise_space"), "rows", &mut paths);
    let read = |path: &PathBuf| -> Row {
        serde_json::from_slice(&std::fs::read(path).expect("a row")).expect("a row of this version")
    };
    let rows: Vec<Row> = paths.iter().map(read).collect();
    let device = &rows[0].environment.device;
    let rates = Rates::of(DeviceId::named(&device.id), highest(&rows)[&*device.name]);
    let planned = |row: &Row| {
        let cell = Cell::from_json(&row.cell).expect("a cell");
        let memory = cell.measure.memory_limit.map_or(device.memory_available, |limit| limit.0);
        let plan = Plan::new(cell.within(memory), Some(&rates));
        let fits = plan.fits(Limits { memory, host_memory: None });
        (plan, fits)
    };
    let plans: Vec<(Plan, bool)> = rows.iter().map(planned).collect();
    let all = || rows.iter().zip(&plans);
    let count = |status: Status, fits: bool| {
        all().filter(|(row, (_, predicted))| row.status == status && *predicted == fits).count()
    };
    assert_eq!([count(Status::Ok, false), count(Status::Oom, true)], [0, 0]);
    assert!(count(Status::Ok, true) >= 60 && count(Status::Oom, false) >= 5);

    let step = |row: &Row| row.measurement.as_ref().map_or(f64::INFINITY, |measured| measured.step.median);
    let fitting = all().filter(|(_, (_, fits))| *fits);
    let by_prediction = |(_, (plan, _)): &(&Row, &(Plan, bool))| plan.seconds().expect("known rates");
    let (chosen, _) = fitting.min_by(|a, b| by_prediction(a).total_cmp(&by_prediction(b))).expect("one fits");
    let fastest = rows.iter().min_by(|a, b| step(a).total_cmp(&step(b))).expect("rows");
    assert_eq!(chosen.name(), fastest.name(), "{} and {} s", step(chosen), step(fastest));

    let errors = all()
        .filter(|(row, _)| row.status == Status::Ok)
        .map(|(row, (plan, _))| (plan.seconds().expect("known rates") / step(row) - 1.0).abs());
    let errors = errors.collect_vec();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(mean < 0.15, "the time is off by {mean} in the mean");
}
