//! What is asked about: a recipe, or a model by a name, of which a recipe is made.

use std::path::Path;

use itertools::Itertools;
use miette::{Result, miette};

use super::AdviseArgs;
use crate::common::DeviceId;
use crate::data::record::Record;
use crate::data::{Corpus, SampleUnit, Split};
use crate::device::Target;
use crate::keys::nearest;
use crate::model::families::{FAMILIES, Family};
use crate::params::hub::{Hub, HubName, Needs};
use crate::recipe::Source;

/// Tokens of a sequence and sequences of a step where nobody says.
const SEQ_LEN: usize = 1024;
const BATCH: usize = 16;

/// Words of a model's name that leave its sizes as they are.
const SAME_SIZES: [&str; 10] =
    ["instruct", "it", "base", "chat", "hf", "pt", "deduped", "v1.0", "0425", "2507"];

/// A model by its name, as `[model]` of a recipe has it.
#[derive(Debug, PartialEq)]
pub struct Named {
    /// Of its folder, its preset, or the Hub.
    pub name: String,
    /// The published model whose sizes it has.
    pub preset: Option<&'static str>,
    pub weights: Option<String>,
    /// Whether the preset is this model, and no other one of its sizes.
    pub is_preset: bool,
}

impl Named {
    /// # Errors
    /// When there is no such model.
    pub fn new(name: &str) -> Result<Self> {
        let path = Path::new(name);
        let last = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(preset) = preset(name) {
            return Ok(Self { name: name.into(), preset: Some(preset), weights: None, is_preset: true });
        }
        if path.is_dir() {
            // A name with one slash may be of the Hub.
            let folder =
                if path.is_absolute() { name.into() } else { format!("./{}", name.trim_start_matches("./")) };
            return Ok(Self { name: last(), preset: None, weights: Some(folder), is_preset: false });
        }
        let Some(hub) = HubName::parse(path) else { return Err(unknown(name)) };
        let last = last();
        let preset = match Hub::from_environment().cached(&hub, Needs::Description) {
            Some(_) => None,
            None => sizes(&last),
        };
        let is_preset = preset.is_some_and(|preset| preset == last.to_lowercase());
        Ok(Self { name: last, preset, weights: Some(name.into()), is_preset })
    }

    /// The lines of `[model]`. `checked`: with the sizes by which a recipe is checked where its weights are not.
    pub fn lines(&self, checked: bool) -> String {
        let preset = self.preset.filter(|_| checked || self.is_preset);
        let line = |(key, value): (&str, Option<&str>)| {
            value.map(|value| format!("{key} = {}\n", toml::Value::from(value)))
        };
        [("preset", preset), ("weights", self.weights.as_deref())].into_iter().filter_map(line).collect()
    }

    /// A recipe that trains all of its parameters in mixed precision, with the state of AdamW in fp32.
    ///
    /// # Errors
    /// When what is trained on is here and cannot be read.
    fn recipe(&self, args: &AdviseArgs, target: &Target) -> Result<String> {
        let on_gpu = target.resolve("auto").is_ok_and(|device| device != DeviceId::Cpu);
        let precision = if on_gpu { "[precision]\ncompute = \"bf16\"\nautocast = true\n" } else { "" };
        let data = args.data.as_ref().map(|data| self.data(data)).transpose()?.unwrap_or_default();
        Ok(format!(
            "title = {}\n[model]\n{}{precision}{data}[train]\nbatch_size = {}\nseq_len = {}\noptimizer = {{ kind = \"adamw\", lr = 1e-5 }}\n",
            toml::Value::from(self.name.as_str()),
            self.lines(true),
            args.batch.unwrap_or(BATCH),
            args.seq_len.unwrap_or(SEQ_LEN),
        ))
    }

    /// The lines of what is trained on, all of it once. Weights have a tokenizer and a template of chats beside them; without them
    /// a tokenizer is trained, and any template serves.
    fn data(&self, corpus: &Path) -> Result<String> {
        let is_chat = matches!(first_record(corpus)?, Some(Record::Chat(_)));
        let template = if is_chat && self.weights.is_none() { "template = \"chatml\"\n" } else { "" };
        let sampler = if is_text(corpus) { "" } else { "sampler = \"packed\"\n" };
        let corpus = toml::Value::from(corpus.display().to_string());
        Ok(format!("[data]\ncorpus = {corpus}\n{template}{sampler}[measure]\nepochs = 1\n"))
    }
}

