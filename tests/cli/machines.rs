//! A recipe on several machines: cells for other hardware, and results that are merged.

use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::place::{Ended, Place, TINY, contents, files, losses};

/// Two sizes on a GPU and on the CPU.
fn mixed() -> String {
    TINY.replace("\"checkpoint.level\" = [0, 1]", "device = [\"cuda:0\", \"cpu\"]")
}

/// The results folder below another root.
fn results(place: &Place, root: &str) -> PathBuf {
    files(&place.path().join(root).join("recipe")).remove(0)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn rows(folder: &Path) -> Vec<Value> {
    let json = |path: &PathBuf| path.extension().is_some_and(|e| e == "json");
    let paths = files(&folder.join("rows")).into_iter().filter(json);
    paths.map(|path| serde_json::from_slice(&std::fs::read(path).expect("a row")).expect("JSON")).collect()
}

/// The row as of a GPU, which is not here; rows without inputs have any name.
fn on_gpu(row: &Value, name: &str, folder: &Path) {
    let mut row = row.clone();
    row["cell"]["device"] = "cuda:0".into();
    row["environment"]["device"]["id"] = "cuda:0".into();
    row["environment"]["device"]["name"] = name.into();
    let size = row["cell"]["train"]["batch_size"].clone();
    let key = format!("{:0>16}", format!("{size}{}", name.len()));
    row["key"] = key.clone().into();
    row.as_object_mut().expect("a row").remove("inputs");
    std::fs::create_dir_all(folder.join("rows")).expect("writable");
    std::fs::write(folder.join(format!("rows/{key}.json")), row.to_string()).expect("writable");
}

#[test]
fn what_needs_other_hardware_is_skipped_with_its_reason() {
    let place = Place::new(&mixed());
    place
        .runner(&["check", "recipe.toml"])
        .exits(0)
        .says(&["4 cells, all valid; 2 cells need other hardware"]);
    place
        .runner(&["plan", "recipe.toml"])
        .exits(0)
        .says(&["not here", "no NVIDIA driver with a device was found"]);
    let skipped = "2 skipped for other hardware";
    place.runner(&["run", "recipe.toml"]).exits(69).says(&["2 measured, 0 finished earlier", skipped]);
    place.runner(&["run", "recipe.toml"]).exits(69).says(&["0 measured, 2 finished earlier", skipped]);
    place
        .runner(&["run", "recipe.toml", "--dry-run"])
        .exits(0)
        .says(&["nothing to run", "that can run here"]);
    assert_eq!((place.count("ok"), place.count("skipped")), (2, 2));
    let report = std::fs::read_to_string(place.results().join("report.html")).expect("a report");
    assert!(report.contains("no NVIDIA driver with a device was found") && report.contains("skipped"));
    place.write("gpu.toml", &mixed().replace(", \"cpu\"]", "]"));
    place
        .runner(&["run", "gpu.toml"])
        .exits(2)
        .says(&["no NVIDIA driver with a device was found", "gpu.toml:17"]);

    // What a machine with the GPU measured takes the place of what was skipped.
    let (folder, done) = (place.results(), place.rows());
    let gpu = place.path().join("elsewhere/recipe/test-gpu");
    for row in done.iter().filter(|row| row["status"] == "ok") {
        on_gpu(row, "Test GPU", &gpu);
    }
    std::fs::copy(folder.join("recipe.toml"), gpu.join("recipe.toml")).expect("writable");
    let merged = place.runner(&["merge", text(&folder), text(&gpu), "--into", "all"]).exits(0);
    let merged = merged.says(&["6 rows of 2 folders are in all/recipe/merged"]);
    assert!(!merged.out.contains("skipped"), "{}", merged.out);
    let again = place.runner(&["report", "all/recipe/merged"]).exits(0);
    assert!(!again.out.contains("skipped"), "{}", again.out);
}

/// Four tasks, each on a machine with a disk of its own; two are killed and started again.
#[test]
fn shards_that_were_killed_and_merged_equal_one_run() {
    let place = Place::new(&TINY.replace("[2, 4]", "[1, 2, 3, 4, 5, 6]"));
    place.runner(&["run", "recipe.toml", "--results", "whole"]).exits(0).says(&["12 measured"]);
    let mut parts = Vec::new();
    for shard in 1..=4 {
        let (root, part) = (format!("part{shard}"), format!("{shard}/4"));
        let args = ["run", "recipe.toml", "--results", &root, "--shard", &part];
        if shard % 2 == 0 {
            let mut first = place.start(&args);
            let folders = || files(&place.path().join(&root).join("recipe"));
            place.wait("a row", || folders().first().is_some_and(|folder| !rows(folder).is_empty()));
            kill(Pid::from_raw(first.id() as i32), Signal::SIGKILL).expect("it is there");
            first.wait().expect("it is dead");
            assert!(rows(&results(&place, &root)).len() < 3, "it was killed before its end");
        }
        place.runner(&args).exits(0);
        parts.push(results(&place, &root));
    }
    let before: Vec<_> = parts.iter().map(|part| contents(part)).collect();
    let folders: Vec<&str> = parts.iter().map(|part| text(part)).collect();
    place
        .runner(&[&["merge"][..], &folders, &["--into", "all"]].concat())
        .exits(0)
        .says(&["12 rows of 4 folders"]);
    assert!(parts.iter().map(|part| contents(part)).eq(before), "the parts stay as they were");
    let learned = |folder: &Path| -> Vec<(String, Vec<f64>)> {
        rows(folder).iter().map(|row| (row["cell"].to_string(), losses(row))).collect()
    };
    assert_eq!(learned(&results(&place, "all")), learned(&results(&place, "whole")));
    let run = ["run", "recipe.toml", "--results", "all"];
    place.runner(&run).exits(0).says(&["0 measured, 12 finished earlier"]);
    place
        .runner(&[&["merge"][..], &folders, &["--into", "all"]].concat())
        .exits(0)
        .says(&["12 rows of 5 folders"]);
}

#[test]
fn rows_that_differ_are_merged_only_as_the_user_says() {
    let place = Place::new(TINY);
    for (root, cells) in [("a", ["1", "2"]), ("b", ["2", "3"])] {
        let cells = cells.map(|cell| ["--cell", cell]).concat();
        place.runner(&[&["run", "recipe.toml", "--results", root][..], &cells].concat()).exits(0);
        // Rows have whole seconds: those of b are to be newer.
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    let [a, b] = ["a", "b"].map(|root| results(&place, root));
    // Both have the row of cell 2; only that of a has a trace.
    let rows_of_a = files(&a.join("rows")).into_iter();
    let mut names = rows_of_a.map(|row| row.file_name().expect("a file").to_owned());
    let both = names.find(|name| b.join("rows").join(name).is_file()).expect("the row of cell 2");
    let trace_of = |folder: &Path| folder.join("traces").join(&both).with_extension("json.gz");
    std::fs::create_dir(a.join("traces")).expect("writable");
    std::fs::write(trace_of(&a), "{}").expect("writable");
    let damaged = b.join("rows/0123456789abcdef.json");
    std::fs::write(&damaged, "{\"format\": 4,").expect("writable");
    let merge =
        |more: &[&str]| place.runner(&[&["merge", text(&a), text(&b), "--into", "all"][..], more].concat());
    merge(&[]).exits(1).says(&[
        "rows of the same cell on the same device differ",
        "cell 2/4",
        "--keep newest",
    ]);
    assert!(!place.path().join("all").exists(), "nothing is written");
    merge(&["--keep", "first"])
        .exits(0)
        .says(&["3 rows of 2 folders", "stays where it is: it is not a whole row"]);
    let all = results(&place, "all");
    let trace = trace_of(&all);
    assert!(trace.is_file(), "the trace of a's row");
    let of = |folder: &Path| contents(&folder.join("rows")).into_values().collect::<Vec<_>>();
    assert!(of(&a).iter().all(|row| of(&all).contains(row)), "the rows of a were named first");
    merge(&["--keep", "newest"]).exits(0);
    assert!(!trace.exists(), "the row of b has no trace");
    let whole = of(&b).into_iter().filter(|row| row.ends_with(b"}\n"));
    assert!(whole.into_iter().all(|row| of(&all).contains(&row)), "the rows of b are newer");
    assert!(damaged.is_file());

    place.write("other.toml", &TINY.replace("[0, 1]", "[0, 0.5]"));
    place.runner(&["run", "other.toml", "--cell", "1"]).exits(0);
    let other = files(&place.path().join("results/other")).remove(0);
    place
        .runner(&["merge", text(&a), text(&other), "--into", "all"])
        .exits(1)
        .says(&["hold results of two recipes", "runner compare"]);
    // A copy under another name.
    let copy = place.path().join("renamed").join(a.file_name().expect("a device"));
    std::fs::create_dir_all(copy.join("rows")).expect("writable");
    std::fs::copy(a.join("recipe.toml"), copy.join("recipe.toml")).expect("writable");
    place
        .runner(&["merge", text(&a), text(&copy), "--into", "all"])
        .exits(1)
        .says(&["have the same recipe", "into a folder called `recipe`"]);
    // What is no file is left out, as a damaged row is.
    std::fs::create_dir(a.join("rows/0123456789abcdef.json")).expect("writable");
    place.runner(&["report", text(&a)]).exits(0).says(&["0123456789abcdef.json is left out"]);
}

#[test]
fn results_of_several_devices_are_reported_and_compared_device_by_device() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let folder = place.results();
    let mut others = Vec::new();
    for name in ["GPU one", "Another GPU"] {
        let gpu = place.path().join(format!("{name}/recipe/{}", name.replace(' ', "-")));
        for row in rows(&folder).iter().filter(|row| row["cell"]["checkpoint"]["level"] == 0.0) {
            on_gpu(row, name, &gpu);
        }
        std::fs::copy(folder.join("recipe.toml"), gpu.join("recipe.toml")).expect("writable");
        others.push(gpu);
    }
    let merge = ["merge", text(&folder), text(&others[0]), text(&others[1]), "--into", "all"];
    let ended = place.runner(&merge).exits(0).says(&["8 rows of 3 folders"]);
    let lines = |of: &Ended, what: &str| of.out.lines().filter(|line| line.contains(what)).count();
    assert_eq!((lines(&ended, "GPU one"), lines(&ended, "Another GPU")), (2, 2), "{}", ended.out);
    let report =
        std::fs::read_to_string(place.path().join("all/recipe/merged/report.html")).expect("a report");
    assert!(report.contains("Devices differ in more than the method"), "its limits");
    let compared = place.runner(&["compare", "all/recipe/merged", text(&others[0])]).exits(0);
    assert_eq!(lines(&compared, "1.00x"), 2, "the device's own rows are equal:\n{}", compared.out);
    assert_eq!(lines(&compared, "only in a"), 6, "{}", compared.out);
}
