//! [`Launched`]: this process's place among those that a launcher has started, from the launcher's environment variables.

use std::borrow::Cow;

use miette::{Result, miette};

use crate::common::DeviceId;
use crate::parallel::Engine;
use crate::recipe::Cell;
use crate::run::variables::number;
use crate::world::{Meeting, Seat};

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A program that starts several processes of a command, and the variables that it sets.
#[derive(Debug)]
struct Launcher {
    name: &'static str,
    rank: &'static str,
    /// The process's number on its host.
    local: &'static str,
    size: &'static str,
    /// The number of processes on this host; or the number of hosts.
    here: Option<&'static str>,
    hosts: &'static [&'static str],
    /// Variables that distinguish one start from another.
    start: &'static [&'static str],
    /// A variable that is set in a job, and one that is also set in each process started in it: a job's script has only the
    /// first.
    script: Option<(&'static str, &'static str)>,
    /// If set, each process has its own cores.
    cores: Option<&'static str>,
    /// The command that starts so many processes.
    line: fn(usize) -> String,
}

/// The innermost first: Slurm starts the others.
static LAUNCHERS: [Launcher; 3] = [
    Launcher {
        name: "torchrun",
        rank: "RANK",
        local: "LOCAL_RANK",
        size: "WORLD_SIZE",
        here: Some("LOCAL_WORLD_SIZE"),
        hosts: &["GROUP_WORLD_SIZE"],
        start: &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
        script: None,
        cores: None,
        line: |n| format!("torchrun --no-python --nproc-per-node={n}"),
    },
    Launcher {
        name: "mpirun",
        rank: "OMPI_COMM_WORLD_RANK",
        local: "OMPI_COMM_WORLD_LOCAL_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        here: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
        hosts: &[],
        start: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
        script: None,
        cores: None,
        line: |n| format!("mpirun -n {n}"),
    },
    Launcher {
        name: "srun",
        rank: "SLURM_PROCID",
        local: "SLURM_LOCALID",
        size: "SLURM_NTASKS",
        here: None,
        hosts: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"],
        start: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        script: Some(("SLURM_JOB_ID", "SLURM_STEP_ID")),
        cores: Some("SLURM_CPUS_PER_TASK"),
        line: |n| format!("srun --ntasks={n}"),
    },
];

/// Variables that distinguish one start from another with every launcher.
const START: [&str; 2] = ["MASTER_ADDR", "MASTER_PORT"];

/// The secret by which ranks on several hosts know each other.
const SECRET: &str = "RUNNER_SECRET";

const FIX: &str = "set it as the launcher does";

impl Launcher {
    /// The number of processes that it has started; `None` if it has not started this one.
    fn size(&self, lookup: Lookup) -> Result<Option<usize>> {
        let is_set = |name: &str| lookup(name).is_some();
        if self.script.is_some_and(|(job, process)| is_set(job) && !is_set(process)) {
            return Ok(None);
        }
        Ok(number(lookup, self.size, FIX)?.filter(|size| *size > 0))
    }

    /// The most of its `size` processes on a host; `None` if all are on one host.
    fn on_each_host(&self, size: usize, lookup: Lookup) -> Result<Option<usize>> {
        if let Some(name) = self.here {
            let here = number(lookup, name, FIX)?.filter(|here| (1..size).contains(here));
            if here.is_some() {
                return Ok(here);
            }
        }
        let Some(name) = self.hosts.iter().find(|name| lookup(name).is_some()) else { return Ok(None) };
        Ok(number(lookup, name, FIX)?.filter(|hosts| *hosts > 1).map(|hosts| size.div_ceil(hosts)))
    }

