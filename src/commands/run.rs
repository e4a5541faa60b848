//! `runner run`: measures what is missing of a recipe and writes its report.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use itertools::Itertools;
use miette::{Report, Result, miette};

use super::SetArgs;
use crate::common::streams::tell;
use crate::recipe::Recipe;
use crate::report;
use crate::row::Row;
use crate::run::{self, Executor, Launched, Options, Session, Shard, Store, Summary};

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The recipe (a TOML file)
    pub recipe: PathBuf,
    #[command(flatten)]
    pub settings: SetArgs,
    /// Folder that holds the results of every recipe
    #[arg(long, default_value = "results")]
    pub results: PathBuf,
    #[command(flatten)]
    pub options: Options,
    /// Run every n-th cell, beginning with the i-th. With `N` alone, i comes from
    /// SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX or HQ_TASK_ID; a Slurm array says N itself
    #[arg(long, value_name = "I/N")]
    pub shard: Option<String>,
    /// Record one more step of each cell as a Chrome trace, for the report and for `runner profile`
    #[arg(long)]
    pub trace: bool,
    /// Print what would run, and run nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Runs the chosen cells; the summary holds the exit code.
///
/// # Errors
/// When the results cannot be written or the device stays busy.
pub fn run_cells(
    recipe: &Recipe,
    store: &Store,
    executor: &dyn Executor,
    options: &Options,
    trace: bool,
) -> Result<Summary> {
    if trace {
        store.keep_traces().map_err(|e| {
            miette!(
                help = "move what is in its way, or choose another results folder with --results",
                "cannot make the folder of the traces in {}: {e}",
                store.folder().display()
            )
        })?;
    }
    let cancel = run::install_interrupt()?;
    let live = LiveReport::new(recipe, store);
    run::run_cells(
        &Session {
            recipe,
            store,
            executor,
            progress: &*run::console(),
            locks: &std::env::temp_dir(),
            environment: &|device| run::measure_environment(recipe, device, cancel),
            on_row: &|| live.renew(),
            trace,
            cancel,
        },
        options,
    )
}

/// Seconds between two reports of a run that goes on, at least.
const PERIOD: Duration = Duration::from_secs(5);
/// At most one part in so many of a run's time goes into these reports.
const SHARE: u32 = 20;

/// The report of a run that goes on: report.html, between two cells.
struct LiveReport<'a> {
    recipe: &'a Recipe,
    store: &'a Store,
    /// When it may be written next.
    next: Cell<Instant>,
}

impl<'a> LiveReport<'a> {
    fn new(recipe: &'a Recipe, store: &'a Store) -> Self {
        Self { recipe, store, next: Cell::new(Instant::now() + PERIOD) }
    }

    /// Writes it anew, unless that was done a moment ago. The end of the run tells of what cannot be read or written.
    fn renew(&self) {
        let start = Instant::now();
        if start < self.next.get() {
            return;
        }
        if let Ok(results) = self.store.results(self.recipe, &|_| ()) {
            let _ = report::write_html(self.store.folder(), &results.recipe, &results.rows);
        }
        self.next.set(Instant::now() + PERIOD.max(SHARE * start.elapsed()));
    }
}

/// What is left to do of a recipe.
struct Left {
    /// The numbers of the cells that would run.
    missing: Vec<usize>,
    /// Of all of these cells.
    processes: usize,
    /// Rows that would stay.
    kept: Vec<Row>,
    none_chosen: bool,
}

impl Left {
    fn of(store: &Store, recipe: &Recipe, options: &Options) -> Result<Self> {
        let mut rows = store.peek(&recipe.cells, &|text| tell(text))?;
        let (mut missing, mut processes, mut kept) = (Vec::new(), 0, Vec::new());
        let chosen = options.choose(recipe.cells.len())?;
        let none_chosen = chosen.is_empty();
        for position in chosen.into_iter().filter(|position| !recipe.elsewhere.contains_key(position)) {
            let due: Vec<usize> = options.due(&recipe.cells[position], &rows[position]).collect();
            missing.extend((!due.is_empty()).then_some(position + 1));
            processes += due.len();
            let stays = rows[position].drain(..).enumerate().filter(|(process, _)| !due.contains(process));
            kept.extend(stays.filter_map(|(_, row)| row));
        }
        Ok(Self { missing, processes, kept, none_chosen })
    }
}

