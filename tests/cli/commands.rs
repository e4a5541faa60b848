//! The commands around `run`: plan, check, devices, recipes, compare, verify, and the shipped
//! recipes.

use std::collections::HashMap;
use std::path::Path;

use crate::place::{Ended, Place, SMALL, TINY, changed, files};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn plan_prints_every_cell_with_its_estimate() {
    let place = Place::new(&TINY.replace("steps = 3", "steps = 3\nmemory_limit = \"150 KiB\""));
    let ended =
        place.runner(&["plan", "recipe.toml"]).exits(0).says(&["4 cells", "2 would not fit", "150 KiB"]);
    assert_eq!(ended.out.matches(" no ").count(), 2, "{}", ended.out);
    assert!(!place.path().join("results").exists());
}

#[test]
fn the_shipped_recipes_are_valid() {
    let place = Place::new(TINY);
    let recipes = format!("{ROOT}/recipes");
    let ended = place.runner(&["recipes", &recipes]).exits(0).says(&["quickstart.toml", "swiglu.toml"]);
    assert!(!ended.out.contains("error"), "{}", ended.out);
    for entry in
        files(Path::new(&recipes)).into_iter().filter(|path| path.extension().is_some_and(|e| e == "toml"))
    {
        let checked = place.runner(&["check", entry.to_str().expect("UTF-8")]);
        let text = std::fs::read_to_string(&entry).expect("a recipe");
        let ended = checked.exits(0).says(&["all valid"]);
        if text.contains("\"tf32\"") && !text.contains("[on_cpu") {
            ended.says(&["other hardware: tf32 is a format of NVIDIA's tensor cores"]);
        }
    }
    // Five sizes at three levels, the published ten and five in between.
    place.runner(&["plan", &format!("{recipes}/swiglu.toml")]).exits(0).says(&["15 cells"]);
}

#[test]
fn settings_of_the_command_line_take_the_place_of_the_recipes() {
    let place = Place::new(TINY);
    let set = |command: &str, setting: &str| place.runner(&[command, "recipe.toml", "--set", setting]);
    set("check", "train.seq_len=8").exits(0).says(&["4 cells"]);
    // An axis of the grid becomes one value.
    set("check", "train.batch_size=3").exits(0).says(&["2 cells, all valid"]);
    set("plan", "precision.compute=bf16").exits(0).says(&["4 cells"]);
    set("check", "train.batchsize=3")
        .exits(2)
        .says(&["unknown key `batchsize`", "did you mean `batch_size`?"]);
    set("check", "train.batch_size=0")
        .exits(2)
        .says(&["must be at least 1, not 0", "\"train.batch_size\" = 0"]);
    set("check", "precision.compute=int3").exits(2).says(&["unknown value `int3`"]);
    // A baseline's key that all cells are given no longer tells which cells it is.
    place.write("compared.toml", &format!("{TINY}[report]\nbaseline = {{ \"checkpoint.level\" = 0 }}\n"));
    place.runner(&["check", "compared.toml", "--set", "checkpoint.level=1"]).exits(0).says(&["2 cells"]);
    place.runner(&["check", "compared.toml", "--set", "checkpoint={level=1}"]).exits(0).says(&["2 cells"]);
    set("check", "device=cuda:9").exits(2).says(&["the device \"cuda:9\" is not there"]);
    set("check", "train.batch_size").exits(2).says(&["write key=value"]);
    set("check", "train.batch_size.x=1").exits(2).says(&["goes through `batch_size`, which is not a table"]);
    let set = [
        "--set",
        "train.batch_size=3",
        "--set",
        "train.optimizer={kind=\"none\"}",
        "--set",
        "title=renamed_study",
    ];
    place.runner(&[&["run", "recipe.toml"][..], &set].concat()).exits(0).says(&["2 measured"]);
    for row in place.rows() {
        assert_eq!(row["cell"]["train"]["batch_size"], 3);
        assert_eq!(row["cell"]["train"]["optimizer"]["kind"], "none");
    }
    // The copy next to the rows says what was run: its report and another run find them.
    let copy = std::fs::read_to_string(place.results().join("recipe.toml")).expect("a recipe");
    assert!(copy.contains("[[set]]\n\"train.batch_size\" = 3\n"), "{copy}");
    let folder = place.results().to_str().expect("UTF-8").to_string();
    place.runner(&["report", &folder]).exits(0).says(&["3×16"]);
    let report = std::fs::read_to_string(place.results().join("report.html")).expect("a report");
    assert!(report.contains("<title>renamed_study"), "its title is the one that was set");
    place.runner(&[&["run", "recipe.toml"][..], &set].concat()).exits(0).says(&["2 finished earlier"]);
}

#[test]
fn check_goes_on_after_a_wrong_recipe() {
    let place = Place::new(TINY);
    place.write("wrong.toml", &TINY.replace("steps = 3", "stepps = 3"));
    place.runner(&["check", "wrong.toml", "recipe.toml"]).exits(2).says(&["stepps", "4 cells, all valid"]);
}

