//! [`StepLog`]: the steps of a cell's process in files, while it runs.
//!
//! The runner writes them from what the process reports, so that the process itself writes nothing and waits for no disk.

mod event;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::common::files::{regular, remove_older, write_whole};
use crate::train::protocol::StepRecord;

const LINES: &str = "steps.jsonl";
/// How the name of a file for TensorBoard begins and ends; the seconds of its making stand between.
const EVENTS: [&str; 2] = ["events.out.tfevents.", ".runner"];
/// How long steps wait for others with which they are written.
const FLUSH: Duration = Duration::from_secs(1);

/// The log of one process of a cell, in a folder of its own.
pub struct StepLog {
    folder: PathBuf,
    /// `None` before the first step, and once a write has failed.
    files: Option<OpenFiles>,
    /// Why not every step is in the files.
    failed: Option<String>,
}

/// The two files, as far as they are written.
struct OpenFiles {
    lines: BufWriter<File>,
    events: BufWriter<File>,
    flushed: Instant,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LoggedStep {
    /// When the runner heard of the step: seconds since 1970, UTC.
    time: f64,
    #[serde(flatten)]
    record: StepRecord,
    /// Of this step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    tokens_per_second: Option<f64>,
}

impl StepLog {
    /// In a folder that is made with the first step.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, files: None, failed: None }
    }

    /// Adds a step. The first one decides what becomes of an earlier log: steps before it stay, as where a cell goes on from a
    /// saved state, and the others go. After a failure nothing is written any more.
    pub fn add(&mut self, record: &StepRecord) {
        if self.failed.is_some() {
            return;
        }
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let line = LoggedStep {
            time: time.as_millis() as f64 / 1e3,
            record: record.clone(),
            tokens_per_second: record.tokens_per_second(),
        };
        let written = match &mut self.files {
            Some(files) => files.add(&line),
            None => OpenFiles::begin(&self.folder, &line).map(|files| self.files = Some(files)),
        };
        self.check(written, record.step);
    }

    /// Writes what is not written yet. Returns why not every step is in the files, and what to do.
    pub fn end(mut self) -> Option<String> {
        let flushed = self.files.as_mut().map_or(Ok(()), OpenFiles::flush);
        self.check(flushed, 0);
        self.failed
    }

    /// `step`: the one that was written last; 0: not known.
    fn check(&mut self, written: io::Result<()>, step: usize) {
        let Err(error) = written else { return };
        self.files = None;
        let near = if step > 0 { format!(", near step {step}") } else { String::new() };
        self.failed = Some(format!(
            "the log cannot be written to {}: {error}{near}; make room there and run again with --retry-failed, which \
             trains and logs again",
            self.folder.display()
        ));
    }
}

impl OpenFiles {
    fn begin(folder: &Path, first: &LoggedStep) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let is_before = |line: &LoggedStep| line.record.step < first.record.step;
        let kept: Vec<LoggedStep> = read(&folder.join(LINES)).into_iter().filter(is_before).collect();
        remove_older(folder, Duration::ZERO, |name| name.starts_with(EVENTS[0]) && name.ends_with(EVENTS[1]));
        let events = format!("{}{}{}", EVENTS[0], first.time as u64, EVENTS[1]);
        let open = |name: &str| File::create(folder.join(name)).map(BufWriter::new);
        let mut files = Self { lines: open(LINES)?, events: open(&events)?, flushed: Instant::now() };
        files.events.write_all(&event::version(first.time))?;
        kept.iter().chain([first]).try_for_each(|line| files.write(line))?;
        files.flush()?;
        Ok(files)
    }

    fn add(&mut self, line: &LoggedStep) -> io::Result<()> {
        self.write(line)?;
        if self.flushed.elapsed() >= FLUSH { self.flush() } else { Ok(()) }
    }

    fn write(&mut self, line: &LoggedStep) -> io::Result<()> {
        serde_json::to_writer(&mut self.lines, line)?;
        self.lines.write_all(b"\n")?;
        self.events.write_all(&event::scalars(line.time, line.record.step, &line.numbers()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.lines.flush()?;
        self.events.flush()
    }
}

impl LoggedStep {
    /// What TensorBoard draws, by the names of the line.
    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let StepRecord { loss, learning_rate, gradient_norm, memory_bytes, .. } = self.record;
        let known = [
            ("loss", Some(loss)),
            ("learning_rate", learning_rate),
            ("gradient_norm", gradient_norm),
            ("tokens_per_second", self.tokens_per_second),
            ("memory_bytes", Some(memory_bytes as f64)),
        ];
        known.into_iter().filter_map(|(name, number)| Some((name, number?))).collect()
    }
}