/// The results folder; with the reason, where it cannot be written to and nothing is left to write there but the report.
///
/// # Errors
/// That it cannot be written to, where something is left.
pub fn open(args: &RunArgs, recipe: &Recipe, options: &Options) -> Result<(Store, Option<Report>)> {
    let device = recipe.device().info();
    let why = match Store::open(&args.results, recipe, &device) {
        Ok(store) => return Ok((store, None)),
        Err(why) => why,
    };
    let store = Store::at(&args.results, recipe, &device);
    match Left::of(&store, recipe, options) {
        Ok(Left { missing, kept, .. }) if missing.is_empty() && !kept.is_empty() && !args.trace => {
            Ok((store, Some(why)))
        }
        _ => Err(why),
    }
}

/// The table of the rows of a folder that is not written to.
///
/// # Errors
/// When they cannot be read.
pub fn table(recipe: &Recipe, store: &Store) -> Result<String> {
    let rows = store.peek(&recipe.cells, &|text| tell(text))?;
    let rows: Vec<Row> = rows.into_iter().flatten().flatten().collect();
    Ok(report::terminal_table(recipe, &rows))
}

/// `--dry-run`: the numbers of the cells that would run.
///
/// # Errors
/// When a chosen cell does not exist, or the results cannot be read.
pub fn dry_run(store: &Store, recipe: &Recipe, options: &Options) -> Result<String> {
    let Left { missing, processes, kept, none_chosen } = Left::of(store, recipe, options)?;
    let of_each = if processes > missing.len() { format!(", {processes} processes") } else { String::new() };
    let mut text = match missing.len() {
        0 if none_chosen && !options.cells.is_empty() => {
            "nothing to run: this shard has none of the chosen cells".to_string()
        }
        0 if none_chosen => format!("nothing to run: this shard has none of {} cells", recipe.cells.len()),
        0 if recipe.elsewhere.is_empty() => "nothing to run: every chosen cell is finished".to_string(),
        0 => "nothing to run: every chosen cell that can run here is finished".to_string(),
        n => format!("would run {n} of {} cells{of_each}: {}", recipe.cells.len(), missing.iter().join(", ")),
    };
    let stale = run::stale_notice(kept.iter());
    stale.into_iter().for_each(|notice| text += &format!("\n{notice}"));
    Ok(text)
}

/// Which cells the user wants.
///
/// # Errors
/// When a chosen cell or shard does not exist.
pub fn options(args: &RunArgs, recipe: &Recipe) -> Result<Options> {
    let shard = Shard::resolve(args.shard.as_deref(), |name| std::env::var(name).ok())?;
    let options = Options { shard, ..args.options.clone() };
    options.choose(recipe.cells.len())?;
    Ok(options)
}

/// Refuses several processes that would all do the same.
///
/// # Errors
/// When a launcher has started several processes of this command without shards.
pub fn require_one_process(options: &Options) -> Result<()> {
    match options.shard {
        // Each has a part of the cells.
        Some(_) => Ok(()),
        None => Launched::require_one_process(&|name| std::env::var(name).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::DeviceId;
    use crate::device::Target;
    use crate::recipe::Source;
    use crate::row::Status;
    use crate::run::testing;

    /// Each cell's row is known by the name of its own device.
    #[test]
    fn a_dry_run_of_a_mixed_recipe_knows_the_rows_of_both_devices() {
        let folder = tempfile::tempdir().unwrap();
        let text = testing::recipe().text.replace("device = \"cpu\"\n", "");
        let text = text.replace("\"train.batch_size\" = [1, 2, 3]", "device = [\"cuda:0\", \"cpu\"]");
        let source = Source { path: "recipes/both.toml".into(), text };
        let recipe = Recipe::parse_for(&source, &"cuda, 8 GiB".parse::<Target>().unwrap()).unwrap();
        let gpu = crate::device::DeviceInfo { name: "Test GPU".into(), ..testing::device() };
        let plan =
            |options: &Options| dry_run(&Store::at(folder.path(), &recipe, &gpu), &recipe, options).unwrap();
        assert_eq!(plan(&Options::default()), "would run 2 of 2 cells: 1, 2");
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "a dry run writes nothing");

        let store = Store::open(folder.path(), &recipe, &gpu).unwrap();
        let mut environment = testing::environment();
        environment.device = DeviceId::Cpu.info();
        store.save(&Row::new(&recipe.cells[1], &environment, Status::Failed, "why".into())).unwrap();
        assert_eq!(plan(&Options::default()), "would run 1 of 2 cells: 1");
        environment.device = gpu.clone();
        environment.build = "0123456789ab".into();
        store.save(&Row::new(&recipe.cells[0], &environment, Status::Failed, "why".into())).unwrap();
        let printed = plan(&Options::default());
        assert!(
            printed.starts_with("nothing to run") && printed.contains("1 finished row is of another"),
            "{printed}"
        );
        assert_eq!(plan(&Options { stale: true, ..Options::default() }), "would run 1 of 2 cells: 1");
    }
}
