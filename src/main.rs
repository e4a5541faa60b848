//! The flow of the program: a recipe is loaded and checked, planned, run and reported.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use miette::Result;

use runner::cli::{Cli, Command};
use runner::commands::CheckArgs;
use runner::commands::run::{self, RunArgs};
use runner::commands::{advise, devices, generate, keys, memory, plan, profile, recipes};
use runner::device::Target;
use runner::recipe::{Recipe, RecipeError, Setting, reference, schema};
use runner::run::{EXIT_TRY_AGAIN, Results, Store, TryAgain};
use runner::{report, train, verify};

fn main() -> ExitCode {
    execute(Cli::parse().command).unwrap_or_else(|error| failure(&error))
}

fn execute(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(args) => return run_recipe(&args),
        Command::Plan { recipe, checked: CheckArgs { settings, target } } => {
            let target = target.unwrap_or_default();
            let recipe = Recipe::load(&recipe, &settings.set, &target)?;
            println!("{}", plan::plan(&recipe, &target));
        }
        Command::Memory(args) => {
            let target = args.checked.target.clone().unwrap_or_default();
            let recipe = Recipe::load(&args.recipe, &args.checked.settings.set, &target)?;
            print!("{}", memory::memory(&args, &recipe, &target)?);
        }
        Command::Advise(args) => print!("{}", advise::run(&args)?),
        Command::Check { recipes, checked: CheckArgs { settings, target } } => {
            return Ok(check(&recipes, &settings.set, &target.unwrap_or_default()));
        }
        Command::Report { folder } => {
            let results = Store::open_folder(&folder)?;
            for notice in &results.notices {
                eprintln!("{notice}");
            }
            write_report(&folder, &results)?;
        }
        Command::Profile(args) => print!("{}", profile::profile(&args)?),
        Command::Compare { a, b } => println!("{}", compare(&a, &b)?),
        Command::Verify(args) => {
            let checks = verify::verify(&args.folder, &args.options())?;
            println!("{}", verify::table(&checks));
            return Ok(ExitCode::from(u8::from(!verify::passes(&checks))));
        }
        Command::Generate(args) => println!("{}", generate::run(&args)?),
        Command::Devices => println!("{}", devices::list()),
        Command::Recipes { folder } => println!("{}", recipes::list(&folder)?),
        Command::Keys { markdown: true, .. } => print!("{}", reference::markdown()),
        Command::Keys { prefix, .. } => println!("{}", keys::table(&prefix)?),
        Command::Schema => println!("{:#}", schema::schema()),
        Command::Ceilings { device, compute } => println!("{}", devices::ceilings(&device, &compute)?),
        Command::Cell => return Ok(train::serve()),
    }
    Ok(ExitCode::SUCCESS)
}

fn run_recipe(args: &RunArgs) -> Result<ExitCode> {
    let recipe = Recipe::load(&args.recipe, &args.settings.set, &Target::Here)?;
    let options = run::options(args, &recipe)?;
    let (plan, device) = (plan::plan(&recipe, &Target::Here), recipe.device().info());
    if args.dry_run {
        let store = Store::at(&args.results, &recipe, &device);
        println!("{plan}\n{}", run::dry_run(&store, &recipe, &options)?);
        return Ok(ExitCode::SUCCESS);
    }
    let store = Store::open(&args.results, &recipe, &device)?;
    eprintln!("{plan}");
    let summary = run::run_cells(&recipe, &store, &options, args.trace)?;
    if !summary.interrupted {
        write_report(store.folder(), &store.results(&recipe, &|text| eprintln!("{text}"))?)?;
    }
    if args.trace {
        eprintln!("where the time of a step went: runner profile {}", store.folder().display());
    }
    eprintln!("{summary}");
    Ok(ExitCode::from(summary.exit_code()))
}

/// Every recipe is checked, also after a wrong one.
fn check(recipes: &[PathBuf], settings: &[Setting], target: &Target) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in recipes {
        match Recipe::load(path, settings, target) {
            Ok(recipe) => println!("{}: {} cells, all valid", path.display(), recipe.cells.len()),
            Err(error) => code = failure(&error.into()),
        }
    }
    code
}

/// Prints an error; 2: a recipe is wrong; 75: worth another try; 1: everything else.
fn failure(error: &miette::Report) -> ExitCode {
    eprintln!("{error:?}");
    ExitCode::from(match () {
        () if error.is::<RecipeError>() => 2,
        () if error.is::<TryAgain>() => EXIT_TRY_AGAIN,
        () => 1,
    })
}

/// Writes the tables, charts and documents of a results folder and prints its table.
fn write_report(folder: &Path, results: &Results) -> Result<()> {
    let files = report::write(folder, &results.recipe, &results.rows)?;
    println!("{}", report::terminal_table(&results.recipe, &results.rows));
    for file in files {
        println!("{}", file.display());
    }
    Ok(())
}

fn compare(a: &Path, b: &Path) -> Result<String> {
    let (left, right) = (Store::open_folder(a)?, Store::open_folder(b)?);
    let (name_a, name_b) = (a.display().to_string(), b.display().to_string());
    report::compare((&name_a, &left.recipe, &left.rows), (&name_b, &right.recipe, &right.rows))
}