#[test]
fn devices_lists_the_cpu_with_measured_rates() {
    let place = Place::new(TINY);
    let ended = place.runner(&["devices"]).exits(0).says(&["cpu", "GFLOP/s", "copies on the device, GB/s"]);
    let rates: Vec<f64> = ended
        .out
        .lines()
        .filter(|line| ["GFLOP/s", "GB/s", "from launch"].iter().any(|rate| line.contains(rate)))
        .filter_map(|line| line.split('┆').nth(1)?.trim_matches([' ', '│']).parse().ok())
        .collect();
    // Products in three types, copies, updates on the host and launches; the CPU has no bus and no tf32.
    assert_eq!(rates.len(), 6, "{}", ended.out);
    assert!(rates.iter().all(|rate| *rate > 0.0), "{}", ended.out);
}

/// Of GPUs that are taken for older ones.
#[test]
fn a_compute_capability_that_is_none_is_refused() {
    let place = Place::new(TINY);
    let with = |value: &str| {
        let mut command = place.command(&["check", "recipe.toml"]);
        Ended::from(command.env("RUNNER_CAPABILITY", value).output().expect("the binary starts"))
    };
    with("turing").exits(1).says(&["RUNNER_CAPABILITY: \"turing\" is no compute capability, such as 7.5"]);
    with("7.5").exits(0);
    with("").exits(0);
}

/// A card that need not be here: what it lacks is no cell that can run.
#[test]
fn a_described_card_has_what_its_generation_has() {
    let place = Place::new(&changed(SMALL, &[("[data]", "[precision]\ncompute = \"fp16\"\n[data]")]));
    for command in ["check", "plan", "advise"] {
        let of = |card: &str| place.runner(&[command, "recipe.toml", "--for", card]);
        of("cuda, 11 GiB, sm_61").exits(0);
        of("cuda, 2 GiB, sm_52")
            .exits(2)
            .says(&["CUDA kernels need compute capability 6.0, and cuda:0 has 5.2"]);
    }
    place.write("bf16.toml", &changed(SMALL, &[("[data]", "[precision]\ncompute = \"bf16\"\n[data]")]));
    let bf16 = place.runner(&["check", "bf16.toml", "--for", "cuda, 11 GiB, sm_61"]);
    bf16.exits(2).says(&["bf16 needs tensor cores of compute capability 8.0, and cuda:0 has 6.1"]);
}

#[test]
fn compare_matches_cells_by_their_settings() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml", "--results", "a"]).exits(0);
    place.runner(&["run", "recipe.toml", "--results", "b", "--cell", "1", "--cell", "2"]).exits(0);
    let folder = |root: &str| {
        let device = files(&place.path().join(root).join("recipe")).remove(0);
        device.to_str().expect("UTF-8").to_string()
    };
    let ended = place.runner(&["compare", &folder("a"), &folder("b")]).exits(0);
    assert!(ended.out.contains("batch size") && ended.out.contains("1.00x"), "equal peaks:\n{}", ended.out);
    let same = place.runner(&["compare", &folder("a"), &folder("a")]).exits(0);
    assert!(same.out.matches("1.00x").count() >= 16, "a folder equals itself:\n{}", same.out);
    let rows = files(&Path::new(&folder("b")).join("rows"));
    std::fs::write(&rows[0], "{").expect("writable");
    let name = rows[0].file_name().and_then(|name| name.to_str()).expect("UTF-8");
    place.runner(&["compare", &folder("a"), &folder("b")]).exits(0).says(&[name, "is left out"]);
}

#[test]
fn verify_passes_on_the_reference_in_every_precision() {
    let place = Place::new(TINY);
    let golden = format!("{ROOT}/tests/fixtures/swiglu");
    place.runner(&["verify", &golden]).exits(0).says(&["level 0.5: dW", "20 of 20 quantities pass"]);
    let set = |setting: &str| place.runner(&["verify", &golden, "--set", setting]);
    set("checkpoint.level=1").exits(0).says(&["5 of 5 quantities pass"]);
    set("ops.swiglu=plain").exits(0).says(&["5 of 5 quantities pass"]);
    for compute in ["bf16", "fp16"] {
        set(&format!("precision.compute={compute}")).exits(0).says(&["20 of 20 quantities pass"]);
    }
    set("train.accumulation_steps=2")
        .exits(1)
        .says(&["`train.accumulation_steps` is fixed", "checkpoint.level"]);
    set("checkpoint.levle=1").exits(2).says(&["unknown key `levle`", "did you mean `level`?"]);
    place.runner(&["verify", &golden, "--atol", "1e-12"]).exits(1).says(&["FAIL"]);
    place.runner(&["verify", &golden, "--atol", "nan"]).exits(1).says(&["--atol NaN allows no difference"]);
    place.runner(&["verify", &golden, "--device", "cuda:9"]).exits(2).says(&["is not there"]);
    let trace = format!("{ROOT}/tests/fixtures/grad_scaler");
    place
        .runner(&["verify", &trace])
        .exits(0)
        .says(&["scale after each of 40 steps", "2 of 2 quantities pass"]);
    place.runner(&["verify", "."]).exits(1).says(&["golden.safetensors"]);
}

