//! `runner join`: one of several ranks that a launcher has started together.

use miette::{Result, miette};

use crate::common::DeviceId;
use crate::common::streams::tell;
use crate::device::Target;
use crate::parallel::Engine;
use crate::recipe::Recipe;
use crate::run::{self, Launched, Leader, Options, ProcessExecutor};

/// When set, ranks of several hosts may use sockets: tests run two hosts on one machine.
const TEST_HOSTS: &str = "RUNNER_TEST_HOSTS";

/// This process's place among those that were started together.
///
/// # Errors
/// When no launcher has started this process.
pub fn launched() -> Result<Launched> {
    Launched::find(&|name| std::env::var(name).ok())
}

/// Where the cells are to run.
pub fn target(launched: &Launched) -> Target {
    launched.address.as_ref().map_or(Target::Here, |_| Target::Hosts)
}

/// Checks that the processes are enough for the ranks of every chosen cell.
///
/// # Errors
/// When the largest cell has more ranks, or its ranks cannot reach other hosts.
pub fn require(recipe: &Recipe, options: &Options, launched: &Launched) -> Result<()> {
    let chosen = options.choose(recipe.cells.len())?;
    if launched.address.is_some() && std::env::var_os(TEST_HOSTS).is_none() {
        let by_sockets = |position: &&usize| {
            let (cell, parallel) = (&recipe.cells[**position], &recipe.cells[**position].parallel);
            let cannot = cell.device_id() == DeviceId::Cpu || parallel.engine == Engine::Sockets;
            !parallel.is_alone() && (cannot || !parallel.is_one_group())
        };
        if let Some(position) = chosen.iter().find(by_sockets) {
            return Err(miette!(
                help = "start them on one host, as with `srun --nodes=1`; or give each rank a GPU and the cell the engine \
                        \"nccl\"; or give each host a part of the cells: `runner run RECIPE --shard i/n`",
                "{} has started ranks on several hosts, and those of cell {} use sockets, which connect ranks of one host; \
                 only NCCL connects hosts",
                launched.launcher,
                position + 1
            ));
        }
    }
    let ranks = |position: &usize| recipe.cells[*position].parallel.ranks();
    let Some(largest) = chosen.iter().max_by_key(|position| ranks(position)) else { return Ok(()) };
    let (most, size) = (ranks(largest), launched.size);
    if most > size {
        return Err(miette!(
            help = format!("start {most} processes, or choose other cells by --cell"),
            "cell {} has {most} ranks, and {} has started {size} processes",
            largest + 1,
            launched.launcher
        ));
    }
    if most < size && launched.rank == 0 {
        tell(format!("at most {most} of the {size} processes work: no cell has more ranks"));
    }
    Ok(())
}

/// The first rank, once all others are there.
///
/// # Errors
/// When a rank did not come, is of another build, or has read another recipe.
pub fn lead(recipe: &Recipe, launched: Launched) -> Result<Leader> {
    Leader::meet(ProcessExecutor::this_program()?, &recipe.cells, launched, limit(recipe))
}

/// Another rank, until the first has no more cells; the exit code.
///
/// # Errors
/// When the first does not come, or is gone.
pub fn follow(recipe: &Recipe, launched: &Launched) -> Result<u8> {
    let cancel = run::install_interrupt()?;
    run::follow(&ProcessExecutor::this_program()?, &recipe.cells, launched, limit(recipe), cancel)
}

/// The longest time that a rank waits for another, in seconds.
fn limit(recipe: &Recipe) -> f64 {
    recipe.cells.iter().map(|cell| cell.parallel.timeout).fold(0.0, f64::max)
}
