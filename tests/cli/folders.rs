//! Folders of models that other programs wrote, and those that the runner saves for them: what is in the one is in the other.

use std::fs;
use std::path::Path;

use runner::data::Tokenizer;
use serde_json::{Value, json};

use crate::language::copied;
use crate::place::{Ended, Place};

/// Trains the folder `qwen2` and saves it.
const TUNED: &str = r#"title = "tuned"
device = "cpu"
[model]
kind = "qwen2"
weights = "qwen2"
[data]
corpus = "random"
[train]
batch_size = 2
seq_len = 16
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 0
steps = 1
[save]
weights = "saved"
"#;

/// Files of a tokenizer as different models have them.
const FILES: [(&str, &str); 13] = [
    ("special_tokens_map.json", "{\"eos_token\": \"<|endoftext|>\"}"),
    ("added_tokens.json", "{}"),
    ("vocab.json", "{\"a\": 0}"),
    ("merges.txt", "#version: 0.2\n"),
    ("tokenizer.model", "sentencepiece"),
    ("spiece.model", "sentencepiece"),
    ("vocab.txt", "a\n"),
    ("chat_template.jinja", "{{ messages }}"),
    ("chat_template.json", "{}"),
    ("preprocessor_config.json", "{}"),
    ("processor_config.json", "{}"),
    ("additional_chat_templates/tool_use.jinja", "{{ tools }}"),
    ("chat_templates/rag.jinja", "{{ documents }}"),
];

const GENERATION: &str = r#"{ "bos_token_id": 3, "eos_token_id": [4, 5], "pad_token_id": 6, "temperature": 0.7, "do_sample": true }"#;

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A folder with all that a model's may hold.
fn base(place: &Place) -> Value {
    let folder = copied(place, "qwen2");
    for (name, text) in FILES.iter().chain(&[("generation_config.json", GENERATION)]) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Tokenizer::train(&["words of a text ".repeat(40)], 290).unwrap().save(&folder).unwrap();
    fs::write(
        folder.join("tokenizer_config.json"),
        r#"{ "eos_token": "<|endoftext|>", "model_max_length": 128 }"#,
    )
    .unwrap();
    let mut config = json_of(&folder.join("config.json"));
    for (key, value) in [
        ("bos_token_id", json!(3)),
        ("eos_token_id", json!([4, 5])),
        ("pad_token_id", json!(6)),
        ("id2label", json!({ "0": "A" })),
        ("somebodys_own", json!({ "key": [1, 2.5, null] })),
        ("attention_dropout", json!(0.25)),
    ] {
        config[key] = value;
    }
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    config
}

#[track_caller]
fn same_files(from: &Path, to: &Path, names: &[&str]) {
    for name in names {
        assert!(fs::read(from.join(name)).unwrap() == fs::read(to.join(name)).unwrap(), "{name} is another");
    }
}

#[test]
fn a_saved_folder_has_what_its_base_has() {
    let place = Place::new(TUNED);
    let mut config = base(&place);
    let [from, to] = ["qwen2", "saved"].map(|name| place.path().join(name));
    let told =
        ["attention_dropout = 0.25: the runner trains without dropout", "does not know: somebodys_own"];
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]).says(&told);
    config["written_by"] = json!("runner");
    assert_eq!(json_of(&to.join("config.json")), config);
    let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
    same_files(&from, &to, &names);
    same_files(&from, &to, &["tokenizer.json", "tokenizer_config.json", "generation_config.json"]);
    // All can read it, and the folder is written over by the next run.
    let mode = |path: &Path| std::os::unix::fs::MetadataExt::mode(&fs::metadata(path).unwrap()) & 0o444;
    assert_eq!(mode(&to.join("chat_templates/rag.jinja")), mode(&to.join("config.json")));
    place.runner(&["run", "recipe.toml", "--force"]).exits(0).says(&["1 measured"]);
    // It is a base as good as the first, with 16 bits too.
    let again = TUNED.replace("\"qwen2\"\n[data]", "\"saved\"\n[data]");
    let again = again.replace(
        "[save]\nweights = \"saved\"",
        "[save]\nweights = \"again\"\n[precision]\ncompute = \"bf16\"",
    );
    place.write("recipe.toml", &again);
    place.runner(&["run", "recipe.toml"]).exits(0);
    config["dtype"] = json!("bfloat16");
    assert_eq!(json_of(&place.path().join("again/config.json")), config);
    same_files(&from, &place.path().join("again"), &names);
}

