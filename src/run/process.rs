//! [`ProcessExecutor`]: runs each rank of a cell in its own process, so that the runner and the other cells go on however
//! the cell ends.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use miette::{IntoDiagnostic, Result, WrapErr};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::child_output::Lines;
use super::executor::{Executor, Job, Outcome};
use super::ranks::{self, Process};
use super::threads::THREADS;
use super::verdict;
use crate::common::files;
use crate::train::protocol::{Advance, Request, STOP};
use crate::world::Meeting;

/// How glibc allocates in a cell: memory that a step frees serves the next step, in pages of 2 MiB. If it went back to the
/// system it would come again as zeroed pages of 4 KiB, with a page fault each: a step of 135 million weights on two cores
/// would take 1.4 times as long. Other C libraries ignore it.
const MALLOC: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.hugetlb=1",
);
/// On a CPU tensors of all threads share what is free: with several arenas a step of 135 million weights takes 1.04 times as
/// long. On a GPU there are none, and threads that make tokens of a text would wait for each other at small allocations: 16 of
/// them 31,000 times for GSM8K, in several arenas 2,900 times.
const ONE_ARENA: &str = ":glibc.malloc.arena_max=1";

/// NCCL's settings, unless the user has set them: multicast over NVLink needs rights that containers seldom have, and NCCL's
/// log must not mix with the events on standard output.
const NCCL: [(&str, &str); 2] = [("NCCL_NVLS_ENABLE", "0"), ("NCCL_DEBUG_FILE", "/dev/stderr")];

/// How often the runner looks at the processes, the clock and Ctrl-C.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// How long a process may take to end after its last event, or to die when killed; how long its output may take to arrive
/// after its end, since another process may hold its pipes open; and how long the cause may take to show after a rank has
/// lost another.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Runs `program args…` for each rank of a cell, by the [`protocol`](crate::train::protocol).
#[derive(Clone, Debug)]
pub struct ProcessExecutor {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl ProcessExecutor {
    /// Runs this program as `runner cell`.
    ///
    /// # Errors
    /// When the system does not know this program's file.
    pub fn this_program() -> Result<Self> {
        Ok(Self { program: this_program()?, args: vec!["cell".into()] })
    }

    /// Starts the process of a rank and sends it the request. `sharing` ranks share this process's cores. The output goes to
    /// `lines`.
    ///
    /// # Errors
    /// The outcome of the cell when the process cannot be started.
    pub(super) fn begin(
        &self,
        rank: usize,
        request: &Request,
        sharing: usize,
        lines: &Lines,
    ) -> Result<Running, Outcome> {
        // Without one the cell has the user's own, and leaves there what it must.
        let scratch = files::scratch().ok();
        let folder = scratch.as_ref().map(TempDir::path);
        let on_cpu = request.cell["device"] == "cpu";
        let malloc = MALLOC.1.to_string() + if on_cpu { ONE_ARENA } else { "" };
        let mut child =
            self.spawn(sharing, folder, malloc).map_err(|e| verdict::of_no_start(&self.program, &e))?;
        lines.read(rank, child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let mut line = serde_json::to_string(request).expect("a request is plain data");
        line.push('\n');
        let mut stdin = child.stdin.take().expect("piped");
        // A pipe holds more than a request, so this does not block. If the process has already ended, its end says why.
        let _ = stdin.write_all(line.as_bytes());
        Ok(Running { child, stdin, exit: None, _scratch: scratch })
    }

    /// `scratch`: the process's temporary folder. `malloc`: how glibc allocates, unless the user says so.
    fn spawn(&self, sharing: usize, scratch: Option<&Path>, malloc: String) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.envs(scratch.map(|folder| (TMPDIR, folder)));
        if self.program == Path::new(RUNNING) {
            // What the list of processes shows.
            command.arg0("runner");
        }
        command.envs(NCCL.into_iter().filter(|(name, _)| env::var_os(name).is_none()));
        if sharing > 1 && env::var_os(THREADS).is_none() {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            command.env(THREADS, (cores / sharing).max(1).to_string());
        }
        command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // In its own group it can be killed with its children, and the terminal's Ctrl-C reaches only the runner, which
            // then ends the cell.
            .process_group(0)
            .env(MALLOC.0, env::var_os(MALLOC.0).unwrap_or_else(|| malloc.into()))
            .spawn()
    }
}

const RUNNING: &str = "/proc/self/exe";
const TMPDIR: &str = "TMPDIR";

/// The file of this program, also once another one has taken its name: a build in the middle of a run changes none of its
/// cells.
pub(super) fn this_program() -> Result<PathBuf> {
    match Path::new(RUNNING).exists() {
        true => Ok(RUNNING.into()),
        false => env::current_exe().into_diagnostic().wrap_err("cannot find this program's own file"),
    }
}

/// A running process; dropping it kills its whole group.
pub(super) struct Running {
    child: Child,
    /// Held open: a cell ends itself when its standard input closes.
    stdin: ChildStdin,
    exit: Option<ExitStatus>,
    /// Removed behind its end, with whole weights that it may have left between two phases of training.
    _scratch: Option<TempDir>,
}

impl Running {
    fn kill_group(&self) {
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
    }
}

impl Process for Running {
    /// Also kills what the process has left of its group: at once, before the system can give its number to another.
    fn exited(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().ok().flatten();
            if self.exit.is_some() {
                self.kill_group();
            }
        }
        self.exit
    }

    fn kill(&self) {
        if self.exit.is_none() {
            self.kill_group();
        }
    }

    fn stop(&mut self) {
        // A process that does not read has ended, which shows elsewhere.
        let _ = writeln!(self.stdin, "{STOP}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.exited().is_none() {
            self.kill();
        }
        // Waits for its end. If it hangs in the kernel, the runner goes on without it.
        let start = Instant::now();
        while self.exited().is_none() && start.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Executor for ProcessExecutor {
    fn run(&self, job: Job, on_advance: &mut dyn FnMut(Advance), cancel: &AtomicBool) -> Outcome {
        let begin = |rank, request: &Request, lines: &Lines| -> Result<Box<dyn Process>, Outcome> {
            Ok(Box::new(self.begin(rank, request, request.seat.size, lines)?))
        };
        let meeting = match Meeting::random() {
            Ok(meeting) => meeting,
            Err(e) => return verdict::of_no_random(&e),
        };
        ranks::run(&job, meeting, None, &begin, on_advance, cancel)
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