/// The lines of a log up to the first that is not whole, such as the last one of a run that was killed.
fn read(path: &Path) -> Vec<LoggedStep> {
    // What is no file, such as a device, may never end.
    let text = regular(path).and_then(|_| fs::read_to_string(path)).unwrap_or_default();
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}

/// Makes a folder for logs, and proves that it can be written to.
///
/// # Errors
/// Why it cannot.
pub fn prove(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    write_whole(folder, None, b"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: usize) -> StepRecord {
        StepRecord {
            step,
            loss: 2.5 / step as f64,
            learning_rate: Some(1e-3),
            gradient_norm: None,
            tokens: 512,
            seconds: (step > 1).then_some(0.5),
            memory_bytes: 1 << 20,
        }
    }

    fn log(folder: &Path, steps: std::ops::RangeInclusive<usize>) {
        let mut log = StepLog::new(folder.into());
        steps.for_each(|step| log.add(&record(step)));
        assert_eq!(log.end(), None);
    }

    fn steps(folder: &Path) -> Vec<usize> {
        read(&folder.join(LINES)).iter().map(|line| line.record.step).collect()
    }

    /// The bytes of the only file for TensorBoard.
    fn events(folder: &Path) -> Vec<u8> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut events = names.filter(|path| path.to_string_lossy().contains("tfevents"));
        let bytes = fs::read(events.next().expect("a file")).unwrap();
        assert_eq!(events.next(), None);
        bytes
    }

    #[test]
    fn a_line_has_the_numbers_of_its_step() {
        let folder = tempfile::tempdir().unwrap();
        log(folder.path(), 1..=2);
        let text = fs::read_to_string(folder.path().join(LINES)).unwrap();
        let second = text.lines().nth(1).unwrap();
        let rest = ",\"step\":2,\"loss\":1.25,\"learning_rate\":0.001,\"tokens\":512,\"seconds\":0.5,\
                    \"memory_bytes\":1048576,\"tokens_per_second\":1024.0}";
        assert!(second.starts_with("{\"time\":") && second.ends_with(rest), "{second}");
    }

    #[test]
    fn a_new_run_begins_anew_and_one_from_a_state_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        log(folder, 1..=5);
        let whole = events(folder).len();
        // The state was saved after step 3, and the run was killed in the middle of a line.
        let mut lines = fs::OpenOptions::new().append(true).open(folder.join(LINES)).unwrap();
        lines.write_all(b"{\"time\":17").unwrap();
        log(folder, 4..=5);
        assert_eq!((steps(folder), events(folder).len()), (vec![1, 2, 3, 4, 5], whole));
        log(folder, 1..=2);
        assert_eq!(steps(folder), [1, 2]);
    }

    /// A full disk ends the log and not the run.
    #[test]
    fn a_failed_write_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", folder.path().join(LINES)).unwrap();
        let mut log = StepLog::new(folder.path().into());
        (1..=3).for_each(|step| log.add(&record(step)));
        let reason = log.end().expect("it fails");
        assert!(reason.contains("No space left") && reason.contains("near step 1; make room"), "{reason}");
    }
}
