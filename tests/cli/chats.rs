//! Chats through the binary: what is trained on, and that it trains.

use std::fmt::Write as _;

use crate::place::{Place, changed, fixture};

const CHATS: &str = r#"title = "chats"
[model]
kind = "gpt2"
vocab_size = 350
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 64
[data]
corpus = "chats.jsonl"
tokenizer = "TOKENIZER"
template = "chatml"
sampler = "packed"
[train]
batch_size = 2
seq_len = 48
optimizer = { kind = "adamw", lr = 1e-3 }
[measure]
repeats = 1
warmup = 1
steps = 3
"#;

/// 12 chats, of which one is longer than a sequence and two have nothing to learn.
fn place(recipe: &str) -> Place {
    let place = Place::new(&recipe.replace("TOKENIZER", &fixture("chats/tokenizer")));
    let mut lines = String::new();
    for i in 0..10 {
        let (more, answer) = ("far ".repeat(i), "Four miles.".repeat(if i == 9 { 20 } else { 1 }));
        let question = format!(r#"{{"role": "user", "content": "How {more}is it?"}}"#);
        writeln!(lines, r#"{{"messages": [{question}, {{"role": "assistant", "content": "{answer}"}}]}}"#)
            .unwrap();
    }
    for _ in 0..2 {
        writeln!(lines, r#"{{"messages": [{{"role": "user", "content": "Who?"}}]}}"#).unwrap();
    }
    place.write("chats.jsonl", &lines);
    place
}

#[test]
fn the_data_of_a_recipe_is_shown_with_what_is_learned() {
    let place = place(CHATS);
    let shown = place.runner(&["data", "recipe.toml", "--samples", "1"]).exits(0);
    let shown = shown.says(&[
        "chats      template: chatml, learned: assistant",
        "records  chats of chats.jsonl",
        "lengths  shortest",
        "cut to train.seq_len = 48",
        "left out with nothing to learn",
        "sample 1:",
        "<|im_start|>user\nHow is it?<|im_end|>\n<|im_start|>assistant\n⟦Four miles.<|im_end|>\n⟧",
    ]);
    assert!(shown.out.contains("<|im_start|>│"), "tokens are apart: {}", shown.out);
    assert!(!shown.out.contains('\x1b'), "a pipe has no colours: {}", shown.out);
    assert_eq!(place.rows().len(), 0, "nothing was trained");
    let all = place.runner(&["data", "recipe.toml", "--set", "data.learn=\"all\""]).exits(0);
    all.says(&["100 % of them learned", "⟦<|im_start|>user"]);
}

#[test]
fn a_cell_trains_on_chats_and_its_report_shows_one() {
    let place = place(CHATS);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let texts = &place.rows()[0]["measurement"]["loading"]["texts"];
    assert!(texts["nothing_to_learn"].as_u64() >= Some(2), "{texts}");
    assert_eq!(texts["first"][1]["text"], "Four miles.<|im_end|>\n", "{texts}");
    let report = std::fs::read_to_string(place.results().join("report.html")).unwrap();
    for part in ["What was trained on", "⟦Four miles.", "Lengths of samples", "with padding"] {
        assert!(report.contains(part), "{part}");
    }
}

#[test]
fn what_is_wrong_with_chats_is_told() {
    let own = changed(CHATS, &[("template = \"chatml\"\n", "")]);
    place(&own)
        .runner(&["data", "recipe.toml"])
        .exits(1)
        .says(&["has no chat template; name one in data.template"]);
    let place = place(CHATS);
    place.write("chats.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": null}]}\n");
    place.runner(&["data", "recipe.toml"]).exits(1).says(&["`content` is null"]);
}
