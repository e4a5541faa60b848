//! Every way that advice names is a valid recipe: of presets, of recipes with tunings, tasks and chats of their own, on cards
//! with and without bf16, on parts of cards, and on the CPU.

use std::path::Path;

use clap::Parser as _;
use strum::VariantArray;

use super::largest::largest_values;
use super::located::{Located, written_for};
use super::question::Question;
use super::{AdviseArgs, text};
use crate::advise::{Advice, Fidelity};
use crate::recipe::{Cell, Recipe, Source};

#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    args: AdviseArgs,
}

fn question(arguments: &[&str]) -> (AdviseArgs, Question) {
    let args = Program::parse_from([&["advise"], arguments].concat()).args;
    let question = Question::new(&args, &args.model).unwrap_or_else(|e| panic!("{arguments:?}: {e:?}"));
    (args, question)
}

/// The recipe that `--write` writes has this cell and no other, and no rule against it.
fn is_valid(question: &Question, cell: &Cell) {
    let text = written_for(question, cell, true);
    let source = Source { path: "written.toml".into(), text: text.clone() };
    let recipe = Recipe::parse_for(&source, &question.target).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert!(recipe.elsewhere.is_empty(), "{text}");
    let [written] = &recipe.cells[..] else { panic!("{} cells\n{text}", recipe.cells.len()) };
    let saved = |cell: &Cell| Cell { save: None, ..cell.clone() }.to_json();
    assert_eq!(saved(written), saved(cell), "{text}");
}

/// All ways of an advice: the best of each group, and with less memory than these.
fn ways_are_valid(question: &Question, advice: &Advice) -> usize {
    let (bests, _) = text::listed(advice, 2);
    let smaller = Fidelity::VARIANTS.iter().flat_map(|fidelity| advice.frontier(*fidelity));
    let ways: Vec<&Cell> = bests.into_iter().chain(smaller).map(|plan| &plan.cell).collect();
    for cell in &ways {
        is_valid(question, cell);
        Located::new(question, cell, question.limits).unwrap_or_else(|e| panic!("{e:?}"));
    }
    ways.len()
}

fn advised(arguments: &[&str]) -> usize {
    let (_, question) = question(arguments);
    let advice = question.advice().expect("kinds are known");
    assert!(advice.advised().is_some(), "{arguments:?}: nothing fits");
    ways_are_valid(&question, &advice)
}

/// Largest values of a key, each with its way.
fn largest(arguments: &[&str], key: &str) -> usize {
    let (_, question) = question(arguments);
    let found = largest_values(&question, key).expect("kinds are known");
    found.iter().for_each(|(_, plan)| is_valid(&question, &plan.cell));
    found.len()
}

fn recipe(folder: &Path, text: &str) -> String {
    let path = folder.join("own.toml");
    std::fs::write(&path, format!("title = \"own\"\n{text}")).expect("a folder");
    path.display().to_string()
}

const SIZES: [&str; 6] = ["--host-memory", "32GiB", "--batch", "2", "--seq-len", "256"];

#[test]
fn ways_of_a_preset_are_valid_on_every_kind_of_card() {
    for (device, least) in [
        ("rtx 3060", 6),
        // Without bf16: fp16 with a scale.
        ("rtx 2080 ti", 5),
        // A slice.
        ("h100, 10 GiB", 6),
    ] {
        let ways = advised(&[&["qwen2.5-0.5b", "--for", device], &SIZES[..]].concat());
        assert!(ways >= least, "{device}: {ways}");
    }
    assert!(advised(&["smollm2-135m", "--for", "cpu, 8 GiB", "--batch", "2", "--seq-len", "128"]) >= 1);
}

/// Of a method that adds vectors, one of LoRA with targets of its own, an encoder-decoder, a classifier and a corpus of chats.
#[test]
fn ways_of_recipes_with_tunings_and_data_of_their_own_are_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    let chats = folder.path().join("chats.jsonl");
    let turn = |role: &str| format!("{{\"role\": \"{role}\", \"content\": \"How far is it?\"}}");
    let chat = format!("{{\"messages\": [{}, {}]}}\n", turn("user"), turn("assistant"));
    std::fs::write(&chats, chat.repeat(20)).expect("a folder");
    let chats = chats.display();
    let small = "vocab_size = 512\nhidden_size = 64\nnum_hidden_layers = 2\nnum_attention_heads = 4\nintermediate_size = 160\n";
    let topics =
        "[data]\ncorpus = \"task\"\nsampler = \"standard\"\n[task]\nkind = \"topics\"\nsentences = 60\n";
    let sums = topics.replace("kind = \"topics\"\nsentences = 60", "kind = \"sums\"");
    let recipes = [
        "[model]\npreset = \"smollm2-135m\"\n[tuning]\nmethod = \"prefix\"\nnum_virtual_tokens = 8\n".to_string(),
        "[model]\npreset = \"smollm2-135m\"\n[tuning]\nmethod = \"lora\"\nrank = 4\ntarget_modules = \"all-linear\"\n".into(),
        format!("[model]\nkind = \"t5\"\nhead_dim = 16\n{small}{sums}"),
        format!("[model]\nkind = \"qwen2\"\nnum_key_value_heads = 2\nmax_position_embeddings = 64\n{small}{topics}[tuning]\nmethod = \"linear_probe\"\n"),
        format!(
            "[model]\nkind = \"gpt2\"\nmax_position_embeddings = 64\n{small}[data]\ncorpus = \"{chats}\"\ntemplate = \"chatml\"\n\
             sampler = \"packed\"\nvocab_size = 300\n[measure]\nepochs = 1\n"
        ),
    ];
    for own in recipes {
        let train = "[train]\nbatch_size = 8\nseq_len = 48\noptimizer = { kind = \"adamw\", lr = 1e-4 }\n";
        let path = recipe(folder.path(), &format!("{own}{train}"));
        for device in ["rtx 3060", "rtx 2080 ti", "cpu, 8 GiB"] {
            let ways = advised(&[&path, "--for", device]);
            assert!(ways >= 1, "{device}: {own}");
        }
    }
}

#[test]
fn ways_with_the_largest_values_are_valid() {
    let asked = ["smollm2-135m", "--for", "rtx 3060", "--keep", "offload", "--batch", "2"];
    assert!(largest(&asked, "train.seq_len") >= 1);
    assert!(largest(&[&asked[..], &["--seq-len", "256"]].concat(), "train.batch_size") >= 1);
}