/// Named as on the Hub and found in its cache: with text that its tokenizer reads, and without any.
#[test]
fn a_saved_model_of_the_hub_has_what_its_base_has() {
    let text = "corpus = \"generated\"\nsize = \"20 KiB\"\ntokenizer = \"me/small\"";
    for data in ["corpus = \"random\"", text] {
        let recipe = TUNED.replace("weights = \"qwen2\"", "weights = \"me/small\"");
        let place = Place::new(&recipe.replace("corpus = \"random\"", data));
        let mut config = base(&place);
        let model = place.path().join("hub/models--me--small");
        fs::create_dir_all(model.join("refs")).unwrap();
        fs::create_dir_all(model.join("snapshots")).unwrap();
        fs::write(model.join("refs/main"), "0123abcd").unwrap();
        let from = model.join("snapshots/0123abcd");
        fs::rename(place.path().join("qwen2"), &from).unwrap();
        let run = |args: &[&str]| {
            let mut command = place.command(&[&["run", "recipe.toml"], args].concat());
            command.env("HF_HUB_CACHE", place.path().join("hub")).env("HF_HUB_OFFLINE", "1");
            Ended::from(command.output().expect("the runner starts"))
        };
        run(&[]).exits(0).says(&["1 measured"]);
        config["written_by"] = json!("runner");
        assert_eq!(json_of(&place.path().join("saved/config.json")), config, "{data}");
        let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        for names in [&names[..], &["tokenizer.json", "tokenizer_config.json", "generation_config.json"]] {
            same_files(&from, &place.path().join("saved"), names);
        }
        fs::remove_file(from.join("tokenizer.json")).unwrap();
        let without = run(&["--force"]);
        match data == text {
            true => without.exits(2).says(&["snapshots/0123abcd holds no tokenizer.json"]),
            false => without.exits(0),
        };
    }
}

/// Its tokens are others than those that the base's files name.
#[test]
fn a_tokenizer_that_was_trained_takes_the_place_of_the_bases() {
    let text = "corpus = \"generated\"\nsize = \"20 KiB\"\ntokenizer = \"train\"\nvocab_size = 300";
    let place = Place::new(&TUNED.replace("corpus = \"random\"", text));
    base(&place);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let saved = place.path().join("saved");
    let tokenizer = Tokenizer::load(&saved).unwrap();
    let end = tokenizer.ends()[0];
    let (config, generation) =
        (json_of(&saved.join("config.json")), json_of(&saved.join("generation_config.json")));
    for file in [&config, &generation] {
        assert_eq!((&file["bos_token_id"], &file["eos_token_id"]), (&json!(end), &json!(end)), "{file}");
    }
    // It says which row was not trained.
    assert_eq!((&config["pad_token_id"], &generation["pad_token_id"]), (&json!(6), &json!(end)));
    assert_eq!(json_of(&saved.join("tokenizer_config.json"))["tokenizer_class"], "PreTrainedTokenizerFast");
    assert!(!saved.join("vocab.json").exists() && !saved.join("chat_template.jinja").exists());
    assert_eq!(generation["temperature"], 0.7);
}

