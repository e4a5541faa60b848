//! For tests: an executor with scripted outcomes, and a recipe, a device and measurements for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::build;
use super::executor::{Executor, Job, Outcome};
use super::process::ProcessExecutor;
use super::progress::{Label, Progress};
use crate::device::{Ceilings, DeviceInfo};
use crate::measure::{Measurement, MemoryUse, Samples};
use crate::recipe::tests::BASE;
use crate::recipe::{Recipe, Source};
use crate::row::{Environment, Row};
use crate::train::protocol::{Advance, Event};

/// Three cells of one process each, with batch sizes 1, 2 and 3.
pub fn recipe() -> Recipe {
    recipe_with("[grid]\n\"train.batch_size\" = [1, 2, 3]\n")
}

pub fn recipe_with(grid: &str) -> Recipe {
    let text = format!("device = \"cpu\"\n{BASE}[measure]\nrepeats = 1\n{grid}");
    Recipe::parse(&Source { path: "recipes/three.toml".into(), text }).unwrap()
}

pub fn device() -> DeviceInfo {
    DeviceInfo {
        id: "cpu".into(),
        name: "Test CPU @ 1 GHz".into(),
        memory_total: 1 << 34,
        memory_available: 1 << 33,
        cores: 1,
        threads: 1,
        driver: None,
        cuda: None,
        compute_capability: None,
    }
}

pub fn environment() -> Environment {
    Environment {
        runner_version: env!("CARGO_PKG_VERSION").into(),
        commit: build::COMMIT.into(),
        build: build::SOURCES.into(),
        device: device(),
        ceilings: Ceilings::default(),
        operating_system: "test".into(),
        date: "2000-01-01T00:00:00Z".into(),
    }
}

/// A measurement whose every time is `seconds`.
pub fn measurement(seconds: f64) -> Measurement {
    let samples = || Samples::new(vec![seconds]);
    Measurement {
        host_update: None,
        disk_rate: None,
        forward: Some(samples()),
        backward: Some(samples()),
        optimizer: None,
        step: samples(),
        tokens_per_second: 1.0,
        run_seconds: None,
        loss: vec![1.0],
        evaluations: Vec::new(),
        answers: Vec::new(),
        continuations: Vec::new(),
        feature_distance: None,
        scaler: None,
        gradient_norm: None,
        gradient_histogram: None,
        memory: MemoryUse::default(),
        paths: Default::default(),
        resumed: Vec::new(),
        unsaved: Vec::new(),
        ranks: Vec::new(),
        flops_per_second: 1.0,
        begin_seconds: None,
        prepare_seconds: None,
        resident_blocks: None,
        crossings: Vec::new(),
        loading: None,
    }
}

/// An executor whose processes run a script.
pub fn shell(script: &str) -> ProcessExecutor {
    ProcessExecutor { program: "/bin/sh".into(), args: vec!["-c".into(), script.into()] }
}

/// The last line of a cell that ends well.
pub fn done_event() -> String {
    let event = Event::Done { measurement: Box::new(measurement(0.5)) };
    serde_json::to_string(&event).unwrap()
}

/// A script with the number of its rank as `$rank`, and [`done_event`] as `$done`.
pub fn of_ranks(script: &str) -> String {
    format!(
        "read -r line; rank=${{line##*\\\"rank\\\":}}; rank=${{rank%%,*}}; done='{}'\n{script}",
        done_event()
    )
}

/// Notes the batch size of each cell it runs and answers as `script` says.
pub struct MockExecutor<F> {
    pub ran: Mutex<Vec<usize>>,
    script: F,
}

impl<F: Fn(usize, &AtomicBool) -> Outcome + Sync> MockExecutor<F> {
    /// `script` gets the cell's batch size and the flag that Ctrl-C sets.
    pub fn new(script: F) -> Self {
        Self { ran: Mutex::default(), script }
    }

    /// The batch sizes run since the last call.
    pub fn take_ran(&self) -> Vec<usize> {
        std::mem::take(&mut self.ran.lock().unwrap())
    }
}

impl<F: Fn(usize, &AtomicBool) -> Outcome + Sync> Executor for MockExecutor<F> {
    fn run(&self, job: Job, on_advance: &mut dyn FnMut(Advance), cancel: &AtomicBool) -> Outcome {
        let cell = job.cell;
        self.ran.lock().unwrap().push(cell.train.batch_size);
        on_advance(Advance::Step { done: 1, of: 1, record: None });
        let outcome = (self.script)(cell.train.batch_size, cancel);
        if cancel.load(Relaxed) { Outcome::Cancelled } else { outcome }
    }
}

/// Notes every call.
#[derive(Default)]
pub struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    pub fn all(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

impl Progress for Recorder {
    fn begin(&self, cells: &[Label]) {
        self.note(format!("begin {}", cells.len()));
    }
    fn cell_started(&self, cell: &Label) {
        self.note(format!("start {}", cell.number));
    }
    fn cell_advanced(&self, cell: &Label, advance: Advance) {
        self.note(match advance {
            Advance::Preparing { tuned } => format!("prepare {} {tuned}", cell.number),
            Advance::Step { done, of, .. } => format!("step {done}/{of}"),
        });
    }
    fn cell_ended(&self, cell: &Label, row: &Row) {
        self.note(format!("end {} {}", cell.number, row.status.into_str()));
    }
    fn cell_measured_elsewhere(&self, cell: &Label) {
        self.note(format!("skip {}", cell.number));
    }
    fn notice(&self, text: &str) {
        self.note(text.into());
    }
    fn end(&self) {
        self.note("over".into());
    }
}
