//! Samplers and loaders through the binary.

use serde_json::Value;

use crate::place::{Place, TINY, estimated};

/// 2 layers on paragraphs of generated text, an epoch of each sampler.
const SAMPLERS: &str = r#"title = "samplers"
[model]
kind = "gpt2"
vocab_size = 300
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 256
[data]
corpus = "generated"
size = "10 KiB"
vocab_size = 300
[train]
batch_size = 4
seq_len = 256
optimizer = { kind = "adamw", lr = 1e-3 }
[eval]
every = 1000
batches = 2
[measure]
repeats = 1
warmup = 1
epochs = 1
[[grid]]
"data.sampler" = ["padded", "standard", "packed"]
[[grid]]
"data.sampler" = "balanced"
"data.k" = 4
[[grid]]
"data.sampler" = "standard"
"data.drop_last" = true
"data.longest_first" = true
"data.tokenize" = "once"
"data.num_workers" = 0
"#;

fn of<'a>(rows: &'a [Value], sampler: &str, dropping: bool) -> &'a Value {
    let row = rows.iter().find(|row| {
        let data = &row["cell"]["data"];
        data["sampler"] == sampler && data["drop_last"] == dropping
    });
    row.unwrap_or_else(|| panic!("a row of {sampler}"))
}

#[test]
fn every_sampler_trains_on_the_same_samples() {
    let place = Place::new(SAMPLERS);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["5 measured"]);
    let rows = place.rows();
    let loading = |sampler: &str, dropping| {
        let loading = &of(&rows, sampler, dropping)["measurement"]["loading"];
        let number = |key: &str| loading[key].as_u64().unwrap_or_else(|| panic!("{key} in {loading}"));
        let tokens: u64 =
            loading["step_tokens"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        let steps = loading["stall"]["seconds"].as_array().unwrap().len();
        assert!(loading["run_seconds"].as_f64() > Some(0.0));
        (number("samples") + number("dropped_samples"), tokens, number("padding_tokens"), steps)
    };
    let [padded, standard, packed, balanced] =
        ["padded", "standard", "packed", "balanced"].map(|sampler| loading(sampler, false));
    let dropping = loading("standard", true);
    // One epoch each: the same samples, and the same tokens but for what a packed sequence cuts.
    assert!([standard, packed, balanced, dropping].iter().all(|other| other.0 == padded.0));
    assert_eq!((standard.1, balanced.1), (padded.1, padded.1));
    // The estimate is that of the largest batch of this text.
    let estimate_over_peak = |sampler: &str| {
        let row = of(&rows, sampler, false);
        estimated(row) / row["measurement"]["memory"]["live_peak"].as_f64().expect("bytes")
    };
    for sampler in ["padded", "standard", "packed", "balanced"] {
        let ratio = estimate_over_peak(sampler);
        assert!((0.9..1.15).contains(&ratio), "{sampler}: {ratio}");
    }
    assert!(packed.1 <= padded.1 && packed.1 > padded.1 * 9 / 10, "{packed:?} of {padded:?}");
    assert!(padded.2 > standard.2 && standard.2 > 3 * balanced.2, "{padded:?} {standard:?} {balanced:?}");
    // Packed in fewer steps, of which only the last may be incomplete.
    assert!(packed.3 < padded.3 && packed.2 < 4 * 256, "{packed:?} {padded:?}");
    assert!(dropping.1 <= standard.1 && dropping.3 <= standard.3);
    for row in &rows {
        let m = &row["measurement"];
        assert_eq!(m["loss"].as_array().map(Vec::len), m["loading"]["step_tokens"].as_array().map(Vec::len));
        let [first, last] = [0, 1].map(|i| m["evaluations"][i]["loss"].as_f64().unwrap());
        // Warm-up trained a network of its own: the samples meet an untrained one.
        assert!((first - 300f64.ln()).abs() < 0.2 && last < first, "{first} {last}");
    }
    let report = std::fs::read_to_string(place.results().join("report.html")).unwrap();
    for part in ["padding", "stall", "real tokens"] {
        assert!(report.contains(part), "{part}");
    }
}