/// As trl saves it: programs that load an adapter find its tokenizer beside it.
#[test]
fn an_adapter_has_its_tokenizer_beside_it() {
    let lora =
        "[tuning]\nmethod = \"lora\"\nrank = 2\ntarget_modules = \"q_proj\"\n[save]\nadapter = \"saved\"";
    let place = Place::new(&TUNED.replace("[save]\nweights = \"saved\"", lora));
    base(&place);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let [from, to] = ["qwen2", "saved"].map(|name| place.path().join(name));
    same_files(&from, &to, &["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "vocab.json"]);
    assert!(to.join("adapter_config.json").exists() && !to.join("config.json").exists());
    assert!(!to.join("generation_config.json").exists());
    place.runner(&["run", "recipe.toml", "--force"]).exits(0).says(&["1 measured"]);
    place.runner(&["generate", "qwen2", "--adapter", "saved", "--ids", "1,2", "--tokens", "2"]).exits(0);
}

/// transformers' `padding_idx`: the row stays as it is where the token is only read.
#[test]
fn the_row_of_the_padding_token_is_not_trained_where_it_is_read() {
    let row = |pad: Value| {
        let untied =
            TUNED.replace("1e-3 }", "1e-2, weight_decay = 0.0 }").replace("steps = 1\n", "steps = 3\n");
        let place = Place::new(&untied);
        let folder = copied(&place, "qwen2");
        let mut config = json_of(&folder.join("config.json"));
        config["pad_token_id"] = pad;
        config["tie_word_embeddings"] = json!(false);
        fs::write(folder.join("config.json"), config.to_string()).unwrap();
        untie(&folder.join("model.safetensors"));
        place.runner(&["run", "recipe.toml"]).exits(0);
        let rows = |folder: &str| {
            let bytes = fs::read(place.path().join(folder).join("model.safetensors")).unwrap();
            let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            let data = file.tensor("model.embed_tokens.weight").unwrap().data().to_vec();
            data.chunks(4 * 64).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let (before, after) = (rows("qwen2"), rows("saved"));
        (0..512).map(|row| before[row] == after[row]).collect::<Vec<bool>>()
    };
    let without = row(Value::Null);
    let trained = without.iter().position(|same| !same).expect("a token was read");
    let with = row(json!(trained));
    for (i, (without, with)) in without.iter().zip(&with).enumerate() {
        assert_eq!(*with, if i == trained { true } else { *without }, "row {i}");
    }
}

/// Gives the head a matrix of its own.
fn untie(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<(String, _)> = file.tensors();
    let embedding = file.tensor("model.embed_tokens.weight").unwrap();
    tensors.push(("lm_head.weight".into(), embedding));
    let written = safetensors::serialize(tensors, None).unwrap();
    fs::write(path, written).unwrap();
}

/// A text that needs a token beyond the rows is refused; a tokenizer that only has such tokens is not.
#[test]
fn a_tokenizer_may_have_tokens_that_no_text_has() {
    let text = "corpus = \"generated\"\nsize = \"20 KiB\"";
    let place = Place::new(&TUNED.replace("corpus = \"random\"", text));
    let folder = copied(&place, "qwen2");
    let path = Tokenizer::train(&["words of a text ".repeat(40)], 290).unwrap().save(&folder).unwrap();
    let mut tokenizer = json_of(&path);
    let added = json!({ "id": 512, "content": "<|image|>", "single_word": false, "lstrip": false, "rstrip": false,
                        "normalized": false, "special": true });
    tokenizer["added_tokens"].as_array_mut().unwrap().push(added);
    // Tokens behind the vocabulary have the next ids.
    let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    (vocab.len()..512).for_each(|id| _ = vocab.insert(format!("unused{id}"), json!(id)));
    fs::write(&path, tokenizer.to_string()).unwrap();
    assert_eq!(Tokenizer::load(&folder).unwrap().vocab_size(), 513);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    place.write("book.txt", &"words of a text <|image|>".repeat(40));
    place.write("recipe.toml", &TUNED.replace("corpus = \"random\"", "corpus = \"book.txt\""));
    let ended = place.runner(&["run", "recipe.toml"]).exits(1);
    ended.says(&["the text has the token 512, \"<|image|>\", and the model has only 512 rows"]);
}
