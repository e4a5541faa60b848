//! [`run_cells`]: measures missing cells one by one, and saves each row at once.

mod files;
mod measuring;
mod notices;
mod saving;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use itertools::Itertools;
use miette::Result;

use super::build::stale_notice;
use super::environment::{now, without_ceilings};
use super::executor::Executor;
use super::lock::{DeviceLock, Turn};
use super::options::{Options, is_enough};
use super::progress::{Label, Progress};
use super::store::Store;
use super::summary::Summary;
use crate::common::DeviceId;
use crate::recipe::{Cell, Recipe};
use crate::row::contents::Contents;
use crate::row::{self, Environment, Row, Status};

/// Everything that a run works with.
pub struct Session<'a> {
    pub recipe: &'a Recipe,
    pub store: &'a Store,
    pub executor: &'a dyn Executor,
    pub progress: &'a dyn Progress,
    /// Folder of the devices' locks.
    pub locks: &'a Path,
    /// Called once for each device, while it is idle, before its first cell runs.
    pub environment: &'a dyn Fn(DeviceId) -> Environment,
    /// Called when the row of a cell that ran is saved.
    pub on_row: &'a dyn Fn(),
    /// Whether each cell records one more step.
    pub trace: bool,
    /// Set by Ctrl-C.
    pub cancel: &'a AtomicBool,
}

/// Measures the chosen cells that have no row yet, or those that `options` asks for again.
///
/// A cell that fails gets a row too and the next cell runs, unless `options.fail_fast` is set. A finished row is not
/// measured again, whatever its status and build, unless `force`, `retry_failed` or `stale` ask for it. Cells that need other
/// hardware get rows that say they are skipped.
///
/// # Errors
/// When the recipe does not have a chosen cell, another run does not release the device, or a row cannot be saved; `progress`
/// then reports its text. Saved rows stay.
pub fn run_cells(session: &Session, options: &Options) -> Result<Summary> {
    let chosen = options.choose(session.recipe.cells.len())?;
    let summary = Run::new(session, options, &chosen)?.all();
    session.progress.end();
    summary
}

struct Run<'a> {
    session: &'a Session<'a>,
    options: &'a Options,
    chosen: &'a [usize],
    /// By cell of the recipe and by process: the row, if this run knows one.
    rows: Vec<Vec<Option<Row>>>,
    labels: Vec<Label>,
    environments: HashMap<DeviceId, Environment>,
    /// Whether the user has been told that nothing keeps other runs away.
    told_unlocked: bool,
    summary: Summary,
}

/// How a turn ended.
enum TurnEnd {
    Ran {
        well: bool,
    },
    /// Another run measured it meanwhile, or the cell's first process is enough.
    NotDue,
    Cancelled,
}

impl<'a> Run<'a> {
    fn new(session: &'a Session, options: &'a Options, chosen: &'a [usize]) -> Result<Self> {
        let cells = &session.recipe.cells;
        let notify = |text: &str| session.progress.notice(text);
        let loaded = session.store.load(cells, &notify)?;
        let kept = chosen.iter().flat_map(|position| loaded.rows[*position].iter().flatten());
        let stale = stale_notice(kept.filter(|row| !options.wants(Some(row))));
        loaded.notices.iter().chain(&stale).for_each(|notice| session.progress.notice(notice));
        Ok(Self {
            session,
            options,
            chosen,
            rows: loaded.rows,
            labels: Label::of(session.recipe),
            environments: HashMap::new(),
            told_unlocked: false,
            summary: Summary::default(),
        })
    }

    fn all(mut self) -> Result<Summary> {
        self.skip_elsewhere()?;
        let todo: Vec<(usize, usize)> = self.in_turns().collect();
        self.require_files(&todo)?;
        self.require_logs(&todo)?;
        self.notice_missing();
        self.notice_untraced();
        let labels: Vec<Label> = todo.iter().map(|turn| self.label(*turn)).collect();
        self.session.progress.begin(&labels);
        for turn in todo {
            match self.turn(turn)? {
                TurnEnd::Cancelled => {
                    self.summary.interrupted = true;
                    break;
                }
                TurnEnd::NotDue => {}
                TurnEnd::Ran { well } => {
                    self.summary.ran += 1;
                    if self.options.fail_fast && !well {
                        break;
                    }
                }
            }
        }
        Ok(self.summarize())
    }

    /// Saves a row for each chosen cell that needs other hardware and has no row.
    fn skip_elsewhere(&mut self) -> Result<()> {
        let Session { recipe, store, progress, .. } = *self.session;
        let notify = |text: &str| progress.notice(text);
        let mut contents = Contents::new(&notify);
        for position in self.chosen {
            let Some(why) = recipe.elsewhere.get(position) else { continue };
            if self.rows[*position][0].is_none() {
                let environment = Environment { date: now(), ..without_ceilings(store.device().clone()) };
                let cell = &recipe.cells[*position];
                let row = Row::new(cell, &environment, Status::Skipped, why.clone());
                let row = row.of_inputs(contents.inputs(cell));
                store.save_skipped(&row).map_err(|e| self.unsaved(&row, &e))?;
                self.rows[*position][0] = Some(row);
            }
        }
        Ok(())
    }