/// The recipe that is asked about, with the model by whose name it was made.
///
/// # Errors
/// When there is no such recipe and no such model.
pub fn asked(args: &AdviseArgs, name: &str, target: &Target) -> Result<(Source, Option<Named>)> {
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "toml") || path.is_file() {
        return Ok((Source::read(path)?, None));
    }
    let named = Named::new(name)?;
    let text = named.recipe(args, target)?;
    Ok((Source { path: format!("{}.toml", named.name.to_lowercase()).into(), text }, Some(named)))
}

/// The first record of a corpus; `None` where it is not here, or has none to train on.
///
/// # Errors
/// When it is here and cannot be read.
fn first_record(corpus: &Path) -> Result<Option<Record>> {
    if !corpus.exists() {
        return Ok(None);
    }
    let records = Corpus::open(corpus).and_then(|corpus| corpus.records(Split::Train, SampleUnit::Documents));
    let first = records.and_then(|mut records| records.next().transpose());
    first.map_err(|why| miette!(help = "name a file, or a folder of files, in --data", "{why}"))
}

/// Text without records: its blocks are full.
fn is_text(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| ["txt", "tokens", "raw", "bin"].contains(&extension))
}

fn preset(name: &str) -> Option<&'static str> {
    presets().find(|preset| preset.eq_ignore_ascii_case(name))
}

fn presets() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family: &&Family| family.presets.iter().map(|(name, _)| *name))
}

/// The preset that has the sizes of a model of the Hub, by its name: the one whose words are all in it, if what else is there says
/// nothing of sizes.
fn sizes(name: &str) -> Option<&'static str> {
    let words = |name: &str| name.to_lowercase().split('-').map(String::from).collect_vec();
    let written = words(name);
    let is_of = |preset: &&str| {
        let own = words(preset);
        let rest = written.iter().filter(|word| !own.contains(word));
        own.iter().all(|word| written.contains(word))
            && rest.into_iter().all(|word| SAME_SIZES.contains(&word.as_str()))
    };
    presets().filter(is_of).max_by_key(|preset| preset.len())
}

fn unknown(name: &str) -> miette::Report {
    let all = presets().collect_vec();
    let near = nearest(&name.to_lowercase(), &all);
    let (near, preset) = match near {
        Some(best) => (format!("did you mean {best}? "), format!("a preset such as {best}")),
        None => (String::new(), format!("one of {}", all.join(", "))),
    };
    miette!(
        help = format!(
            "{near}write a recipe (a .toml file), a folder of weights, a model of the Hugging Face Hub such as \
             Qwen/Qwen2.5-1.5B, or {preset}"
        ),
        "{name} is no recipe and no model that is known"
    )
}

/// The models of the family of this preset, or of this kind, the largest first.
pub fn of_family(kind: &str) -> impl Iterator<Item = &'static str> {
    let family = Family::of_kind(kind);
    family.into_iter().flat_map(|family| family.presets.iter().map(|(name, _)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_the_hub_has_the_sizes_of_a_published_one() {
        for (name, preset, is_preset) in [
            ("Qwen/Qwen2.5-1.5B", Some("qwen2.5-1.5b"), true),
            ("Qwen/Qwen2.5-7B-Instruct", Some("qwen2.5-7b"), false),
            ("meta-llama/Llama-3.2-1B", Some("llama-3.2-1b"), true),
            ("meta-llama/Llama-3.2-3B-Instruct", Some("llama-3.2-3b"), false),
            ("openai-community/gpt2-xl", Some("gpt2-xl"), true),
            // Of other sizes, or of other weights.
            ("Qwen/Qwen2.5-VL-7B-Instruct", None, false),
            ("Qwen/Qwen2.5-7B-Instruct-AWQ", None, false),
        ] {
            let named = Named::new(name).expect("a model");
            assert_eq!((named.preset, named.is_preset), (preset, is_preset), "{name}");
            assert_eq!(named.weights.as_deref(), Some(name));
        }
        let named = Named::new("Qwen/Qwen2.5-7B-Instruct").expect("a model");
        assert_eq!(named.lines(false), "weights = \"Qwen/Qwen2.5-7B-Instruct\"\n");
        let preset = Named::new("Qwen2.5-0.5B").expect("a preset");
        assert_eq!(preset.lines(false), "preset = \"qwen2.5-0.5b\"\n");
        let unknown = Named::new("qwen2.5-0.5").expect_err("no such model");
        assert!(format!("{unknown:?}").contains("did you mean qwen2.5-0.5b?"));
    }
}
