//! `runner generate`: continues prompts with a language model from a folder of weights.

mod defaults;

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::module::Module;
use clap::Args;
use itertools::Itertools;
use miette::{Result, miette};

use crate::common::streams::tell;
use crate::common::text;
use crate::common::{Bytes, Compute, DeviceId};
use crate::data::Tokenizer;
use crate::data::chat::Template;
use crate::data::prompts::begin;
use crate::data::tokenizer::generation_ends;
use crate::keys::Rule;
use crate::measure::{Measured, Phase, Stop};
use crate::model::config::from_hugging_face;
use crate::model::generate::{Choice, Request, generate};
use crate::model::language::{Computation, DecoderSizes};
use crate::model::{Model, Parts};
use crate::ops::autocast::autocast;
use crate::params::peft;
use crate::params::table::Tuning;
use crate::recipe::{Cell, Recipe, Setting, Source, own_parameters};
use crate::run::memory_limit;
use crate::train::placement;

/// Keys and sections of a recipe that say where and how a model generates.
const SETTINGS: [&str; 2] = ["offload", "precision.autocast"];
/// Those of them that only training uses.
const OF_TRAINING: [&str; 3] = ["offload.activations", "offload.optimizer", "offload.optimizer_state"];

#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Folder with config.json, safetensors and tokenizer.json, or a model of the Hub
    pub folder: PathBuf,
    /// Folder of an adapter of this model, as PEFT stores it: LoRA, prompt or prefix tuning
    #[arg(long, value_name = "FOLDER")]
    pub adapter: Option<PathBuf>,
    /// Text to continue; may be repeated, and is then continued as one batch
    #[arg(long, required_unless_present = "ids")]
    pub prompt: Vec<String>,
    /// Take each prompt as a question of a chat, and write the assistant's turn by the folder's chat template
    #[arg(long, conflicts_with = "ids")]
    pub chat: bool,
    /// Variables of the chat template, such as "enable_thinking = false"
    #[arg(long, value_name = "NAME = VALUE, …", requires = "chat")]
    pub template_variables: Option<String>,
    /// Token ids to continue, such as 15496,995, where there is no tokenizer; may be repeated
    #[arg(long, conflicts_with = "prompt")]
    pub ids: Vec<String>,
    /// New tokens at most
    #[arg(long, default_value_t = 32)]
    pub tokens: usize,
    /// Draw from softmax(logits / temperature); without it the most probable token is taken
    #[arg(long, allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Draw among the K most probable tokens; 0: among all
    #[arg(long, value_name = "K", requires = "temperature", default_value_t = 0)]
    pub top_k: usize,
    /// Seed of the draws with --temperature
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Where the model runs: cpu, cuda:0, or auto for the first GPU
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Type of numbers in which the model computes
    #[arg(long, default_value = "fp32")]
    pub compute: Compute,
    /// A key of [offload], as in a recipe, such as offload.strategy=overlap; or precision.autocast; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<Setting>,
    /// Generate twice, and report on standard error the tokens per second of the second run, the peak memory, and the time
    /// of the first run, which compiles kernels
    #[arg(long)]
    pub measure: bool,
}

