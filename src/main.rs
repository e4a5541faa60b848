//! The flow of the program: a recipe is loaded and checked, planned, run and reported.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use miette::{IntoDiagnostic, Result, WrapErr, miette};

use runner::cli::{Cli, Command};
use runner::commands::run::{self, RunArgs};
use runner::commands::{CheckArgs, fetch_from_hub, open_results, tell_of_models};
use runner::commands::{
    advise, data, devices, generate, init, join, keys, memory, plan, profile, recipes, verify,
};
use runner::common::cache;
use runner::common::refusal::{Refusal, unless_refused};
use runner::common::streams::{self, tell};
use runner::common::text::counted;
use runner::device::Target;
use runner::device::cuda::{libraries, require_capability};
use runner::recipe::{Recipe, RecipeError, Setting, reference, schema};
use runner::run::{
    EXIT_TRY_AGAIN, Executor, Options, ProcessExecutor, Results, Store, TryAgain, merge, report_large_files,
    require_threads,
};
use runner::{report, train};

fn main() -> ExitCode {
    report_large_files();
    let command = Cli::parse().command;
    if command.finds_libraries() {
        libraries::arrange(matches!(command, Command::Devices { .. }));
    }
    // Cells are started by a run, which has said it.
    if !matches!(command, Command::Cell) {
        cache::notice().into_iter().for_each(tell);
    }
    let threads = require_threads(&|name| std::env::var(name).ok());
    let refused = |Refusal(reason): Refusal| Err(miette!("{reason}"));
    let taken = threads.and_then(|()| require_capability().map_err(miette::Report::msg));
    let executed = taken.and_then(|()| unless_refused(|| execute(command)).unwrap_or_else(refused));
    executed.unwrap_or_else(|error| failure(&error))
}

