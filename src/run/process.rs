//! [`ProcessExecutor`]: a cell in a process of its own: however it ends, the runner and
//! the other cells go on.

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use miette::{IntoDiagnostic, Result, WrapErr};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::child_output::{ChildOutput, Received};
use super::executor::{Advance, Executor, Job, Outcome};
use super::verdict::{self, Ending};
use crate::train::protocol::{Event, Request};

/// How glibc allocates in a cell: what a step frees serves the next one, in pages of 2 MiB. Memory that went back to the
/// system would come again as zeroed pages of 4 KiB, a fault each: a step of 135 million weights on two cores takes 1.4
/// times as long then. Other libraries do not read it.
const MALLOC: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.arena_max=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.hugetlb=1",
);

/// How often the process, the clock and Ctrl-C are looked at.
const POLL: Duration = Duration::from_millis(50);
/// How long a process may take to end after its last event, to die when killed, and its output to
/// arrive after its end (another process may hold its pipes open).
const GRACE: Duration = Duration::from_secs(2);

/// Runs `program args…` for each cell, and speaks [`protocol`](crate::train::protocol) with it.
#[derive(Clone, Debug)]
pub struct ProcessExecutor {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl ProcessExecutor {
    /// This very program, as `runner cell`.
    ///
    /// # Errors
    /// When the system does not say where this program is.
    pub fn this_program() -> Result<Self> {
        let program = env::current_exe().into_diagnostic().wrap_err("cannot find this program's own file")?;
        Ok(Self { program, args: vec!["cell".into()] })
    }

    fn spawn(&self) -> std::io::Result<Child> {
        Command::new(&self.program)
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its own group: it can be killed with its children, and the terminal's Ctrl-C
            // reaches the runner alone, which then ends the cell.
            .process_group(0)
            .env(MALLOC.0, env::var_os(MALLOC.0).unwrap_or_else(|| MALLOC.1.into()))
            .spawn()
    }
}

/// A running process; dropping it kills its whole group.
struct Running {
    child: Child,
    /// Held open: a cell whose standard input closes ends itself.
    _stdin: Option<ChildStdin>,
    exit: Option<ExitStatus>,
}

impl Running {
    fn exited(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().ok().flatten();
        }
        self.exit
    }

    /// Kills what is left of the group; when nothing is, there is nothing to do. Only to be called
    /// before the process is reaped or at once after it, while the system has not given its
    /// number to another.
    fn kill(&self) {
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.exited().is_none() {
            self.kill();
        }
        // Reaped here, unless it hangs in the kernel: then the runner goes on without it.
        let start = Instant::now();
        while self.exited().is_none() && start.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Executor for ProcessExecutor {
    fn run(&self, job: Job, on_advance: &mut dyn FnMut(Advance), cancel: &AtomicBool) -> Outcome {
        let Job { cell, memory_limit, timeout, trace } = job;
        let oom_kills = verdict::oom_kills();
        let mut child = match self.spawn() {
            Ok(child) => child,
            Err(e) => return verdict::of_no_start(&self.program, &e),
        };
        let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let mut stdin = child.stdin.take().expect("piped");
        let mut output = ChildOutput::start(stdout, stderr);

        let request = Request { cell: cell.to_json(), memory_limit, trace: trace.map(Path::to_path_buf) };
        let mut line = serde_json::to_string(&request).expect("a request is plain data");
        line.push('\n');
        // A request is shorter than a pipe holds, so this does not block. A process that has ended
        // already is judged by its end.
        let _ = stdin.write_all(line.as_bytes());
        let mut running = Running { child, _stdin: Some(stdin), exit: None };

        let mut outcome = None;
        // A limit too far away to count is none.
        let mut deadline = Instant::now().checked_add(timeout);
        let mut receive = |received: Received, deadline: &mut Option<Instant>| match received {
            Received::Event(Event::Preparing { tuned }) => on_advance(Advance::Preparing { tuned }),
            Received::Event(Event::Step { done, of }) => on_advance(Advance::Step { done, of }),
            Received::Event(event) => {
                // The first final event counts.
                outcome = outcome.take().or_else(|| verdict::of_event(event));
                *deadline = Some(Instant::now() + GRACE);
            }
            Received::Nothing => {}
            Received::End => std::thread::sleep(POLL / 5),
        };
        let exit = loop {
            receive(output.next(POLL), &mut deadline);
            if let Some(exit) = running.exited() {
                break Some(exit);
            }
            if cancel.load(Relaxed) {
                return Outcome::Cancelled;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break None;
            }
        };
        running.kill();
        let last = Instant::now() + GRACE;
        while Instant::now() < last {
            match output.next(POLL) {
                Received::End => break,
                received => receive(received, &mut deadline),
            }
        }
        match (outcome, exit) {
            (Some(outcome), _) => outcome,
            (None, None) => verdict::of_timeout(timeout.as_secs_f64(), &cell.measure),
            (None, Some(exit)) => verdict::of_ending(&Ending {
                exit,
                tail: &output.tail(),
                refused_allocation: output.refused_allocation,
                limit: memory_limit,
                of_recipe: cell.measure.memory_limit.is_some_and(|bytes| bytes.0 == memory_limit),
                oom_killer: verdict::oom_kills() > oom_kills,
            }),
        }
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
