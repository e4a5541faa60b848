//! Measures one process of a cell on a device that is this run's.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use miette::{Result, miette};

use super::files::log_folder;
use super::{Run, Session, TurnEnd};
use crate::common::{DeviceId, text};
use crate::measure::Measurement;
use crate::recipe::Cell;
use crate::row::{self, Environment, Inputs, Row, Status};
use crate::run::environment::now;
use crate::run::executor::{Job, Outcome, memory_limit};
use crate::run::log::StepLog;
use crate::run::options::is_enough;
use crate::run::progress::Label;
use crate::train::protocol::Advance;
use crate::train::remove_states;

/// How a process ended.
struct Ended {
    status: Status,
    reason: String,
    measurement: Option<Measurement>,
    seconds: f64,
}

impl Run<'_> {
    /// Runs a process of a cell and saves its row. `turn`: the cell and the process.
    ///
    /// # Errors
    /// When no cell can be started, or the row cannot be saved.
    pub(super) fn measure(
        &mut self,
        (position, process): (usize, usize),
        timeout: Duration,
        environment: &Environment,
        inputs: Inputs,
    ) -> Result<TurnEnd> {
        let Session { recipe, store, executor, progress, trace, .. } = *self.session;
        let (cell, label) = (&recipe.cells[position], self.label((position, process)));
        executor.ready(cell.parallel.ranks())?;
        if self.options.force {
            remove_earlier_states(cell)?;
        }
        let key = store.key(cell, &inputs);
        // That of a run that was killed.
        store.drop_new_trace(&key);
        progress.cell_started(&label);
        let placed = &executor.placed(cell);
        let infos = placed.parallel.devices(cell.device_id()).into_iter().map(DeviceId::info);
        let fullest = infos.min_by_key(|info| info.memory_available).expect("a cell has a device");
        let limit = memory_limit(placed, &fullest);
        let trace = (trace && process == 0).then(|| store.new_trace_path(&key));
        let job = Job { cell: placed, memory_limit: limit, timeout, trace: trace.as_deref() };
        let Some(ended) = self.run_process(job, &label, log_folder(cell, &row::name(&key, process + 1)))
        else {
            store.drop_new_trace(&key);
            return Ok(TurnEnd::Cancelled);
        };
        let seconds = ended.seconds;
        let row = Row { repeat: process + 1, ..ended.row(cell, limit, environment, inputs) };
        self.save(position, &row)?;
        // A cell that could not save its weights can go on from its last state to save them.
        let well = row.ended_well();
        if well && let Err(e) = remove_states(cell) {
            progress.notice(&format!("the state of a finished cell cannot be removed: {e}"));
        }
        progress.cell_ended(&label, &row);
        (self.session.on_row)();
        if cell.processes() > 1 && row.status == Status::Ok && process == 0 && is_enough(cell, &row) {
            progress.notice(&format!(
                "cell {} has one process, because that took {}; --set measure.repeats={} measures it again",
                position + 1,
                text::seconds(row.prepared_seconds().unwrap_or(seconds)),
                cell.processes()
            ));
        }
        self.rows[position][process] = Some(row);
        Ok(TurnEnd::Ran { well })
    }

    /// Runs a process, with its steps logged to a folder if there is one; `None` if the user stopped it.
    fn run_process(&self, job: Job, label: &Label, log: Option<PathBuf>) -> Option<Ended> {
        let Session { executor, progress, cancel, .. } = *self.session;
        let mut log = log.map(StepLog::new);
        let start = Instant::now();
        let mut on_advance = |advance| {
            if let (Some(log), Advance::Step { record: Some(record), .. }) = (&mut log, &advance) {
                log.add(record);
            }
            progress.cell_advanced(label, advance);
        };
        let outcome = executor.run(job, &mut on_advance, cancel);
        let seconds = start.elapsed().as_secs_f64();
        let unlogged = log.and_then(StepLog::end);
        match outcome {
            Outcome::Finished(mut measurement) => {
                measurement.unsaved.extend(unlogged);
                let measurement = Some(*measurement);
                Some(Ended { status: Status::Ok, reason: String::new(), measurement, seconds })
            }
            Outcome::Ended { status, reason } => {
                unlogged.iter().for_each(|why| progress.notice(&format!("{label}: {why}")));
                Some(Ended { status, reason, measurement: None, seconds })
            }
            Outcome::Stopped { step } => {
                progress.notice(&format!(
                    "{label}: its state after step {step} is saved; another run goes on from it"
                ));
                None
            }
            Outcome::Cancelled => None,
        }
    }
}

impl Ended {
    /// Its row. `limit`: bytes of device memory that the process had.
    fn row(self, cell: &Cell, limit: u64, environment: &Environment, inputs: Inputs) -> Row {
        let environment = Environment { date: now(), ..environment.clone() };
        let ran = cell.within(limit);
        let row = Row::new(cell, &environment, self.status, self.reason).of_inputs(inputs);
        let row = Row { estimate: ran.estimate(), process_seconds: Some(self.seconds), ..row };
        match self.measurement {
            Some(measurement) => row.measured(&ran, measurement),
            None => row,
        }
    }
}

/// Removes the states of an earlier run, so that the cell begins anew.
///
/// # Errors
/// When they cannot be removed.
fn remove_earlier_states(cell: &Cell) -> Result<()> {
    remove_states(cell).map_err(|e| {
        miette!(
            help = "make the folder of save.state writable, or name another one",
            "the state of an earlier run cannot be removed: {e}"
        )
    })
}