/// Where text is tokenised and where batches are made changes no number.
#[test]
fn loading_changes_no_loss() {
    let grid = SAMPLERS.find("[[grid]]").unwrap();
    let ways = "[[grid]]\n\"data.sampler\" = \"standard\"\n\"data.tokenize\" = [\"once\", \"every_step\"]\n\
                \"data.num_workers\" = [0, 2]\n\"train.sync_each_step\" = true\n";
    let place = Place::new(&format!("{}{ways}", &SAMPLERS[..grid]));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["4 measured"]);
    let rows = place.rows();
    let losses: Vec<&Value> = rows.iter().map(|row| &row["measurement"]["loss"]).collect();
    assert!(losses.windows(2).all(|pair| pair[0] == pair[1]), "{losses:?}");
}

#[test]
fn records_are_samples_and_what_is_cut_of_them_is_said() {
    let grid = SAMPLERS.find("[[grid]]").unwrap();
    let own = "corpus = \"texts\"\nvocab_size = 257\nsampler = \"standard\"";
    let recipe = SAMPLERS[..grid]
        .replace("corpus = \"generated\"\nsize = \"10 KiB\"\nvocab_size = 300", own)
        .replace("seq_len = 256", "seq_len = 8");
    let place = Place::new(&recipe);
    std::fs::create_dir_all(place.path().join("texts/.git")).unwrap();
    // 6, 13 and 4 tokens with the ends of texts: that of an answer is a label alone; a token is a byte.
    place.write(
        "texts/train.jsonl",
        "{\"text\": \"ab\\ncd\"}\n{\"question\": \"efg?\", \"answer\": \"hij\\n\\nklm\"}\n{\"text\": \"  x\"}\n",
    );
    place.write("texts/eval.jsonl", "{\"text\": \"held out\"}\n");
    place.write("texts/.git/train.txt", "hidden\n");
    let said = "1 of 3 samples cut, 22 % of their tokens lost";
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured", said]);
    let loading = &place.rows()[0]["measurement"]["loading"];
    let numbers = ["samples", "cut_samples", "cut_tokens"].map(|key| loading[key].as_u64());
    assert_eq!((numbers, &loading["step_tokens"]), ([Some(3), Some(1), Some(5)], &serde_json::json!([18])));
    // One file follows the same rules.
    for (file, corpus, parts) in [
        ("a.xlsx", "a.xlsx", ["a.xlsx is not read", ".parquet or .jsonl file"]),
        ("texts/eval.jsonl", "texts/eval.jsonl", ["no text for \"train\"", "data.train_split"]),
        ("texts/valid.arrow", "texts", ["valid.arrow is not read", ".parquet or .jsonl file"]),
    ] {
        place.write(file, "{\"text\": \"held out\"}\n");
        let named = recipe.replace("corpus = \"texts\"", &format!("corpus = \"{corpus}\""));
        place.write("recipe.toml", &named);
        place.runner(&["check", "recipe.toml"]).exits(2).says(&parts);
    }
}

