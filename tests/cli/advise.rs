//! `runner advise` as somebody meets it who has a card and the name of a model, and neither the card nor the weights here.

use crate::place::{Ended, Place, TINY};

/// Without a network, and with nothing in the Hub's cache.
fn advise(place: &Place, args: &[&str]) -> Ended {
    let mut command = place.command(&[&["advise"], args].concat());
    command.env("HF_HUB_OFFLINE", "1").env("HF_HOME", place.path());
    Ended::from(command.output().expect("the binary starts"))
}

#[test]
fn a_model_by_its_name_is_answered_and_its_recipe_is_valid() {
    let place = Place::new(TINY);
    let question = [
        "Qwen/Qwen2.5-0.5B",
        "--for",
        "rtx 3060",
        "--host-memory",
        "32GiB",
        "--seq-len",
        "512",
        "--batch",
        "4",
    ];
    let ended = advise(&place, &[&question[..], &["--write", "my.toml"]].concat()).exits(0).says(&[
        "of the 11.0 GiB of the RTX 3060",
        "the same",
        "another",
        "LoRA of rank 8",
        "is written to my.toml: runner run my.toml",
    ]);
    let first = ended.out.lines().next().expect("an answer");
    assert!(
        first.starts_with("Train Qwen2.5-0.5B with ") && first.contains(" tokens/s, a million tokens in "),
        "{first}"
    );
    let text = std::fs::read_to_string(place.path().join("my.toml")).expect("it was written");
    assert!(text.contains("weights = \"Qwen/Qwen2.5-0.5B\"") && text.lines().count() < 30, "{text}");
    assert!(text.lines().filter(|line| line.contains(" # ")).count() >= 2, "{text}");
    place.runner(&["check", "my.toml", "--for", "rtx 3060"]).exits(0).says(&["all valid"]);
    advise(&place, &[&question[..], &["--write", "other.toml", "--way", "99"]].concat())
        .exits(1)
        .says(&["--way 99: there is no such way"]);
}

#[test]
fn what_cannot_be_is_refused_with_what_could() {
    let place = Place::new(TINY);
    advise(&place, &["qwen2.5-0.5"]).exits(1).says(&["did you mean qwen2.5-0.5b?", "Qwen/Qwen2.5-1.5B"]);
    let of = |args: &[&str]| {
        advise(
            &place,
            &[&["gpt2-xl", "--for", "rtx 3060", "--seq-len", "256", "--batch", "1"], args].concat(),
        )
    };
    of(&["--memory", "1 GiB", "--host-memory", "4 GiB"]).exits(0).says(&[
        "No way to train it fits into the 1.00 GiB of the RTX 3060 and 4.00 GiB of host memory: the least that is enough is",
        "The largest model of its family that fits is gpt2",
    ]);
    of(&["--memory", "3 GiB", "--host-memory", "8 GiB"])
        .exits(0)
        .says(&["Training all parameters does not fit: it needs", "GiB of the device's memory, or"]);
    of(&["--memory", "24 GiB"]).exits(1).says(&["--memory 24.0 GiB: the device has 12.0 GiB"]);
    of(&["--methods", "linear_probe"])
        .exits(1)
        .says(&["--methods linear_probe:", "trains the classifier of a task"]);
    of(&["--methods", "lara"]).exits(1).says(&["--methods lara: the methods are full, lora"]);
    advise(&place, &["gpt2", "--host-memory", "900 TiB"])
        .exits(1)
        .says(&["this machine has", "describe another machine with --for"]);
    advise(&place, &["gpt2", "--for", "rtx 3060", "--largest", "train.seed"])
        .exits(1)
        .says(&["write --largest train.seq_len"]);
}

/// A CPU has one memory: what is on it and what would be on the host beside it are the same bytes.
#[test]
fn ways_on_a_cpu_fit_into_its_memory() {
    let place = Place::new(TINY);
    let ended = advise(&place, &["gpt2-xl", "--for", "cpu, 16 GiB", "--batch", "2"]).exits(0);
    assert!(ended.out.contains("the least work of") && !ended.out.contains("on the host"), "{}", ended.out);
    advise(&place, &["gpt2-xl", "--for", "cpu, 1 GiB", "--batch", "2"])
        .exits(0)
        .says(&["No way to train it fits into the 1.00 GiB of the CPU: the least that is enough is"]);
    place
        .runner(&["advise", "recipe.toml", "--cell", "1", "--set", "device=cpu", "--for", "rtx 3060"])
        .exits(1)
        .says(&["the cell runs on the CPU, and --for describes a GPU", "--set device=auto"]);
}

/// A preset has no tokenizer, and so no template of chats: the recipe names one, and trains.
#[test]
fn a_preset_learns_from_chats() {
    let place = Place::new(TINY);
    let chat = r#"{"messages": [{"role": "user", "content": "How far?"}, {"role": "assistant", "content": "Four miles."}]}"#;
    std::fs::write(place.path().join("chats.jsonl"), format!("{chat}\n").repeat(30)).expect("a folder");
    let sizes = ["--for", "cpu, 16 GiB", "--batch", "1", "--seq-len", "64", "--data", "chats.jsonl"];
    advise(&place, &[&["smollm2-135m"], &sizes[..], &["--write", "my.toml"]].concat()).exits(0);
    let text = std::fs::read_to_string(place.path().join("my.toml")).expect("it was written");
    assert!(text.contains("template = \"chatml\""), "{text}");
    place.runner(&["data", "my.toml"]).exits(0).says(&["Four miles."]);
    let ended =
        advise(&place, &["smollm2-135m", "--for", "cpu, 16 GiB", "--batch", "1", "--data", "no.jsonl"]);
    ended.exits(0).says(&["no.jsonl is not here and was not looked at"]);
    advise(&place, &["smollm2-135m", "--for", "cpu, 16 GiB", "--data", "recipe.toml"])
        .exits(1)
        .says(&["--data"]);
}

#[test]
fn the_largest_that_fits_has_a_speed() {
    let place = Place::new(TINY);
    let kept = ["--keep", "tuning", "--keep", "train.optimizer", "--keep", "offload", "--keep", "precision"];
    let asked = [&["smollm2-135m", "--for", "h100, 10 GiB", "--batch", "1"], &kept[..]].concat();
    advise(&place, &[&asked[..], &["--largest", "train.batch_size"]].concat()).exits(0).says(&[
        "is the largest with which the same training of smollm2-135m fits into 10.0 GiB of the H100: ",
        " tokens/s",
    ]);
    let models = ["qwen2.5-0.5b", "--for", "h100, 12 GiB", "--largest", "smollm2-135m,qwen2.5-32b"];
    advise(&place, &[&models[..], &kept[..]].concat()).exits(0).says(&[
        "qwen2.5-0.5b is the largest that fits into 12.0 GiB of the H100",
        "qwen2.5-32b",
        "none fits",
    ]);
}