/// A copy of the reference in which one tensor is changed.
fn tampered(folder: &Path, name: &str, change: impl Fn(f32) -> f32) {
    let bytes =
        std::fs::read(format!("{ROOT}/tests/fixtures/swiglu/golden.safetensors")).expect("the fixture");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut data: HashMap<String, (Vec<usize>, Vec<u8>)> = HashMap::new();
    for (tensor, view) in file.iter() {
        let mut raw = view.data().to_vec();
        if tensor == name {
            for value in raw.chunks_exact_mut(4) {
                let old = f32::from_le_bytes(value.try_into().expect("four bytes"));
                value.copy_from_slice(&change(old).to_le_bytes());
            }
        }
        data.insert(tensor.to_string(), (view.shape().to_vec(), raw));
    }
    let views = data.iter().map(|(name, (shape, raw))| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), raw).expect("as it was"))
    });
    let bytes = safetensors::serialize(views, None).expect("as it was");
    std::fs::write(folder.join("golden.safetensors"), bytes).expect("writable");
}

#[test]
fn verify_fails_when_one_quantity_is_wrong() {
    let place = Place::new(TINY);
    for name in ["y", "dx", "dW", "dV", "dU"] {
        tampered(place.path(), name, |_| 0.0);
        let ended = place.runner(&["verify", "."]).exits(1).says(&["16 of 20 quantities pass"]);
        for line in ended.out.lines().filter(|line| line.contains("FAIL")) {
            assert!(line.contains(&format!(": {name} ")), "only {name} may fail: {line}");
        }
    }
    // Half a per mille is not rounding.
    tampered(place.path(), "dV", |value| value * 1.0005);
    place.runner(&["verify", "."]).exits(1).says(&["16 of 20 quantities pass"]);
}

#[test]
fn the_cell_command_explains_itself() {
    let place = Place::new(TINY);
    place.runner(&["cell"]).exits(2).says(&["started by `runner run`"]);
    let help = place.runner(&["--help"]).exits(0);
    assert!(!help.out.contains("Run one cell, as asked"), "the command is not for users:\n{}", help.out);
}

#[test]
fn keys_and_their_schema_are_printed() {
    let place = Place::new(TINY);
    place.runner(&["keys", "train.optimizer"]).exits(0).says(&[
        "kind = \"sgd\"",
        "train.optimizer.beta_1",
        "0.999",
    ]);
    place
        .runner(&["keys", "trian"])
        .exits(1)
        .says(&["no key of a recipe begins with trian", "did you mean train"]);
    place.runner(&["keys", "title"]).exits(0).says(&["What the report is called"]);
    place.runner(&["keys", "questoin"]).exits(1).says(&["did you mean question"]);
    let reference = place.runner(&["keys", "--markdown"]).exits(0);
    assert_eq!(reference.out, include_str!("../../docs/recipe.md"));
    let schema = place.runner(&["schema"]).exits(0);
    assert_eq!(schema.out, include_str!("../../recipes/schema.json"));
}

/// As behind `| head -1`: what is done is done, and the exit code is that of the command.
#[test]
fn nobody_need_read_what_is_printed() {
    let place = Place::new(TINY);
    place.write("wrong.toml", "title = 1");
    place.runner_unread(&["run", "recipe.toml"]).exits(0);
    assert_eq!(place.count("ok"), 4);
    let folder = place.results().to_str().expect("UTF-8").to_string();
    std::fs::remove_file(place.results().join("report.html")).expect("a report");
    for args in [
        &["report", &folder][..],
        &["compare", &folder, &folder],
        &["run", "recipe.toml"],
        &["run", "recipe.toml", "--dry-run"],
        &["plan", "recipe.toml"],
        &["memory", "recipe.toml"],
        &["check", "recipe.toml", "recipe.toml"],
        &["keys"],
        &["keys", "--markdown"],
        &["schema"],
        &["recipes", "."],
        &["--help"],
    ] {
        place.runner_unread(args).exits(0);
    }
    place.runner_unread(&["check", "recipe.toml", "wrong.toml"]).exits(2);
    place.runner_unread(&["report", "nothing"]).exits(1);
    assert!(place.results().join("report.html").is_file(), "the report was written all the same");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = place.command(&["keys"]).stdout(full).stderr(std::process::Stdio::piped()).output();
    crate::place::Ended::from(output.expect("the binary starts"))
        .exits(1)
        .says(&["cannot write to standard output"]);
}