#[test]
fn a_table_of_the_users_own_is_divided_and_trains() {
    let grid = SAMPLERS.find("[[grid]]").unwrap();
    let own = "corpus = \"q.csv\"\nheld_out = 0.25\nsampler = \"standard\"\ncolumns = { prompt = \"frage\", completion = \"antwort\" }\nvocab_size = 300";
    let recipe = SAMPLERS[..grid].replace("corpus = \"generated\"\nsize = \"10 KiB\"\nvocab_size = 300", own);
    let place = Place::new(&recipe);
    let rows: String =
        (0..40).map(|i| format!("{i},\"How much is {i}, and 1?\",It is {}.\n", i + 1)).collect();
    place.write("q.csv", &format!("id,frage,antwort\n{rows}"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let row = place.rows().remove(0);
    let trained = row["measurement"]["loading"]["samples"].as_u64().unwrap();
    assert!((20..40).contains(&trained), "{trained} of 40 records are trained on");
    assert_eq!(
        row["cell"]["data"]["columns"],
        serde_json::json!({"prompt": "frage", "completion": "antwort"})
    );
    // Another file of the same name is another row, and a broken one is named with its line.
    place.write("q.csv", &format!("id,frage,antwort\n{rows}41,only two\n"));
    place.runner(&["run", "recipe.toml"]).exits(1).says(&[
        "q.csv, line 42: it has 2 fields",
        "the only broken one of 41",
        "data.skip_broken = true",
    ]);
    place.write("recipe.toml", &recipe.replace("held_out", "skip_broken = true\nheld_out"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
}

#[test]
fn keys_without_effect_are_refused_with_their_place() {
    let refused = |from: &str, to: &str, parts: &[&str]| {
        assert!(SAMPLERS.contains(from), "{from}");
        Place::new(&SAMPLERS.replace(from, to)).runner(&["check", "recipe.toml"]).exits(2).says(parts);
    };
    refused(
        "\"data.k\" = 4",
        "\"data.prefetch_factor\" = 2",
        &["the key `k` is missing", "8 is a good start"],
    );
    refused("epochs = 1", "epochs = 1\nsteps = 2", &["`steps` and `epochs`"]);
    refused("size = \"10 KiB\"", "size = \"10 KiB\"\npad_to_multiple_of = 7", &["not a multiple of 7"]);
    refused(
        "\"data.tokenize\" = \"once\"",
        "\"data.tokenize\" = \"every_step\"",
        &["lengths before it draws"],
    );
    refused(
        "corpus = \"generated\"\nsize = \"10 KiB\"\nvocab_size = 300",
        "corpus = \"random\"",
        &["`sampler` has no meaning"],
    );
    let grid = SAMPLERS.find("[[grid]]").unwrap();
    // Blocks of a text have epochs too.
    let blocks = &SAMPLERS[..grid];
    Place::new(blocks).runner(&["check", "recipe.toml"]).exits(0);
    let text = "corpus = \"generated\"\nsize = \"10 KiB\"\nvocab_size = 300";
    Place::new(&blocks.replace(text, "corpus = \"random\""))
        .runner(&["check", "recipe.toml"])
        .exits(2)
        .says(&["one pass over the text"]);
}

#[test]
fn a_sampler_that_leaves_out_everything_fails_the_cell() {
    let grid = SAMPLERS.find("[[grid]]").unwrap();
    let recipe = SAMPLERS[..grid].replace("[data]", "[data]\nsampler = \"standard\"\ndrop_last = true");
    let place =
        Place::new(&recipe.replace("batch_size = 4", "batch_size = 4000").replace("epochs = 1", "steps = 1"));
    place.runner(&["run", "recipe.toml"]).exits(1).says(&["drop_last leaves out all"]);
}

/// The ladder at sizes for a test: every stage runs, and its write-up names it with its gain.
#[test]
fn the_pipeline_ladder_runs_and_tells_its_stages() {
    let recipe = include_str!("../../recipes/pipeline_ladder.toml")
        .replace("vocab_size = 512", "vocab_size = 300")
        .replace("hidden_size = 64", "hidden_size = 16")
        .replace("num_hidden_layers = 2", "num_hidden_layers = 1")
        .replace("64 KiB", "8 KiB")
        .replace("batch_size = 8", "batch_size = 2")
        .replace("seq_len = 128", "seq_len = 64")
        .replace("warmup = 2", "warmup = 1\nrepeats = 1");
    let place = Place::new(&recipe);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["8 measured"]);
    let report = std::fs::read_to_string(place.results().join("report.html")).unwrap();
    for part in ["All rungs together", "Counted at each rung", "fused operators", "packing", "× row before"]
    {
        assert!(report.contains(part), "{part}");
    }
    // Stages with one arithmetic and one sampler compute the same.
    let losses = |compute: &str, sampler: &str| -> Vec<f64> {
        let rows = place.rows().into_iter().filter(|row| {
            row["cell"]["precision"]["compute"] == compute && row["cell"]["data"]["sampler"] == sampler
        });
        rows.map(|row| row["measurement"]["loss"][2].as_f64().unwrap()).collect()
    };
    for (compute, sampler, stages) in [("fp32", "padded", 2), ("bf16", "padded", 2), ("bf16", "packed", 4)] {
        let losses = losses(compute, sampler);
        assert_eq!(losses.len(), stages, "{compute} {sampler}");
        assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 1e-4), "{losses:?}");
    }
    place.write("short.toml", &recipe.replace("name = \"packing\"", "step = \"packing\""));
    place.runner(&["check", "short.toml"]).exits(2).says(&["unknown key `step`"]);
    // Cells of a grid whose stages are named in the report.
    let levels =
        TINY.split("[grid]").next().unwrap().to_string() + "[grid]\n\"checkpoint.level\" = [0, 0.5, 1]\n";
    let stage = |name: &str| format!("[[report.ladder]]\nstage = \"{name}\"\nwhy = \"less is kept\"\n");
    place.write("short.toml", &(levels + &stage("all kept") + &stage("nothing kept")));
    place.runner(&["check", "short.toml"]).exits(2).says(&["2 stages, and the grid 3 cells"]);
}