/// Every prompt with its continuation, one a line.
///
/// # Errors
/// When the folder, the prompts or the device cannot be used.
pub fn run(args: &GenerateArgs) -> Result<String> {
    let device = super::device(&args.device)?;
    let choice = choice(args)?;
    let model = from_hugging_face(&args.folder).map_err(|e| miette!("{e}"))?;
    tell_all(args, &model);
    let text = Text::open(args)?;
    let language = model.language().expect("a language model");
    language.check_weights().map_err(|e| miette!("{e}"))?;
    let tuning = match &args.adapter {
        None => Tuning::default(),
        Some(folder) => adapted(&model, folder)?,
    };
    let longest = longest(args, &text, model.decoder().expect("a language model"), tuning.virtual_count())?;
    let request = Request { tokens: args.tokens, choice, ends: text.ends.clone() };
    let cell = cell(args, device, &model, [text.prompts.len(), longest])?;
    let computation = Computation::new(cell.precision.arithmetic(), cell.ops, cell.checkpoint);
    let mut meter = device.meter();
    let results = {
        let source = language.source(device, cell.precision.stored(), &tuning.frozen());
        let source = source.map_err(|e| miette!("{e}"))?;
        let homes = (Some(placement(&cell)), None);
        let network = language.network(longest, &source, computation, homes, Parts::Whole).valid();
        let _region = autocast(cell.precision.region());
        let generate = || {
            generate(&network, &text.prompts, &request, &|_| false, &device.burn()).map_err(|e| {
                let (folder, compute) = (args.folder.display(), args.compute.into_str());
                let help = match args.compute {
                    Compute::Fp32 => format!("weights in {folder} are not finite: take another checkpoint"),
                    _ => format!(
                        "weights in {folder} are not finite, or {compute} has too small a range: try --compute fp32"
                    ),
                };
                miette!(help = help, "{e}")
            })
        };
        let timed = || {
            let start = Instant::now();
            (generate(), start.elapsed().as_secs_f64())
        };
        if !args.measure {
            generate()?
        } else {
            meter.begin(false);
            let first = timed().1;
            meter.end(Phase::Forward);
            meter.pause();
            let (results, second) = timed();
            let results = results?;
            let new = results.iter().zip(&text.prompts).map(|(all, prompt)| all.len() - prompt.len()).sum();
            tell(measured(new, [first, second], meter.so_far())?);
            results
        }
    };
    Ok(results.iter().map(|ids| text.show(ids)).join("\n"))
}

/// Tells what the folder's files say that generation does not do.
fn tell_all(args: &GenerateArgs, model: &Model) {
    let temperature = args.temperature.map(|_| "temperature");
    let top_k = Some("top_k").filter(|_| args.top_k > 0);
    let given: Vec<&str> = temperature.into_iter().chain(top_k).collect();
    let notices = super::notices(&args.folder, model, false);
    notices.into_iter().chain(defaults::notice(&args.folder, &given)).for_each(tell);
}

fn choice(args: &GenerateArgs) -> Result<Choice> {
    match args.temperature {
        None => Ok(Choice::Greedy),
        Some(temperature) if temperature > 0.0 && temperature.is_finite() => {
            Ok(Choice::Sample { temperature, top_k: args.top_k, seed: args.seed })
        }
        Some(other) => Err(miette!("--temperature must be above 0, not {other}; leave it out for greedy")),
    }
}

/// Tokens of the longest prompt with its continuation, virtual ones included.
///
/// # Errors
/// When the model has fewer positions, or lacks a token of a prompt.
fn longest(args: &GenerateArgs, text: &Text, sizes: DecoderSizes, virtual_tokens: usize) -> Result<usize> {
    let DecoderSizes { vocab_size: vocab, max_positions: positions, .. } = sizes;
    let prompt = text.prompts.iter().map(Vec::len).max().unwrap_or(0).saturating_add(virtual_tokens);
    let longest = prompt.saturating_add(args.tokens);
    if longest > positions {
        let shorter = if prompt < positions { "--tokens smaller" } else { "the prompt shorter" };
        let included = match virtual_tokens {
            0 => String::new(),
            1 => ", one virtual one of the adapter included".into(),
            count => format!(", {count} virtual ones of the adapter included"),
        };
        return Err(miette!(
            help = format!("make {shorter}"),
            "the prompt has {}{included}, and with its continuation {longest}; the model has {positions} positions",
            text::counted(prompt, "token")
        ));
    }
    match text.prompts.iter().flatten().find(|id| **id as usize >= vocab) {
        Some(id) => Err(miette!("the token {id} is not in the model's vocabulary of {vocab}")),
        None => Ok(longest),
    }
}

/// `64 tokens in 12.3 ms, 5203 tokens/s; peak memory 296 MiB; the first time took 3.21 s`
fn measured(tokens: usize, [first, second]: [f64; 2], so_far: Result<Measured, Stop>) -> Result<String> {
    let so_far = so_far.map_err(|stop| miette!("{}", stop.reason()));
    let peak = so_far?.memory.live_peak;
    let rate = text::rate(tokens as f64 / second);
    let ([first, second], peak) = ([first, second].map(text::seconds), Bytes(peak));
    Ok(format!(
        "{tokens} tokens in {second}, {rate} tokens/s; peak memory {peak}; the first time took {first}"
    ))
}

