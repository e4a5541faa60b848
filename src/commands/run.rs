//! `runner run`: measures what is missing of a recipe and writes its report.

use std::path::Path;

use miette::{IntoDiagnostic, Result, miette};

use crate::cli::RunArgs;
use crate::device::DeviceId;
use crate::recipe::Recipe;
use crate::run::{self, DeviceLock, Options, ProcessExecutor, Session, Shard, Store, Summary};

/// Runs the chosen cells; the summary holds the exit code.
///
/// # Errors
/// When a program is missing that a cell needs, the results cannot be written or the device stays busy.
pub fn run_cells(recipe: &Recipe, store: &Store, options: &Options, trace: bool) -> Result<Summary> {
    if trace {
        if recipe.device() == DeviceId::Cpu {
            return Err(miette!(
                help = "run without --trace, or on a CUDA device",
                "--trace records the kernels and copies of a CUDA device; this recipe runs on the CPU"
            ));
        }
        store.keep_traces().into_diagnostic()?;
    }
    let executor = ProcessExecutor::this_program()?;
    executor.check(options.choose(recipe.cells.len())?.into_iter().map(|i| &recipe.cells[i]))?;
    let device = recipe.device();
    run::run_cells(
        &Session {
            recipe,
            store,
            executor: &executor,
            progress: &*run::console(),
            lock: &DeviceLock::new(&device.to_string()),
            environment: &|device| run::measure_environment(recipe, device),
            trace,
            cancel: run::install_interrupt()?,
        },
        options,
    )
}

/// `--dry-run`: the numbers of the cells that would run.
pub fn dry_run(results: &Path, recipe: &Recipe, options: &Options) -> Result<String> {
    let folder = Store::folder_of(results, recipe, &recipe.device().info());
    let rows = match folder.join("rows").is_dir() {
        true => Store::open_folder(&folder)?.rows,
        false => Vec::new(),
    };
    let name = recipe.device().info().name;
    let missing: Vec<String> = options
        .choose(recipe.cells.len())?
        .into_iter()
        .filter(|i| options.wants(rows.iter().find(|row| row.key == recipe.cells[*i].key(&name))))
        .map(|i| (i + 1).to_string())
        .collect();
    Ok(match missing.len() {
        0 => "nothing to run: every chosen cell is finished".into(),
        n => format!("would run {n} of {} cells: {}", recipe.cells.len(), missing.join(", ")),
    })
}

/// Which cells the user wants.
///
/// # Errors
/// When a cell or a shard is asked for that there is not.
pub fn options(args: &RunArgs, recipe: &Recipe) -> Result<Options> {
    let options = Options {
        force: args.force,
        retry_failed: args.retry_failed,
        cells: args.cell.clone(),
        shard: Shard::resolve(args.shard.as_deref(), |name| std::env::var(name).ok())?,
        fail_fast: args.fail_fast,
    };
    options.choose(recipe.cells.len())?;
    Ok(options)
}