    /// `HOST:PORT` at which ranks on several hosts meet.
    fn address(&self, size: usize, lookup: Lookup) -> Result<String> {
        let port = number(lookup, "MASTER_PORT", FIX)?.filter(|port| (1..=65534).contains(port));
        let host = lookup("MASTER_ADDR").filter(|host| !host.trim().is_empty());
        let (Some(host), Some(port)) = (host, port) else {
            return Err(miette!(
                help = "set them in all processes: MASTER_ADDR to the host of rank 0, and MASTER_PORT to a port that is \
                        free there, as examples/cluster/hosts.sh does",
                "{} has started {size} ranks on several hosts, but MASTER_ADDR and MASTER_PORT do not say where they meet",
                self.name
            ));
        };
        // torchrun itself listens at the port, so the ranks take the next one.
        let taken = lookup("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|agent| agent == "True");
        let host = host.trim();
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
        Ok(format!("{host}:{}", port + usize::from(taken)))
    }

    /// The secret of `size` ranks. On one host none is needed: the system says whose process is at the other end.
    fn secret(&self, over_hosts: bool, size: usize, lookup: Lookup) -> Result<Secret> {
        let secret = lookup(SECRET).filter(|secret| !secret.trim().is_empty());
        if secret.is_none() && over_hosts {
            return Err(miette!(
                help = format!(
                    "make one secret for all processes before they start, as examples/cluster/hosts.sh does: export \
                     {SECRET}=$(head -c 32 /dev/urandom | base64). srun passes it on, torchrun needs the same one on every \
                     host, and mpirun passes it on by -x {SECRET}"
                ),
                "{} has started {size} ranks on several hosts, but {SECRET} is not set, and without a secret any \
                 process that reaches their ports could pass for one of them",
                self.name
            ));
        }
        Ok(Secret(secret.unwrap_or_default()))
    }
}

/// No message shows it.
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The place of this process among those that were started together.
#[derive(Debug)]
pub struct Launched {
    pub rank: usize,
    pub size: usize,
    /// The launcher's name.
    pub launcher: &'static str,
    /// `HOST:PORT` at which ranks on several hosts meet; `None` on one host.
    pub address: Option<String>,
    /// This rank's number on its host.
    local: usize,
    /// The most ranks that share a host's cores.
    most_here: usize,
    /// What distinguishes this start from others, and what only its processes know.
    start: String,
    secret: Secret,
    /// Whether each process has its own cores.
    own_cores: bool,
}

impl Launched {
    /// The place according to environment variables, which `lookup` reads. A launcher that has started several processes
    /// precedes one that has started a single process.
    ///
    /// # Errors
    /// When no launcher has started this process, or nothing says where the ranks meet; says what to do.
    pub fn find(lookup: Lookup) -> Result<Self> {
        let mut found: Option<(&Launcher, usize)> = None;
        for launcher in &LAUNCHERS {
            let Some(size) = launcher.size(lookup)? else { continue };
            if found.is_none_or(|(_, known)| known == 1 && size > 1) {
                found = Some((launcher, size));
            }
        }
        let Some((launcher, size)) = found else {
            let lines: Vec<String> = LAUNCHERS
                .iter()
                .map(|launcher| format!("{} runner join RECIPE", (launcher.line)(4)))
                .collect();
            return Err(miette!(
                help = format!("start all ranks together, as {}", lines.join(", ")),
                "no launcher has started this process: none of RANK with WORLD_SIZE, OMPI_COMM_WORLD_RANK with \
                 OMPI_COMM_WORLD_SIZE, or SLURM_PROCID with SLURM_NTASKS in a step of a job is set"
            ));
        };
        let rank = number(lookup, launcher.rank, FIX)?;
        let Some(rank) = rank.filter(|rank| *rank < size) else {
            let rank = rank.map_or("not set".to_string(), |rank| rank.to_string());
            return Err(miette!(
                help = "set it to this process's number, from 0",
                "{} is {size}, and {} is {rank}",
                launcher.size,
                launcher.rank
            ));
        };
        let on_each = launcher.on_each_host(size, lookup)?;
        let address = on_each.map(|_| launcher.address(size, lookup)).transpose()?;
        let local = number(lookup, launcher.local, FIX)?.filter(|_| on_each.is_some()).unwrap_or(rank);
        let told: Vec<String> = START
            .iter()
            .chain(launcher.start)
            .filter_map(|name| Some(format!("{name}={}", lookup(name)?)))
            .collect();
        if size > 1 && told.is_empty() {
            return Err(miette!(
                help = "set MASTER_ADDR and MASTER_PORT to the same values in all of them, as torchrun does",
                "these {size} processes cannot be distinguished from another start: none of {} is set",
                [launcher.start, &START].concat().join(", ")
            ));
        }
        let cores = launcher.cores.is_some_and(|name| lookup(name).is_some());
        let secret = launcher.secret(address.is_some(), size, lookup)?;
        let (most_here, launcher) = (on_each.unwrap_or(size), launcher.name);
        let start = format!("{launcher} {size} {}", told.join(" "));
        Ok(Self { rank, size, launcher, address, local, most_here, start, secret, own_cores: cores })
    }

    /// # Errors
    /// When a launcher has started several processes of this command, which would all do the same; says what to run instead.
    pub fn require_one_process(lookup: Lookup) -> Result<()> {
        for launcher in &LAUNCHERS {
            let Some(size) = launcher.size(lookup)?.filter(|size| *size > 1) else { continue };
            let Launcher { name, line, .. } = launcher;
            return Err(miette!(
                help = format!(
                    "for cells in several ranks: {} runner join RECIPE\n\
                     for one process: {} runner run RECIPE\n\
                     for a part of the cells in each: an array of jobs, as sbatch --array=1-{size} \
                     examples/cluster/slurm.sh RECIPE RESULTS, or --shard i/{size} with another i in each",
                    line(size),
                    line(1)
                ),
                "{name} has started {size} processes of this command ({} is {size}), and each would measure the whole \
                 recipe",
                launcher.size
            ));
        }
        Ok(())
    }

    /// This rank's seat at the meeting of all; `limit`: seconds that each waits for the others.
    pub fn seat(&self, limit: f64) -> Seat {
        let meeting = self.meeting("start");
        Seat { rank: self.rank, size: self.size, local: self.local, meeting, limit }
    }

    /// A meeting of this start's processes for one purpose.
    pub fn meeting(&self, purpose: &str) -> Meeting {
        Meeting::of(&self.secret.0, &format!("{purpose} of {}", self.start), self.address.clone())
    }

    /// The cell as its ranks run it: each host has some of the GPUs, and only NCCL sums between hosts.
    pub fn placed<'c>(&self, cell: &'c Cell) -> Cow<'c, Cell> {
        let mut placed = Cow::Borrowed(cell);
        if self.address.is_some() && cell.device_id() != DeviceId::Cpu && !cell.parallel.is_alone() {
            placed.to_mut().parallel.engine = Engine::Nccl;
        }
        placed
    }

    /// How many of a cell's ranks share the cores that this process sees.
    pub fn sharing(&self, ranks: usize) -> usize {
        if self.own_cores { 1 } else { ranks.min(self.most_here) }
    }

    /// The name of this process's host, as for NCCL, and this rank's number there.
    pub fn place(&self) -> (String, usize) {
        let own = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = std::env::var("NCCL_HOSTID").unwrap_or_else(|_| own());
        (host.trim().to_string(), self.local)
    }
}

#[cfg(test)]
#[path = "launched_tests.rs"]
mod tests;
