//! Which folders `[save]` names, and what it refuses.

use miette::Diagnostic;

use super::*;
use crate::recipe::{Recipe, RecipeError, Source};

const GPT2: &str =
    "kind = \"gpt2\"\nvocab_size = 50\nhidden_size = 8\nnum_hidden_layers = 1\nnum_attention_heads = 2\n";
const SWIGLU: &str = "kind = \"swiglu\"\nhidden_size = 8\nintermediate_size = 16\nnum_hidden_layers = 1\n";

fn parse(model: &str, save: &str) -> Result<Recipe, RecipeError> {
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\n{model}[train]\nbatch_size = 1\nseq_len = 4\n[save]\n{save}"
    );
    Recipe::parse(&Source { path: "r.toml".into(), text })
}

#[track_caller]
fn refused(model: &str, save: &str, parts: &[&str]) {
    let error = parse(model, save).expect_err("it is refused");
    let text = format!("{error}; {}", error.help().expect("it says what to change"));
    parts.iter().for_each(|part| assert!(text.contains(part), "missing `{part}` in: {text}"));
}

#[test]
fn folders_have_the_values_of_their_cell() {
    let cells = parse(GPT2, "weights = \"out/{seed}-{offload.strategy}\"\n[grid]\nseed = [1, 2]\n");
    let cells = cells.expect("a recipe").cells;
    let folders = cells.iter().map(|cell| Folders::of(cell).unwrap().weights.unwrap());
    assert_eq!(folders.collect::<Vec<_>>(), ["out/1-none", "out/2-none"].map(PathBuf::from));
    assert_eq!(cells[0].settings()["save.weights"], "out/{seed}-{offload.strategy}");
}

#[test]
fn what_cannot_be_saved_is_refused() {
    let two = ["cells 1 and 2 would both write to \"out\"", "out/{seed}"];
    refused(GPT2, "weights = \"out\"\n[grid]\nseed = [1, 2]\n", &two);
    refused(GPT2, "weights = \"a\"\nstate = \"a\"\nevery = 2\n", &["to hold the weights and the state"]);
    refused(GPT2, "weights = \"\"\n", &["save.weights is empty", "name a folder"]);
    refused(GPT2, "weights = \"{sed}\"\n", &["is no key that this cell has"]);
    refused(GPT2, "", &["says nothing to save"]);
    refused(GPT2, "overwrite = true\nstate = \"a\"\nevery = 2\n", &["save.overwrite has no effect"]);
    refused(GPT2, "every = 2\n", &["no effect without a folder for the state"]);
    refused(GPT2, "state = \"a\"\n", &["how often", "every = 100"]);
    refused(SWIGLU, "weights = \"a\"\n", &["`save` is for language models"]);
    let sinusoidal = format!("{GPT2}positions = \"sinusoidal\"\n");
    refused(&sinusoidal, "weights = \"a\"\n", &["has learned positions", "remove save.weights"]);
}

#[test]
fn others_files_are_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let save = format!("weights = \"{}\"\n", folder.path().display());
    assert!(parse(GPT2, &save).is_ok(), "an empty folder is free");
    std::fs::write(folder.path().join("thesis.tex"), "").unwrap();
    refused(GPT2, &save, &["holds thesis.tex", "not written over", "another folder"]);
    std::fs::rename(folder.path().join("thesis.tex"), folder.path().join("config.json")).unwrap();
    refused(GPT2, &save, &["weights that the runner has not written"]);
}
