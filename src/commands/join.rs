//! `runner join`: one of several ranks that a launcher has started together.

use miette::{Result, miette};

use crate::recipe::Recipe;
use crate::run::{self, Launched, Leader, Options, ProcessExecutor};
use crate::words::streams::tell;

/// This process's place, in which every chosen cell has its ranks.
///
/// # Errors
/// When no launcher has started this process, or not enough of them for the largest cell.
pub fn launched(recipe: &Recipe, options: &Options) -> Result<Launched> {
    let launched = Launched::find(&|name| std::env::var(name).ok())?;
    let chosen = options.choose(recipe.cells.len())?;
    let ranks = |position: &usize| recipe.cells[*position].parallel.ranks();
    let Some(largest) = chosen.iter().max_by_key(|position| ranks(position)) else { return Ok(launched) };
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
        tell(format!("of the {size} processes at most {most} work: no cell has more ranks"));
    }
    Ok(launched)
}

/// The first rank, once all others are there.
///
/// # Errors
/// Who did not come, or is of another build.
pub fn lead(recipe: &Recipe, launched: Launched) -> Result<Leader> {
    Leader::meet(ProcessExecutor::this_program()?, launched, limit(recipe))
}

/// Another rank, until the first has no more cells; the exit code.
///
/// # Errors
/// When the first does not come, or is gone.
pub fn follow(recipe: &Recipe, launched: &Launched) -> Result<u8> {
    let cancel = run::install_interrupt()?;
    run::follow(&ProcessExecutor::this_program()?, launched, limit(recipe), cancel)
}

/// The longest time that a rank waits for another, in seconds.
fn limit(recipe: &Recipe) -> f64 {
    recipe.cells.iter().map(|cell| cell.parallel.timeout).fold(0.0, f64::max)
}