fn execute(command: Command) -> Result<ExitCode> {
    let text = match command {
        Command::Run(args) => return run_recipe(&args),
        Command::Join(args) => return join_ranks(&args),
        Command::Plan { recipe, checked: CheckArgs { settings, target } } => {
            let target = target.unwrap_or_default();
            let recipe = Recipe::load(&recipe, &settings.set, &target)?;
            plan::plan(&recipe, &target, &Vec::from_iter(0..recipe.cells.len()))
        }
        Command::Data(args) => data::run(&args)?,
        Command::Memory(args) => {
            let target = args.checked.target.clone().unwrap_or_default();
            let recipe = Recipe::load(&args.recipe, &args.checked.settings.set, &target)?;
            memory::memory(&args, &recipe, &target)?
        }
        Command::Advise(args) => advise::run(&args)?,
        Command::Check { recipes, checked: CheckArgs { settings, target } } => {
            return check(&recipes, &settings.set, &target.unwrap_or_default());
        }
        Command::Report { folder } => report_again(&folder)?,
        Command::Profile(args) => profile::profile(&args)?,
        Command::Compare { a, b } => compare(&a, &b)?,
        Command::Merge(args) => {
            let merged = merge(&args.folders, &args.into, args.keep)?;
            merged.notices.iter().for_each(tell);
            report_again(&merged.folder)?
        }
        Command::Verify(args) => {
            let (text, passes) = verify::verify(&args)?;
            print(&text)?;
            return Ok(ExitCode::from(u8::from(!passes)));
        }
        Command::Init(args) => init::init(&args)?,
        Command::Generate(args) => generate::run(&args)?,
        Command::Devices { cards: true } => devices::cards(),
        Command::Devices { cards: false } => devices::list(),
        Command::Recipes { folder } => recipes::list(&folder)?,
        Command::Keys { markdown: true, .. } => reference::markdown(),
        Command::Keys { prefix, .. } => keys::table(&prefix)?,
        Command::Schema => format!("{:#}", schema::schema()),
        Command::Ceilings { device, compute } => devices::ceilings(&device, &compute)?,
        Command::Cell => return Ok(train::serve()),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn run_recipe(args: &RunArgs) -> Result<ExitCode> {
    let recipe = Recipe::load(&args.recipe, &args.settings.set, &Target::Here)?;
    let options = run::options(args, &recipe)?;
    run::require_one_process(&options)?;
    measure(args, &recipe, &options, ProcessExecutor::this_program)
}

fn join_ranks(args: &RunArgs) -> Result<ExitCode> {
    let launched = join::launched()?;
    let recipe = Recipe::load(&args.recipe, &args.settings.set, &join::target(&launched))?;
    let options = run::options(args, &recipe)?;
    join::require(&recipe, &options, &launched)?;
    match launched.rank {
        0 => measure(args, &recipe, &options, || join::lead(&recipe, launched)),
        _ if args.dry_run => Ok(ExitCode::SUCCESS),
        _ => join::follow(&recipe, &launched).map(ExitCode::from),
    }
}

/// Chosen cells in the plan that a run begins with, or `--dry-run` prints: what a terminal shows without many pages.
const PLANNED: usize = 100;

/// Measures what is missing with an executor, and writes the report.
fn measure<E: Executor>(
    args: &RunArgs,
    recipe: &Recipe,
    options: &Options,
    executor: impl FnOnce() -> Result<E>,
) -> Result<ExitCode> {
    let mut shown = options.choose(recipe.cells.len())?;
    shown.truncate(PLANNED);
    let (plan, device) = (plan::plan(recipe, &Target::Here, &shown), recipe.device().info());
    tell_of_models(recipe);
    if args.dry_run {
        let store = Store::at(&args.results, recipe, &device);
        print(&format!("{plan}\n{}", run::dry_run(&store, recipe, options)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    fetch_from_hub(recipe)?;
    let executor = executor()?;
    let (store, unwritable) = run::open(args, recipe, options)?;
    tell(plan);
    let summary = run::run_cells(recipe, &store, &executor, options, args.trace)?;
    drop(executor);
    match unwritable {
        _ if summary.interrupted && summary.ok == 0 => {}
        None => print(&write_report(store.folder(), &store.results(recipe, &|text| tell(text))?)?)?,
        Some(why) => {
            print(&run::table(recipe, &store)?)?;
            tell(format!("nothing was left to measure; the report stays as it is: {why}"));
        }
    }
    if args.trace && store.has_traces() {
        let row = store.rows().join("<key>.json");
        tell(format!("`runner profile {}` shows where the time of a step went", row.display()));
    }
    tell(summary);
    Ok(ExitCode::from(summary.exit_code()))
}

/// Checks every recipe, also after one that is wrong.
fn check(recipes: &[PathBuf], settings: &[Setting], target: &Target) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for path in recipes {
        match Recipe::load(path, settings, target) {
            Ok(recipe) => {
                let elsewhere =
                    recipe.elsewhere_notice().map_or(String::new(), |notice| format!("; {notice}"));
                let cells = counted(recipe.cells.len(), "cell");
                print(&format!("{}: {cells}, all valid{elsewhere}", path.display()))?;
                tell_of_models(&recipe);
            }
            Err(error) => code = failure(&error.into()),
        }
    }
    Ok(code)
}

/// Prints the result of a command.
fn print(text: &str) -> Result<()> {
    streams::print(text).into_diagnostic().wrap_err("cannot write to standard output")
}

/// Prints an error; 2: a recipe is wrong; 75: worth another try; 1: everything else.
fn failure(error: &miette::Report) -> ExitCode {
    streams::tell_error(error);
    ExitCode::from(match () {
        () if error.is::<RecipeError>() => 2,
        () if error.is::<TryAgain>() => EXIT_TRY_AGAIN,
        () => 1,
    })
}

/// Writes the tables, charts and documents of a results folder; returns its table and the names of the files.
fn write_report(folder: &Path, results: &Results) -> Result<String> {
    let files = report::write(folder, &results.recipe, &results.rows)?;
    let names = files.iter().map(|file| format!("\n{}", file.display()));
    Ok(report::terminal_table(&results.recipe, &results.rows) + &names.collect::<String>())
}

fn report_again(folder: &Path) -> Result<String> {
    write_report(folder, &open_results(folder)?)
}

fn compare(a: &Path, b: &Path) -> Result<String> {
    let (left, right) = (open_results(a)?, open_results(b)?);
    let (name_a, name_b) = (a.display().to_string(), b.display().to_string());
    report::compare((&name_a, &left.recipe, &left.rows), (&name_b, &right.recipe, &right.rows))
}