    /// What to measure here, as cell and process from 0: first process 0 of every chosen cell, then process 1, and so on. A
    /// machine that warms up or is disturbed meanwhile affects the processes of a cell and of its baseline alike.
    fn in_turns(&self) -> impl Iterator<Item = (usize, usize)> {
        let here =
            self.chosen.iter().filter(|position| !self.session.recipe.elsewhere.contains_key(position));
        let due = here.flat_map(|&position| {
            self.options
                .due(&self.session.recipe.cells[position], &self.rows[position])
                .map(move |process| (position, process))
        });
        due.sorted_by_key(|(_, process)| *process)
    }

    /// Whether a cell's first process leaves nothing to the others.
    fn first_is_enough(&self, position: usize) -> bool {
        let cell = &self.session.recipe.cells[position];
        self.rows[position][0].as_ref().is_some_and(|row| is_enough(cell, row))
    }

    fn label(&self, (position, process): (usize, usize)) -> Label {
        let of = self.rows[position].len();
        Label { process: (of > 1).then_some((process + 1, of)), ..self.labels[position].clone() }
    }

    /// Waits for the device, and measures one process of a cell unless that is not due any more.
    fn turn(&mut self, turn: (usize, usize)) -> Result<TurnEnd> {
        let Session { recipe, store, progress, environment, cancel, .. } = *self.session;
        let (position, process) = turn;
        let cell = &recipe.cells[position];
        if process > 0 && self.first_is_enough(position) {
            return Ok(self.not_due(turn));
        }
        if cancel.load(Relaxed) {
            return Ok(TurnEnd::Cancelled);
        }
        // A limit too long to count is none.
        let timeout = Duration::try_from_secs_f64(cell.measure.timeout).unwrap_or(Duration::MAX);
        let Some(_turns) = self.wait_for(cell, timeout.saturating_mul(2))? else {
            return Ok(TurnEnd::Cancelled);
        };
        let device = cell.device_id();
        // Before the files are read: it takes a second, and the cell reads them soon after.
        let environment = self.environments.entry(device).or_insert_with(|| environment(device)).clone();
        let inputs = Contents::new(&|text| progress.notice(text)).inputs(cell);
        let key = store.key(cell, &inputs);
        // Another run may have measured the first process meanwhile.
        if process > 0
            && let Some(first) = store.read(&row::name(&key, 1))
        {
            self.rows[position][0] = Some(first);
            if self.first_is_enough(position) {
                return Ok(self.not_due(turn));
            }
        }
        let known = self.rows[position][process].as_ref();
        let newer = |row: &Row| known.is_none_or(|k| row.environment.date >= k.environment.date && row != k);
        let measured = |row: &Row| row.status != Status::Skipped && newer(row);
        if let Some(row) = store.read(&row::name(&key, process + 1)).filter(measured) {
            self.rows[position][process] = Some(row);
            progress.cell_measured_elsewhere(&self.label(turn));
            return Ok(TurnEnd::NotDue);
        }
        self.measure(turn, timeout, &environment, inputs)
    }

    fn not_due(&self, turn: (usize, usize)) -> TurnEnd {
        self.session.progress.cell_not_due(&self.label(turn));
        TurnEnd::NotDue
    }

    /// Waits for this run's turn on all devices of a cell; `None` if the run is cancelled. It takes them in the order of the
    /// machine's devices, whatever the cell calls them, so that no two runs wait for each other.
    fn wait_for(&mut self, cell: &Cell, limit: Duration) -> Result<Option<Vec<Turn>>> {
        let Session { progress, locks, cancel, .. } = *self.session;
        let mut turns = Vec::new();
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let lock = |device: &DeviceId| DeviceLock::new(locks, &device.to_string(), visible.as_deref());
        let devices = cell.parallel.devices(cell.device_id()).into_iter();
        for (lock, device) in devices.map(|device| (lock(&device), device)).sorted() {
            let mut waiting = || progress.notice(&format!("waiting for another run on {device}"));
            let turn = lock.take(limit, cancel, &mut waiting)?;
            match &turn {
                Turn::Ours(_) => {}
                Turn::Cancelled => return Ok(None),
                Turn::Unlocked(why) => {
                    if !std::mem::replace(&mut self.told_unlocked, true) {
                        progress
                            .notice(&format!("{why}; another run on this device would disturb the times"));
                    }
                }
            }
            turns.push(turn);
        }
        Ok(Some(turns))
    }

    fn summarize(self) -> Summary {
        let mut summary = self.summary;
        let known = |row: &Option<Row>| row.as_ref().map(|row| row.status);
        let mut all = 0;
        for position in self.chosen {
            let rows = &self.rows[*position];
            let due = if self.first_is_enough(*position) { 1 } else { rows.len() };
            all += due;
            for row in &rows[..due] {
                summary.unsaved += usize::from(row.as_ref().is_some_and(|row| !row.unsaved().is_empty()));
                match known(row) {
                    None => summary.left += 1,
                    Some(Status::Ok) => summary.ok += 1,
                    Some(Status::Oom) => summary.oom += 1,
                    Some(Status::Failed) => summary.failed += 1,
                    Some(Status::Diverged) => summary.diverged += 1,
                    Some(Status::Skipped) => summary.elsewhere += 1,
                }
            }
        }
        summary.finished_earlier = all - summary.ran - summary.left - summary.elsewhere;
        summary
    }
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
