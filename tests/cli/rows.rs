//! What a row holds and what it is known by, through the binary.

use crate::place::{Place, SMALL, TINY, changed};

/// A small language model on the text of the folder `text`.
fn on_text() -> String {
    changed(
        SMALL,
        &[
            ("\"generated\"\nsize = \"100 KiB\"", "\"text\""),
            ("\"adamw\"", "\"sgd\""),
            ("warmup = 1", "warmup = 0"),
        ],
    )
}

/// With text to train on and text held out.
fn place(recipe: &str) -> Place {
    let place = Place::new(recipe);
    std::fs::create_dir(place.path().join("text")).expect("writable");
    for name in ["text/train.txt", "text/valid.txt"] {
        place.write(name, &"The cat sat on the mat. A dog ran after the cat.\n".repeat(50));
    }
    place
}

#[test]
fn a_row_is_known_by_what_its_files_hold() {
    let place = place(&on_text());
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured, 0 finished earlier"]);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["0 measured, 1 finished earlier"]);
    let first = place.rows().remove(0);
    place.write("text/train.txt", &"Another text, in which a cow jumps over the moon.\n".repeat(50));
    place.runner(&["run", "recipe.toml", "--dry-run"]).exits(0).says(&["would run 1 of 1 cells"]);
    place
        .runner(&["run", "recipe.toml"])
        .exits(0)
        .says(&["1 measured, 0 finished earlier", "1 row of another cell or of other input files"]);
    let rows = place.rows();
    assert!(rows.len() == 2 && rows.contains(&first), "the first text's row stays");
    assert_ne!(rows[0]["inputs"]["data.corpus"], rows[1]["inputs"]["data.corpus"]);
}

#[test]
fn a_row_of_another_build_is_finished_and_can_be_measured_again() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let rows = place.row_files();
    let build = place.rows()[0]["environment"]["build"].as_str().expect("rows name their build").to_string();
    assert_eq!(build.len(), 12);
    for path in &rows[..3] {
        let text = std::fs::read_to_string(path).expect("a row").replace(&build, "0123456789ab");
        std::fs::write(path, text).expect("writable");
    }
    let notice = "3 finished rows are of other builds of the runner";
    place.runner(&["run", "recipe.toml"]).exits(0).says(&[
        "0 measured, 4 finished earlier",
        notice,
        "--stale",
    ]);
    place.runner(&["run", "recipe.toml", "--dry-run"]).exits(0).says(&["nothing to run", notice]);
    let dry = ["run", "recipe.toml", "--dry-run", "--stale"];
    place.runner(&dry).exits(0).says(&["would run 3 of 4 cells"]);
    place.runner(&["run", "recipe.toml", "--stale"]).exits(0).says(&["3 measured, 1 finished earlier"]);
    assert_eq!(place.row_files(), rows, "the new rows take the place of the old ones");
    assert!(place.rows().iter().all(|row| row["environment"]["build"] == build.as_str()));
}

/// The only loss is that of the first forward; the update after it makes the weights infinite.
#[test]
fn an_update_that_is_not_finite_is_a_diverged_row_with_and_without_evaluation() {
    let diverging = on_text().replace("1e-3", "1e30").replace("steps = 2", "steps = 1");
    for (eval, reason) in [
        ("", "after the last update the loss was"),
        ("[eval]\nevery = 1\nbatches = 1\n", "held-out text after step 1"),
    ] {
        let place = place(&format!("{diverging}{eval}"));
        place.runner(&["run", "recipe.toml"]).exits(1).says(&["1 diverged"]);
        let row = place.rows().remove(0);
        assert_eq!(row["status"], "diverged", "{row}");
        let given = row["reason"].as_str().expect("a reason");
        assert!(given.contains(reason) && given.contains("train.optimizer.lr"), "{given}");
    }
}

#[test]
fn tokens_a_second_are_those_of_the_whole_run() {
    let place = place(&format!("{}[eval]\nevery = 1\nbatches = 2\n", on_text()));
    place.runner(&["run", "recipe.toml"]).exits(0);
    let m = place.rows().remove(0)["measurement"].clone();
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let (rate, run) = (number(&m["tokens_per_second"]), number(&m["run_seconds"]));
    let steps: f64 = m["step"]["seconds"].as_array().expect("samples").iter().map(number).sum();
    assert!((rate * run / (2.0 * 2.0 * 16.0) - 1.0).abs() < 1e-9, "{rate} tokens/s over {run} s");
    assert!(run >= steps, "what lies between the steps counts: {run} s, and {steps} s of steps");
    let report = std::fs::read_to_string(place.results().join("report.html")).expect("a report");
    assert!(report.contains("over their whole time by the host"), "the report says what the rate is");
}

#[test]
fn check_and_plan_are_for_the_device_that_is_described() {
    let recipe = on_text()
        .replace("[data]", "[precision]\ncompute = \"bf16\"\n[data]")
        .replace("warmup = 0", "warmup = 2");
    let place = place(&recipe.replace("steps = 2", "steps = 2\n[grid]\n\"train.batch_size\" = [1, 4096]"));
    let card = |device| place.runner(&["check", "recipe.toml", "--for", device]);
    card("cuda, 11 GiB").exits(0).says(&["2 cells, all valid"]);
    card("cuda, 11 GiB, sm_75").exits(2).says(&["compute capability 8.0", "recipe.toml:10:11"]);
    card("cuda, 11 GB of memory").exits(2).says(&["--for <DEVICE>", "write a card such as"]);
    let plan = |device| place.runner(&["plan", "recipe.toml", "--for", device]).exits(0);
    plan("cuda, 64 GiB").says(&["every cell fits", "64.0 GiB"]);
    // The driver's context takes 620 MiB of it.
    let small = plan("cuda, 768 MiB").says(&["1 would not fit", "768 MiB"]);
    assert_eq!(small.out.matches(" no ").count(), 1, "{}", small.out);
    plan("cuda").says(&["of 2 it is not known whether they fit"]);
    place.write("limited.toml", &recipe.replace("steps = 2", "steps = 2\nmemory_limit = \"100 KiB\""));
    let limited = ["plan", "limited.toml", "--for", "cuda, 64 GiB"];
    place.runner(&limited).exits(0).says(&["100 KiB", "1 would not fit"]);
}
