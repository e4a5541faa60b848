//! `runner advise`: how to train a model within so much memory, how fast and at what price; with --for a card by its data sheet,
//! and for another device the ways with the least work.

mod change;
mod largest;
mod located;
mod measured;
mod model;
mod question;
#[cfg(test)]
mod recipes_tests;
mod text;
mod words;
mod written;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::RangedU64ValueParser;
use miette::{IntoDiagnostic, Result, miette};

use self::located::{Located, path, written_for};
use self::question::Question;
use super::CheckArgs;
use crate::advise::Plan;
use crate::common::Bytes;
use crate::common::streams::print;
use crate::common::text::argument;
use crate::data::reader::Kind;
use crate::device::Target;

#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// A recipe (a TOML file), a model of the Hugging Face Hub such as Qwen/Qwen2.5-1.5B, a preset such as qwen2.5-1.5b, or a
    /// folder of weights
    pub model: String,
    /// Device memory that may be used, such as 11GiB [default: `measure.memory_limit`, else what is free]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<Bytes>,
    /// Host memory that may be used [default: `measure.host_memory_limit`, else what is free here, and any amount with --for]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub host_memory: Option<Bytes>,
    #[command(flatten)]
    pub checked: CheckArgs,
    /// Tokens of a sequence [default: the recipe's, else 1024]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(2..=1 << 31))]
    pub seq_len: Option<usize>,
    /// Sequences of a step [default: the recipe's, else 16]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1 << 31))]
    pub batch: Option<usize>,
    /// What is trained on: a file, a folder or a data set of the Hub [default: the recipe's, else random tokens]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// The largest value of train.seq_len or train.batch_size that fits, or the largest of several models, separated by commas
    #[arg(long, value_name = "KEY or MODELS", conflicts_with_all = ["measure", "write", "way"])]
    pub largest: Option<String>,
    /// The number of the cell, as `runner plan` shows it, where the recipe has several
    #[arg(long, value_name = "K")]
    pub cell: Option<usize>,
    /// A key, or a section, that stays as the recipe has it, such as precision; may be repeated
    #[arg(long, value_name = "KEY")]
    pub keep: Vec<String>,
    /// Kinds of optimizers to choose from, with the recipe's values [default: its own; where that is AdamW,
    /// adamw,adamw_bf16,adamw8bit]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub optimizers: Vec<String>,
    /// Methods of tuning to choose from besides the recipe's own [default: lora,qlora]
    #[arg(long, value_name = "METHODS", value_delimiter = ',')]
    pub methods: Vec<String>,
    /// How many ways with less memory to list of each group
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub top: usize,
    /// Write the recipe of a way to this file
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// The number of the way to write, as the table has it [default: the one that the answer names]
    #[arg(long, value_name = "N", requires = "write")]
    pub way: Option<usize>,
    /// Run the best ways, and compare their time and memory with the prediction
    #[arg(long)]
    pub measure: bool,
    /// Folder for the results of --measure
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    pub results: PathBuf,
}

fn bytes(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).ok_or_else(|| "write an amount such as 11GiB or 500 MB".into())
}

/// The advice as text; with `--measure` it is printed, and the result is the table of the best ways as measured.
///
/// # Errors
/// When what is asked about is not there, or several cells are and none is chosen; a key to keep is not one that the search
/// varies; a recipe cannot be written; or the best way cannot run.
pub fn run(args: &AdviseArgs) -> Result<String> {
    let is_here = args.checked.target.as_ref().is_none_or(|target| *target == Target::Here);
    if args.measure && !is_here {
        return Err(miette!(help = "leave out --for", "--measure runs on this machine"));
    }
    if let Some(largest) = &args.largest {
        return largest::largest(args, largest);
    }
    let question = Question::new(args, &args.model)?;
    let advice = question.advice()?;
    let Some(advised) = advice.advised() else {
        let shorter = largest::sequences_that_fit(&question);
        return Ok(text::none_fits(&question, &advice, shorter, largest::model_that_fits(&question)?));
    };
    let (bests, rest) = text::listed(&advice, args.top);
    let ways: Vec<&Plan> = bests.iter().chain(&rest).copied().collect();
    let own = ways.iter().position(|plan| std::ptr::eq(*plan, advised)).map_or(1, |position| position + 1);
    let mut text = text::advice(&question, &advice, args.top);
    text += &change::other_hardware(&question, &advice)?;
    text += &match &args.write {
        Some(file) => write(&question, &ways, args.way.unwrap_or(own), file)?,
        None => commands(&question, advised, own)?,
    };
    text += &notes(args, &question);
    if !args.measure {
        return Ok(text);
    }
    // What is measured may take long.
    print(&text).into_diagnostic()?;
    measured::measured(args, &question, &bests[..bests.len().min(3)])
}

/// Writes the recipe of a way.
fn write(question: &Question, ways: &[&Plan], way: usize, file: &Path) -> Result<String> {
    let Some(plan) = way.checked_sub(1).and_then(|position| ways.get(position)) else {
        return Err(miette!(
            help = format!("the table has 1 to {}", ways.len()),
            "--way {way}: there is no such way"
        ));
    };
    // The recipe is checked as it will be read.
    Located::new(question, &plan.cell, question.limits)?;
    let text = written_for(question, &plan.cell, false);
    let written = File::create_new(file).and_then(|mut file| file.write_all(text.as_bytes()));
    let unwritten =
        |why| miette!(help = "name another file in --write", "cannot write {}: {why}", file.display());
    written.map_err(unwritten)?;
    let file = argument(file.display());
    Ok(format!("Way {way} is written to {file}: runner run {file}\n"))
}

/// The commands that write and run a way.
fn commands(question: &Question, plan: &Plan, way: usize) -> Result<String> {
    let located = Located::new(question, &plan.cell, question.limits)?;
    let typed: Vec<String> = std::env::args().skip(1).map(argument).collect();
    let file = path(question);
    let file = argument(file.file_name().unwrap_or_default().to_string_lossy());
    let write = format!("to write the recipe of way {way}:\n  runner {} --write {file}\n", typed.join(" "));
    let run = located.command(question).map(|command| format!("to run it as it is:\n  {command}\n"));
    Ok(format!("{write}{}", run.unwrap_or_default()))
}

/// What the answer rests on.
fn notes(args: &AdviseArgs, question: &Question) -> String {
    let card = question.target.card().map(|(card, _)| {
        format!(
            "Times of the {} follow from its data sheet; nothing was measured on this card. `runner advise` on it without --for \
             measures its rates.\n",
            card.name
        )
    });
    let host = (question.limits.host_memory.is_none() && card.is_some())
        .then_some("The host's memory is taken for unlimited: --host-memory 32GiB limits it.\n".to_string());
    let data = args.data.as_ref().filter(|data| !data.exists() && Kind::from_path(data).is_some());
    let data = data.map(|data| {
        let chats = "name a template of chats in data.template if it has chats";
        format!("{} is not here and was not looked at: {chats}.\n", data.display())
    });
    card.into_iter().chain(host).chain(data).collect()
}
