//! [`ProcessExecutor`]: a cell in a process of its own for each of its ranks, so that whatever becomes of it the runner
//! and the other cells go on.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use miette::{IntoDiagnostic, Result, WrapErr};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::child_output::Lines;
use super::executor::{Advance, Executor, Job, Outcome};
use super::ranks::{self, Process};
use super::verdict;
use crate::train::protocol::Request;

/// How glibc allocates in a cell: what a step frees serves the next one, in pages of 2 MiB. Memory that went back to the
/// system would come again as zeroed pages of 4 KiB, a fault each: a step of 135 million weights on two cores takes 1.4
/// times as long then. Other libraries do not read it.
const MALLOC: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.arena_max=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.hugetlb=1",
);

/// How many threads operators on a CPU divide their work over.
const THREADS: &str = "RAYON_NUM_THREADS";

/// What NCCL gets where the user has not set it: multicast over NVLink needs rights that containers seldom have, and what
/// NCCL has to say must not stand among the events on standard output.
const NCCL: [(&str, &str); 2] = [("NCCL_NVLS_ENABLE", "0"), ("NCCL_DEBUG_FILE", "/dev/stderr")];

/// How often the processes, the clock and Ctrl-C are looked at.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// How long a process may take to end after its last event, to die when killed, and its output to
/// arrive after its end (another process may hold its pipes open); and how long the cause may take to come to light
/// after a rank has lost another.
pub(super) const GRACE: Duration = Duration::from_secs(2);

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

    /// Starts the process of a rank, one of `sharing` that share this process's cores, and asks it; what it prints goes
    /// to `lines`.
    ///
    /// # Errors
    /// How the cell ends where it cannot be started.
    pub(super) fn begin(
        &self,
        rank: usize,
        request: &Request,
        sharing: usize,
        lines: &Lines,
    ) -> Result<Running, Outcome> {
        let mut child = self.spawn(sharing).map_err(|e| verdict::of_no_start(&self.program, &e))?;
        lines.read(rank, child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let mut process = Running { stdin: child.stdin.take(), child, exit: None };
        process.ask(request);
        Ok(process)
    }

    fn spawn(&self, sharing: usize) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
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
            // Its own group: it can be killed with its children, and the terminal's Ctrl-C
            // reaches the runner alone, which then ends the cell.
            .process_group(0)
            .env(MALLOC.0, env::var_os(MALLOC.0).unwrap_or_else(|| MALLOC.1.into()))
            .spawn()
    }
}

/// A running process; dropping it kills its whole group.
pub(super) struct Running {
    child: Child,
    /// Held open: a cell whose standard input closes ends itself.
    stdin: Option<ChildStdin>,
    exit: Option<ExitStatus>,
}

impl Running {
    /// Asks the process for what it is to do, in one line.
    fn ask(&mut self, request: &Request) {
        let mut line = serde_json::to_string(request).expect("a request is plain data");
        line.push('\n');
        // A request is shorter than a pipe holds, so this does not block. A process that has ended
        // already is judged by its end.
        let _ = self.stdin.as_mut().expect("open").write_all(line.as_bytes());
    }
}

impl Process for Running {
    fn exited(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().ok().flatten();
        }
        self.exit
    }

    /// The whole group. Only to be called before the process is reaped or at once after it, while the system has not
    /// given its number to another.
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
        let begin = |rank, request: &Request, lines: &Lines| -> Result<Box<dyn Process>, Outcome> {
            Ok(Box::new(self.begin(rank, request, job.ranks, lines)?))
        };
        ranks::run(&job, None, &begin, on_advance, cancel)
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
