//! `runner generate`: continues prompts with a language model from a folder of weights.

use std::path::{Path, PathBuf};

use clap::Args;
use itertools::Itertools;
use miette::{Result, miette};

use crate::data::Tokenizer;
use crate::device::dtype;
use crate::model::config::from_hugging_face;
use crate::model::generate::{Choice, Request, generate};
use crate::model::language::{Computation, DecoderSizes};
use crate::model::{Model, on_language};
use crate::ops::dense::Arithmetic;
use crate::ops::{Checkpoint, Ops};
use crate::params::peft;
use crate::params::table::Tuning;
use crate::words::{Compute, DeviceId, Rule};

#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Folder with config.json, safetensors and tokenizer.json
    pub folder: PathBuf,
    /// Folder of an adapter of this model, as PEFT stores it: LoRA, prompt or prefix tuning
    #[arg(long, value_name = "FOLDER")]
    pub adapter: Option<PathBuf>,
    /// Text to continue; may be repeated, and is then continued as one batch
    #[arg(long, required_unless_present = "ids")]
    pub prompt: Vec<String>,
    /// Token ids to continue, such as 15496,995, where there is no tokenizer; may be repeated
    #[arg(long, conflicts_with = "prompt")]
    pub ids: Vec<String>,
    /// New tokens at most
    #[arg(long, default_value_t = 32)]
    pub tokens: usize,
    /// Draw from softmax(logits / temperature); without it the most probable token is taken
    #[arg(long)]
    pub temperature: Option<f64>,
    /// Draw among the K most probable tokens
    #[arg(long, value_name = "K", requires = "temperature", default_value_t = 0)]
    pub top_k: usize,
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    #[arg(long, default_value = "auto")]
    pub device: String,
    #[arg(long, default_value = "fp32")]
    pub compute: Compute,
}

/// Every prompt with its continuation, one a line.
///
/// # Errors
/// When the folder, the prompts or the device cannot be used.
pub fn run(args: &GenerateArgs) -> Result<String> {
    let device =
        DeviceId::resolve(&args.device).map_err(|rule| miette!(help = rule.help, "{}", rule.message))?;
    let choice = match args.temperature {
        None => Choice::Greedy,
        Some(temperature) if temperature > 0.0 && temperature.is_finite() => {
            Choice::Sample { temperature, top_k: args.top_k, seed: args.seed }
        }
        Some(other) => {
            return Err(miette!("--temperature must be above 0, not {other}; leave it out for greedy"));
        }
    };
    let text = Text::open(args)?;
    let model = from_hugging_face(&args.folder).map_err(|e| miette!("{e}"))?;
    let DecoderSizes { vocab_size: vocab, max_positions: positions, .. } =
        model.decoder().expect("a language model");
    let tuning = match &args.adapter {
        None => Tuning::default(),
        Some(folder) => adapted(&model, folder)?,
    };
    let longest = text.prompts.iter().map(Vec::len).max().unwrap_or(0).saturating_add(args.tokens);
    let longest = longest.saturating_add(tuning.virtual_count());
    if longest > positions {
        return Err(miette!(
            help = "make --tokens smaller",
            "prompt and continuation would be {longest} tokens long, with virtual tokens where the adapter has some, and \
             the model has {positions} positions"
        ));
    }
    if let Some(id) = text.prompts.iter().flatten().find(|id| **id as usize >= vocab) {
        return Err(miette!("the token {id} is not in the model's vocabulary of {vocab}"));
    }
    let request = Request { tokens: args.tokens, choice, end: text.end };
    let arithmetic = Arithmetic::of(args.compute);
    let computation = Computation::new(arithmetic, Ops::default(), Checkpoint::default());
    let results = on_language!(&model, model => {
        let source = model.source(device, dtype(args.compute), &tuning);
        let network = model.network(longest, &source.map_err(|e| miette!("{e}"))?, computation, None);
        generate(&network, &text.prompts, &request, &device.burn())
    })
    .expect("a language model");
    let lines: Result<Vec<String>> = results.iter().map(|ids| text.show(ids)).collect();
    Ok(lines?.join("\n"))
}

/// The network with the adapter in this folder.
fn adapted(model: &Model, folder: &Path) -> Result<Tuning> {
    let method = peft::method(folder).map_err(|e| miette!("{e}"))?;
    let other = |rule: Rule| miette!("{} does not go with this model: {}", folder.display(), rule.message);
    method.check(&model.linear_layers()).map_err(other)?;
    Ok(method.tuning(0))
}

/// Prompts as token ids, and the way back.
struct Text {
    tokenizer: Option<Tokenizer>,
    prompts: Vec<Vec<u32>>,
    end: Option<u32>,
}

impl Text {
    fn open(args: &GenerateArgs) -> Result<Self> {
        if !args.ids.is_empty() {
            let parse = |list: &String| {
                let ids: Result<Vec<u32>, _> = list.split(',').map(|id| id.trim().parse()).collect();
                ids.map_err(|e| miette!("--ids takes numbers separated by commas, not \"{list}\": {e}"))
            };
            let prompts: Result<Vec<Vec<u32>>> = args.ids.iter().map(parse).collect();
            return Ok(Self { tokenizer: None, prompts: prompts?, end: None });
        }
        let tokenizer = tokenizer(&args.folder)?;
        let prompts: Result<Vec<Vec<u32>>> =
            args.prompt.iter().map(|text| tokenizer.encode(text).map_err(|e| miette!("{e}"))).collect();
        let prompts = prompts?;
        if prompts.iter().any(Vec::is_empty) {
            return Err(miette!("a prompt must not be empty"));
        }
        Ok(Self { end: tokenizer.eos(), tokenizer: Some(tokenizer), prompts })
    }

    fn show(&self, ids: &[u32]) -> Result<String> {
        match &self.tokenizer {
            Some(tokenizer) => tokenizer.decode(ids).map_err(|e| miette!("{e}")),
            None => Ok(ids.iter().join(",")),
        }
    }
}

fn tokenizer(folder: &Path) -> Result<Tokenizer> {
    Tokenizer::load(folder).map_err(|e| {
        miette!(help = "name a folder that holds tokenizer.json too, or give token ids with --ids", "{e}")
    })
}
