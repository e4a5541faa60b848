//! Where memory goes: accounts of recipes, and limits of the host's memory.

use crate::place::{Place, SMALL, TINY, changed, estimated, number};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn an_account_names_every_part_with_what_was_measured() {
    let place = Place::new(SMALL);
    let account = |args: &[&str]| place.runner(&[&["memory", "recipe.toml"], args].concat());
    account(&[]).exits(0).says(&["optimizer state", "state of adamw", "h t L 4 B"]);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let row = place.rows().remove(0);
    let bytes = |key: &str| row["measurement"]["memory"][key].as_u64().expect("bytes");
    let ended = account(&[]).exits(0);
    for measured in ["live_peak", "after_forward"] {
        let gb = format!("{:.3}", bytes(measured) as f64 * 1e-9);
        assert!(ended.out.contains(&gb), "{measured} {gb} in {}", ended.out);
    }
    let digits = (estimated(&row) as u64).to_string();
    assert!(ended.out.replace(',', "").contains(&digits), "{digits} in {}", ended.out);
    account(&["--cell", "2"]).exits(1).says(&["there is no cell 2", "runner plan"]);
}

/// The totals in docs/memory.md.
#[test]
fn the_lectures_example_has_its_account() {
    let place = Place::new(TINY);
    let recipe = format!("{ROOT}/recipes/memory_lecture.toml");
    let ended = place.runner(&["memory", &recipe, "--for", "cuda, 80 GB, sm_80"]).exits(0);
    let is_total = |line: &&str| line.contains("device, without what pools hold in reserve");
    let totals = ended.out.lines().filter(is_total).filter_map(|line| line.split('┆').nth(4));
    assert_eq!(totals.map(str::trim).collect::<Vec<_>>(), ["99.850", "67.610", "25.916", "24.767"]);
}

/// Activations are most of its memory: those of two forwards at once would pass the limit.
#[test]
fn a_trace_needs_no_more_memory_than_the_steps() {
    let place = Place::new(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"gpt2\"\nvocab_size = 64\nhidden_size = 64\n\
         num_hidden_layers = 8\nnum_attention_heads = 2\nmax_position_embeddings = 256\n[train]\nbatch_size = 8\n\
         seq_len = 256\noptimizer = { kind = \"sgd\", lr = 0.1 }\n[measure]\nrepeats = 1\nwarmup = 1\nsteps = 2\n",
    );
    place.runner(&["run", "recipe.toml"]).exits(0);
    let memory = &place.rows().remove(0)["measurement"]["memory"];
    let bytes = |value: &serde_json::Value| value.as_u64().expect("bytes");
    let (own, peak) = (bytes(&memory["process"]["own"]), bytes(&memory["live_peak"]));
    let limit = format!("measure.host_memory_limit=\"{} B\"", own + peak / 2);
    place.runner(&["run", "recipe.toml", "--set", &limit, "--trace", "--results", "limited"]).exits(0);
}

#[test]
fn a_cell_beyond_the_hosts_limit_is_a_row_and_the_others_run() {
    // A process of its own has more than 1 MiB, whatever the cell.
    let grid = "[[grid]]\n\"train.batch_size\" = 2\n[[grid]]\n\"train.batch_size\" = 4\n\
                \"measure.host_memory_limit\" = \"1 MiB\"\n[[grid]]\n\"train.batch_size\" = 4\n\
                \"measure.host_memory_limit\" = \"64 GiB\"\n";
    let recipe = TINY.split("[grid]").next().expect("its grid");
    let place = Place::new(&format!("{}{grid}", recipe.replace("steps = 3", "steps = 40")));
    place
        .runner(&["run", "recipe.toml"])
        .exits(42)
        .says(&["1 out of memory", "measure.host_memory_limit is 1.00 MiB: raise it"]);
    assert_eq!((place.count("ok"), place.count("oom")), (2, 1));
    let ok: Vec<_> = place.rows().into_iter().filter(|row| row["status"] == "ok").collect();
    for row in ok {
        let process = &row["measurement"]["memory"]["process"];
        assert!(
            process["own"].as_u64() > Some(1 << 20) && process["file_backed"].as_u64() > Some(0),
            "{row}"
        );
    }
}

