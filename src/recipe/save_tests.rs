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

/// A run never writes over the model, or the adapter, that it reads, however the folder is spelled.
#[test]
fn what_a_cell_reads_is_not_written_over() {
    let root = tempfile::tempdir().unwrap();
    let base = root.path().join("base");
    std::fs::create_dir(&base).unwrap();
    let config =
        r#"{"model_type":"gpt2","vocab_size":50,"n_embd":8,"n_layer":1,"n_head":2,"written_by":"runner"}"#;
    std::fs::write(base.join("config.json"), config).unwrap();
    let model = format!("kind = \"gpt2\"\nweights = \"{}\"\n", base.display());
    for spelled in [base.clone(), root.path().join("base/../base/")] {
        let save = format!("weights = \"{}\"\n", spelled.display());
        refused(&model, &save, &["would write over", "model.weights reads", "another folder"]);
    }
    let state = format!("weights = \"{0}/a\"\nstate = \"{0}/a/s\"\nevery = 2\n", root.path().display());
    refused(GPT2, &state, &["lies in another folder of [save]", "side by side"]);
}

/// Neither kind of folder is written over the other.
#[test]
fn an_adapter_and_a_model_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = (folder.path(), folder.path().join("config.json"));
    std::fs::write(&config, "{\"written_by\":\"runner\"}").unwrap();
    assert_eq!(check_free(path, Saved::Weights, false), Ok(()));
    std::fs::write(path.join("model.safetensors"), "").unwrap();
    assert!(check_free(path, Saved::Adapter, false).unwrap_err().contains("holds a model"));
    assert_eq!(check_free(path, Saved::Adapter, true), Ok(()));
}

#[test]
fn a_folder_that_cannot_be_made_is_known_before_training() {
    let root = tempfile::tempdir().unwrap();
    let of = |folder: &Path| Folders { weights: Some(folder.into()), ..Folders::default() }.check_free();
    assert_eq!(of(&root.path().join("a/b/c")), Ok(()));
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0, "nothing is left behind");
    let error = of(Path::new("/proc/weights")).unwrap_err();
    assert!(error.contains("/proc/weights cannot be written") && error.contains("save.weights"), "{error}");
}