/// The generation as a cell with the settings of the command line, checked as any.
fn cell(args: &GenerateArgs, device: DeviceId, model: &Model, [batch, longest]: [usize; 2]) -> Result<Cell> {
    let is_known = |setting: &&Setting| !SETTINGS.iter().any(|known| setting.is_within(known));
    if let Some(other) = args.settings.iter().find(is_known) {
        return Err(miette!(
            help = "a recipe with train.mode = \"inference\" takes every key that has an effect on a forward",
            "`runner generate` takes settings of {} only, not `{}`",
            SETTINGS.join(" and "),
            other.key()
        ));
    }
    let quoted = |text: String| toml::Value::String(text).to_string();
    let weights = quoted(model.weights_folder().expect("a folder's model").display().to_string());
    let kind = model.kind().expect("a language model");
    let text = format!(
        "title = \"generation\"\ndevice = \"{device}\"\n[model]\nkind = \"{kind}\"\nweights = {weights}\n\
         [precision]\ncompute = \"{}\"\n[train]\nmode = \"inference\"\nbatch_size = {batch}\nseq_len = {}\n",
        args.compute,
        longest.max(2),
    );
    let source = Source { path: "the generation as a recipe".into(), text };
    let of_training = args.settings.iter().find(|setting| OF_TRAINING.contains(&setting.key()));
    let recipe = Recipe::parse(&source.with(&args.settings)).map_err(|e| match of_training {
        Some(setting) => e.with_help(format!("leave out --set {setting}: only training uses it")),
        None => e,
    });
    let cell = recipe?.cells.remove(0);
    Ok(cell.within(memory_limit(&cell, &device.info())))
}

/// The network with the adapter in this folder.
fn adapted(model: &Model, folder: &Path) -> Result<Tuning> {
    let method = peft::method(folder).map_err(|e| miette!("{e}"))?;
    let other = |rule: Rule| miette!("{} does not go with this model: {}", folder.display(), rule.message);
    let own = || own_parameters(model);
    method.check(&model.linear_layers(), &own).map_err(other)?;
    Ok(method.tuning(0, &own))
}

/// Prompts as token ids, and the way back.
struct Text {
    tokenizer: Option<Tokenizer>,
    prompts: Vec<Vec<u32>>,
    ends: Vec<u32>,
}

impl Text {
    fn open(args: &GenerateArgs) -> Result<Self> {
        if !args.ids.is_empty() {
            let parse = |list: &String| {
                let ids: Result<Vec<u32>, _> = list.split(',').map(|id| id.trim().parse()).collect();
                ids.map_err(|e| miette!("--ids takes numbers separated by commas, not \"{list}\": {e}"))
            };
            let prompts: Result<Vec<Vec<u32>>> = args.ids.iter().map(parse).collect();
            let ends = generation_ends(&args.folder).map_err(|e| miette!("{e}"))?;
            return Ok(Self { tokenizer: None, prompts: prompts?, ends });
        }
        let tokenizer = tokenizer(&args.folder)?;
        let load = || {
            let template = Template::load(Some(&args.folder), None)?;
            match &args.template_variables {
                None => Ok(template),
                Some(variables) => template.with_variables(variables),
            }
        };
        let template = args.chat.then(load).transpose().map_err(|e| miette!("{e}"))?;
        let begin = |text: &String| begin(text, &tokenizer, template.as_ref()).map_err(|e| miette!("{e}"));
        let prompts: Result<Vec<Vec<u32>>> = args.prompt.iter().map(begin).collect();
        let prompts = prompts?;
        if prompts.iter().any(Vec::is_empty) {
            return Err(miette!("a prompt must not be empty"));
        }
        Ok(Self { ends: tokenizer.ends().to_vec(), tokenizer: Some(tokenizer), prompts })
    }

    fn show(&self, ids: &[u32]) -> String {
        match &self.tokenizer {
            Some(tokenizer) => tokenizer.plain(ids),
            None => ids.iter().join(","),
        }
    }
}

fn tokenizer(folder: &Path) -> Result<Tokenizer> {
    Tokenizer::load(folder).map_err(|e| {
        miette!(help = "name a folder that holds tokenizer.json too, or give token ids with --ids", "{e}")
    })
}
