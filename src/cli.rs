//! The command line: what a user may type.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::CheckArgs;
use crate::commands::advise::AdviseArgs;
use crate::commands::data::DataArgs;
use crate::commands::generate::GenerateArgs;
use crate::commands::init::InitArgs;
use crate::commands::memory::MemoryArgs;
use crate::commands::profile::ProfileArgs;
use crate::commands::run::RunArgs;
use crate::commands::verify::VerifyArgs;
use crate::common::Compute;
use crate::run::Keep;

/// Measures which way of training a large language model in little memory is worth its price, and trains it
#[derive(Debug, Parser)]
#[command(name = "runner", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Command {
    /// Whether it must find the libraries of this machine's devices. Cells and rates have those of the run that starts them,
    /// and the others read and write files.
    pub fn finds_libraries(&self) -> bool {
        !matches!(
            self,
            Self::Cell
                | Self::Ceilings { .. }
                | Self::Report { .. }
                | Self::Profile(_)
                | Self::Compare { .. }
                | Self::Merge(_)
                | Self::Recipes { .. }
                | Self::Keys { .. }
                | Self::Schema
        )
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a first recipe for this machine, with comments, and a text to train on
    Init(InitArgs),
    /// Measure the cells of a recipe that have no row yet, then write tables, charts and report
    Run(RunArgs),
    /// Do the same as one of the processes that torchrun, srun or mpirun has started: each is a rank of every cell
    Join(RunArgs),
    /// Print every cell with its estimated memory and whether it fits
    Plan {
        /// The recipe (a TOML file)
        recipe: PathBuf,
        #[command(flatten)]
        checked: CheckArgs,
    },
    /// Print what a recipe trains on: files, lengths, what is left out, and the first samples with what is learned
    Data(DataArgs),
    /// Print where the memory of each cell goes: the formula and bytes of every part, and what was measured
    Memory(MemoryArgs),
    /// Say how to train a model in so much memory, how fast and at what price, and write the recipe; with --for a card that need
    /// not be here
    Advise(AdviseArgs),
    /// Check a recipe without running anything
    Check {
        /// Recipes (TOML files)
        #[arg(required = true)]
        recipes: Vec<PathBuf>,
        #[command(flatten)]
        checked: CheckArgs,
    },
    /// Write tables, charts and report again from the rows of a results folder
    Report {
        /// A results folder such as results/quickstart/cpu-...
        folder: PathBuf,
    },
    /// Print where the time of a traced step went: each operator with its floor, and the longest kernels
    Profile(ProfileArgs),
    /// Compare two results folders cell by cell
    Compare {
        /// A results folder
        a: PathBuf,
        /// Another one of the same recipe
        b: PathBuf,
    },
    /// Put results of one recipe from several machines into one folder, and write its report
    Merge(MergeArgs),
    /// Compare this machine's arithmetic with reference values of PyTorch
    Verify(VerifyArgs),
    /// Continue text, or answer a question, with a language model of a folder or of the Hub
    Generate(GenerateArgs),
    /// List the devices of this machine with their measured rates
    Devices {
        /// List the cards that --for knows, with the figures of their data sheets
        #[arg(long)]
        cards: bool,
    },
    /// List the recipes in a folder
    Recipes {
        #[arg(default_value = "recipes")]
        folder: PathBuf,
    },
    /// Print the keys of a recipe: values, defaults and what they are for
    Keys {
        /// Keys that begin with this, such as train or data.sampler
        #[arg(default_value = "")]
        prefix: String,
        /// Print the whole reference as Markdown
        #[arg(long, conflicts_with = "prefix")]
        markdown: bool,
    },
    /// Print the JSON Schema of a recipe, by which an editor completes and checks it
    Schema,
    /// Print the device's measured rates as JSON
    #[command(hide = true)]
    Ceilings { device: String, compute: Vec<Compute> },
    /// Run one cell, as asked on standard input
    #[command(hide = true)]
    Cell,
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Results folders such as a/overlap/h200 and b/overlap/h100
    #[arg(required = true, value_name = "FOLDER")]
    pub folders: Vec<PathBuf>,
    /// Folder that holds the results of every recipe, as --results of `run`
    #[arg(long, value_name = "FOLDER")]
    pub into: PathBuf,
    /// Which row counts where two of one cell and device differ
    #[arg(long, value_enum)]
    pub keep: Option<Keep>,
}