/// Blocks and their optimizer on the host are more than the limit allows: nothing is begun.
#[test]
fn what_is_to_be_on_the_host_is_refused_beforehand() {
    let offload = "[offload]\nstrategy = \"overlap\"\noptimizer = \"host\"\n";
    let place = Place::new(
        &SMALL.replace("[measure]", &format!("{offload}[measure]\nhost_memory_limit = \"90 KiB\"")),
    );
    place.runner(&["plan", "recipe.toml"]).exits(0).says(&["1 would not fit"]);
    place.runner(&["run", "recipe.toml"]).exits(42).says(&[
        "are to be there",
        "in page-locked buffers",
        "measure.host_memory_limit is 90.0 KiB: raise it, or take a smaller model",
    ]);
}

/// The advice, and then the best ways as measured.
#[test]
fn advice_is_measured() {
    let place = Place::new(SMALL);
    let ended = place.runner(&["advise", "recipe.toml", "--memory", "1 GiB", "--measure"]).exits(0).says(&[
        "Train the gpt2 model with",
        "The best as measured:",
        "The fastest of them is number",
    ]);
    let (_, measured) = ended.out.split_once("The best as measured:").expect("said");
    let ok = measured.lines().filter(|line| line.contains(" ok")).count();
    assert!((1..=3).contains(&ok), "{}", ended.out);
    assert_eq!(place.rows().len(), ok);
}

/// A device that is no card of the table has no rates, and those of another one are not its own.
#[test]
fn advice_for_a_device_that_is_described_has_no_times() {
    let place = Place::new(SMALL);
    for device in ["cpu, 8 GiB", "cuda, 12 GiB, sm_86"] {
        let kind = device.split(',').next().expect("a kind");
        let set = format!("device={kind}{}", if kind == "cuda" { ":0" } else { "" });
        let args = ["advise", "recipe.toml", "--set", &set, "--for", device, "--memory", "1 GiB"];
        let ended = place.runner(&args).exits(0).says(&[
            "the least work of",
            "No times: the rates of this device are not known.",
            "to run it as it is:",
        ]);
        for timed in ["tokens/s", "step ", " ms", "µs", "H200", "fastest"] {
            assert!(!ended.out.contains(timed), "{device} {timed}: {}", ended.out);
        }
    }
}

/// By its data sheet, ordered by time, and said so; a part of one is slower, and an unknown name is told what is near.
#[test]
fn advice_and_plans_for_a_card_have_times() {
    let place = Place::new(&SMALL.replace("title", "device = \"cuda:0\"\ntitle"));
    let advice = ["advise", "recipe.toml", "--for"];
    place.runner(&[&advice[..], &["rtx 3060"]].concat()).exits(0).says(&[
        "Times of the RTX 3060 follow from its data sheet",
        "of the 11.0 GiB of the RTX 3060",
        "tokens/s",
        "to write the recipe of way",
    ]);
    let plan = ["plan", "recipe.toml", "--for"];
    place
        .runner(&[&plan[..], &["h100, 20 GiB"]].concat())
        .exits(0)
        .says(&["20.0 GiB", "step: by the card's data sheet"]);
    place
        .runner(&[&plan[..], &["rtx 3061"]].concat())
        .exits(2)
        .says(&["near are RTX 3060", "write a card such as"]);
    place.runner(&["devices", "--cards"]).exits(0).says(&["RTX 5060 Ti 16 GB", "B200", "ada: https://"]);
}

/// Settings that make the plan of one cell would make another cell invalid: the advice is a recipe of its own.
#[test]
fn advice_on_a_cell_of_a_grid_can_be_run() {
    let recipe = SMALL.replace("optimizer = { kind = \"adamw\", lr = 1e-3 }\n", "");
    let grid = "[[grid]]\n\"train.optimizer\" = { kind = \"none\" }\n\
                [[grid]]\n\"train.optimizer\" = { kind = \"adamw\", lr = 1e-3 }\n\"offload.optimizer\" = \"host\"\n";
    let place = Place::new(&format!("{recipe}{grid}"));
    let keeps = ["tuning", "precision", "checkpoint", "train", "offload.strategy", "offload.optimizer"];
    let kept: Vec<&str> = keeps.iter().flat_map(|key| ["--keep", key]).collect();
    let args = [&["advise", "recipe.toml", "--cell", "2", "--memory", "1 GiB"], &kept[..]].concat();
    let ended = place.runner(&args).exits(0).says(&["runner run recipe.toml --set measure.memory_limit="]);
    assert!(ended.out.contains("--cell 2"), "{}", ended.out);
    let keeps = ["tuning", "precision", "checkpoint", "train", "offload.optimizer"];
    let kept: Vec<&str> = keeps.iter().flat_map(|key| ["--keep", key]).collect();
    let written = ["--write", "advised.toml"];
    let args = [&["advise", "recipe.toml", "--cell", "2", "--memory", "1 GiB"], &kept[..], &written].concat();
    place.runner(&args).exits(0).says(&["written to advised.toml"]);
    place.runner(&["plan", "advised.toml"]).exits(0).says(&["1 cell"]);
    place.runner(&args).exits(1).says(&["cannot write advised.toml", "name another file"]);
}

/// A recipe in bf16 for a GPU that has none: the ways are in fp16 with a scaler, and the first of them is valid there.
#[test]
fn a_gpu_without_bf16_is_advised_fp16_with_a_scaler() {
    let turing = "cuda, 8 GiB, sm_75";
    // Large enough for products to matter.
    let large = changed(
        SMALL,
        &[
            ("hidden_size = 32", "hidden_size = 1024"),
            ("num_hidden_layers = 2", "num_hidden_layers = 8"),
            ("batch_size = 2", "batch_size = 64"),
        ],
    );
    let advise = ["advise", "recipe.toml", "--for", turing, "--keep", "train.graph"];
    for precision in ["compute = \"bf16\"\n", "compute = \"bf16\"\nautocast = true\n"] {
        let place = Place::new(&format!("{large}[precision]\n{precision}"));
        let ended = place.runner(&advise).exits(0).says(&[
            "As it is, the recipe cannot run there: bf16 needs tensor cores",
            "fp16 products, dynamic scale",
        ]);
        let command =
            ended.out.lines().find_map(|line| line.trim().strip_prefix("runner run recipe.toml --set "));
        let command = command.unwrap_or_else(|| panic!("{}", ended.out));
        assert!(command.contains("scaler"), "{command}");
        let settings = command.split(" --set ").map(|setting| setting.trim_matches('\''));
        let mut args = vec!["check", "recipe.toml", "--for", turing];
        settings.for_each(|setting| args.extend(["--set", setting]));
        place.runner(&args).exits(0).says(&["all valid"]);
        let args = ["advise", "recipe.toml", "--for", turing, "--keep", "precision"];
        place.runner(&args).exits(2).says(&["bf16 needs tensor cores"]);
    }
    let place = Place::new(&format!("{large}[precision]\ncompute = \"fp16\"\nautocast = true\n"));
    place.runner(&advise).exits(0).says(&["loses small gradients"]);
}

/// What is noted of each step is not the cell's memory.
#[test]
fn the_peak_does_not_grow_with_the_steps() {
    let recipe = changed(SMALL, &[("hidden_size = 32", "hidden_size = 8")]);
    let place = Place::new(&format!("{recipe}[grid]\n\"measure.steps\" = [200, 600]\n"));
    place.runner(&["run", "recipe.toml"]).exits(0);
    let rows = place.rows();
    let peaks: Vec<f64> = rows.iter().map(|row| number(row, "/measurement/memory/live_peak")).collect();
    assert_eq!(peaks[0], peaks[1]);
}
