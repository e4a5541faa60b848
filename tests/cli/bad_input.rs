//! Bad input through the binary: a clear error, the right exit code, and nothing lost.

use crate::place::{Ended, Place, SMALL, TINY, changed, contents, files, losses, runner};

/// Exit code 2, the message, and no trace of a run.
#[track_caller]
fn refused(recipe: &str, parts: &[&str]) {
    let place = Place::new(recipe);
    place.runner(&["run", "recipe.toml"]).exits(2).says(parts);
    place.runner(&["check", "recipe.toml"]).exits(2).says(parts);
    place.runner(&["plan", "recipe.toml"]).exits(2).says(parts);
    assert!(!place.path().join("results").exists(), "nothing is written for a wrong recipe");
}

#[test]
fn a_wrong_recipe_is_refused_before_anything_runs() {
    refused("", &["the recipe is empty", "recipes/quickstart.toml"]);
    refused("title = \"t", &["recipe.toml:1"]);
    refused(&changed(TINY, &[("\"tiny\"", "\" \"")]), &["`title` is empty", "recipe.toml:1:9"]);
    refused(
        &TINY.replace("batch_size\" = [2", "batchsize\" = [2"),
        &["unknown key `batchsize`", "did you mean `batch_size`?", "recipe.toml:16:1"],
    );
    refused(
        &TINY.replace("[2, 4]", "[]"),
        &["the grid axis `train.batch_size` has no values", "recipe.toml:16:22"],
    );
    refused(&TINY.replace("[2, 4]", "[2, 0]"), &["must be at least 1, not 0", "recipe.toml:16:26"]);
    refused(
        &TINY.replace("hidden_size = 32", "hidden_size = -32"),
        &["must be at least 1, not -32", "recipe.toml:4:15"],
    );
    refused(
        &format!("device = \"cuda:9\"\n{TINY}"),
        &["the device \"cuda:9\" is not there", "recipe.toml:1:10"],
    );
    // The last cell of the grid is as wrong as the first would be.
    refused(&TINY.replace("[0, 1]", "[0, 3]"), &["0, 0.5 or 1, not 3", "recipe.toml:17:26"]);
    refused(
        &format!("{TINY}[[report.published]]\ncell = {{ \"checkpoint.level\" = 1 }}\nforward = -1.0\n"),
        &["`forward` of `report.published` is -1", "above 0"],
    );
    let axis = format!("[{}]", (1..=1000).map(|n| n.to_string()).collect::<Vec<_>>().join(", "));
    let million = TINY
        .replace("[2, 4]", &axis)
        .replace("\"checkpoint.level\" = [0, 1]", &format!("\"train.seq_len\" = {axis}"));
    refused(&million, &["the grid has 1000000 cells; the most is 10000"]);
}

#[test]
fn a_missing_recipe_and_binary_junk_are_refused() {
    let place = Place::new(TINY);
    place
        .runner(&["run", "nothing.toml"])
        .exits(2)
        .says(&["cannot read the recipe nothing.toml", "runner recipes"]);
    place.runner(&["run", "."]).exits(2).says(&["cannot read the recipe"]);
    std::fs::write(place.path().join("junk.toml"), [0u8, 0xff, 0xfe, 7]).expect("writable");
    place.runner(&["run", "junk.toml"]).exits(2).says(&["not a text file", "byte 1 is not UTF-8"]);
}

#[test]
fn results_that_cannot_be_written_are_an_error_before_anything_runs() {
    let place = Place::new(TINY);
    place.write("file", "in the way");
    place
        .runner(&["run", "recipe.toml", "--results", "file"])
        .exits(1)
        .says(&["cannot write results to", "nothing was measured yet"]);
    place
        .runner(&["run", "recipe.toml", "--results", "/proc/results"])
        .exits(1)
        .says(&["cannot write results to"]);
}

/// A file-size limit of one block lets nothing be written in full, as on a full disk.
#[test]
fn a_full_disk_is_an_error_and_keeps_earlier_rows() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml", "--cell", "1"]).exits(0);
    let row = place.row_files().remove(0);
    let before = std::fs::read(&row).expect("the row is there");
    run_on_a_full_disk(&place, 1).exits(1).says(&["cannot write results to", "free some space"]);
    assert_eq!(std::fs::read(&row).expect("the row is still there"), before);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["3 measured, 1 finished earlier"]);
}

/// Files may have so many blocks of 1024 bytes.
fn run_on_a_full_disk(place: &Place, blocks: usize) -> Ended {
    let output = std::process::Command::new("bash")
        .arg("-c")
        .arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" run recipe.toml"))
        .arg(runner())
        .current_dir(place.path())
        .env("TMPDIR", place.path())
        .output()
        .expect("bash starts");
    Ended::from(output)
}

/// Rows and reports have room, weights have not.
#[test]
fn weights_that_cannot_be_saved_cost_no_measurement() {
    let large = changed(SMALL, &[("hidden_size = 32", "hidden_size = 384")]);
    let place = Place::new(&format!("{large}[save]\nweights = \"out/w\"\nstate = \"out/s\"\nevery = 1000\n"));
    let why = ["the weights cannot be written to out/w", "File too large", "run again with --retry-failed"];
    run_on_a_full_disk(&place, 4000).exits(1).says(&["1 measured", "1 not saved"]).says(&why);
    let row = &place.rows()[0];
    assert!(row["status"] == "ok" && losses(row).len() == 3, "{row}");
    assert!(!place.path().join("out/w").exists());
    let report = std::fs::read_to_string(place.results().join("report.html")).expect("a report");
    assert!(report.contains("1 of 1 cells were measured but not saved"));
    place.runner(&["run", "recipe.toml"]).exits(1).says(&["0 measured", "1 not saved"]);
    place.runner(&["run", "recipe.toml", "--retry-failed"]).exits(0).says(&["1 measured"]);
    assert!(place.path().join("out/w/model.safetensors").exists());
}

#[test]
fn a_finished_recipe_needs_no_folder_that_can_be_written_to() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let before = contents(&place.results());
    let ended = run_on_a_full_disk(&place, 1).exits(0);
    let parts = ["0 measured, 4 finished earlier", "the report stays as it is: cannot write results to"];
    assert!(ended.says(&parts).out.contains("baseline"), "the table is printed");
    assert!(contents(&place.results()) == before, "nothing is written");
}

#[test]
fn a_half_written_row_is_kept_aside_and_measured_again() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let row = place.row_files().remove(1);
    let whole = std::fs::read(&row).expect("the row is there");
    std::fs::write(&row, &whole[..whole.len() / 2]).expect("writable");
    place
        .runner(&["run", "recipe.toml"])
        .exits(0)
        .says(&["counts as missing", "1 measured, 3 finished earlier"]);
    let aside = row.with_extension("json.damaged");
    assert_eq!(std::fs::read(aside).expect("kept aside"), &whole[..whole.len() / 2]);
    assert_eq!(place.count("ok"), 4);
}

#[test]
fn a_row_of_an_older_version_is_a_finished_one_and_left_as_it_is() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let row = place.row_files().remove(0);
    let mut old = place.rows().remove(0);
    old["environment"]["runner_version"] = "0.0.1".into();
    old.as_object_mut().expect("a row").remove("inputs");
    old["key"] = "0123456789abcdef".into();
    let name = row.with_file_name("0123456789abcdef.json");
    let text = old.to_string();
    std::fs::write(&name, &text).expect("writable");
    std::fs::remove_file(&row).expect("removable");
    // What another version means by its words is not known.
    old["status"] = "a word of that version".into();
    std::fs::write(row.with_file_name("fedcba9876543210.json"), old.to_string()).expect("writable");
    place.runner(&["run", "recipe.toml"]).exits(0).says(&[
        "fedcba9876543210.json is of another version of the runner and is left as it is",
        "0 measured, 4 finished earlier",
    ]);
    assert_eq!(std::fs::read_to_string(&name).expect("still there"), text);
}

#[test]
fn folders_without_results_are_an_error() {
    let place = Place::new(TINY);
    place.runner(&["report", "."]).exits(1).says(&["rows"]);
    place.runner(&["report", "nothing"]).exits(1).says(&["nothing is not a results folder"]);
    place.runner(&["compare", "nothing", "nothing"]).exits(1).says(&["nothing is not a results folder"]);
    place.runner(&["recipes"]).exits(1).says(&["there is no folder recipes"]);
}

/// What a later version wrote is neither read nor moved nor deleted.
#[test]
fn rows_of_a_newer_format_are_left_as_they_are() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let path = place.row_files().remove(0);
    let mut newer = place.rows().remove(0);
    newer["format"] = 99.into();
    newer["cell"]["new_key"] = true.into();
    let text = newer.to_string();
    std::fs::write(&path, &text).expect("writable");
    let folder = place.results().to_str().expect("UTF-8").to_string();
    place
        .runner(&["report", &folder])
        .exits(0)
        .says(&["is of another version of the runner", "1 of 4 cells have not run"]);
    place.runner(&["compare", &folder, &folder]).exits(0);
    place.runner(&["merge", &folder, "--into", "all"]).exits(0).says(&["4 rows of 1 folder are in"]);
    let merged = place.path().join("all/recipe").join(place.results().file_name().expect("a name"));
    let copy = merged.join("rows").join(path.file_name().expect("a name"));
    assert_eq!(std::fs::read_to_string(copy).expect("it is copied"), text);
    place.runner(&["run", "recipe.toml", "--dry-run"]).exits(0).says(&["would run 1 of 4 cells"]);
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), text);
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured, 3 finished earlier"]);
    let aside = path.with_extension("json.other");
    assert_eq!(std::fs::read_to_string(aside).expect("kept beside the new row"), text);
}

#[test]
fn the_rows_of_another_recipe_in_a_folder_are_named_and_left_out() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    place.write("other.toml", &TINY.replace("[2, 4]", "[6]"));
    place.runner(&["run", "other.toml"]).exits(0);
    let other = files(&place.path().join("results/other")).remove(0);
    for row in files(&other.join("rows")) {
        let name = row.file_name().expect("a name");
        std::fs::copy(&row, place.results().join("rows").join(name)).expect("writable");
    }
    let folder = place.results().to_str().expect("UTF-8").to_string();
    let ended = place.runner(&["report", &folder]).exits(0);
    let ended = ended.says(&["2 rows of other cells or of other input files were left as they are"]);
    assert!(ended.out.contains("batch size 4") && !ended.out.contains("batch size 6"), "{}", ended.out);
}

#[test]
fn two_recipes_of_one_file_name_do_not_share_a_results_folder() {
    let place = Place::new(TINY);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let before = contents(&place.results());
    std::fs::create_dir(place.path().join("b")).expect("a folder");
    let other = TINY.replace("tiny", "another").replace("[2, 4]", "[6]");
    place.write("b/recipe.toml", &other);
    let parts = ["has the results of another recipe recipe.toml", "\"tiny\"", "\"another\"", "--results DIR"];
    place.runner(&["run", "b/recipe.toml"]).exits(1).says(&parts);
    assert!(contents(&place.results()) == before, "nothing is written");
    place.runner(&["run", "b/recipe.toml", "--results", "b"]).exits(0).says(&["2 measured"]);
    // A recipe whose title is changed, or whose cells are, is the same.
    place.write("recipe.toml", &TINY.replace("tiny", "small"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["0 measured"]);
    place.write("recipe.toml", &TINY.replace("tiny", "small").replace("[2, 4]", "[6]"));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["2 measured"]);
}

/// Names with the characters that mean something in HTML, LaTeX, Markdown, CSV and Typst.
#[test]
fn names_are_text_in_every_format() {
    const NAME: &str = r#"<b onclick='x()'>&amp; 100 % $x_1$ \\input{a} #let ~ ^ | \"q\" [z] *"#;
    let grids =
        [0, 1].map(|level| format!("[[grid]]\nname = \"{NAME}{level}\"\n\"checkpoint.level\" = {level}\n"));
    let recipe = TINY.split("[grid]").next().expect("a grid").replace("tiny", NAME) + &grids.concat();
    let place = Place::new(&recipe);
    place.runner(&["run", "recipe.toml"]).exits(0);
    let read = |name: &str| std::fs::read_to_string(place.results().join(name)).expect("a file");
    let html = read("report.html");
    assert!(
        !html.contains("<b onclick") && html.contains("&lt;b onclick") && html.contains("&amp;amp; 100"),
        "{html}"
    );
    assert!(!read("charts/time.svg").contains("<b onclick"));
    let tex = read("table.tex");
    for part in
        [r"\textless{}b onclick='x()'\textgreater{}\&amp; 100 \%", r"\$x\_1\$", r"\textbackslash{}input\{a\}"]
    {
        assert!(tex.contains(part), "{part} in {tex}");
    }
    for row in tex.lines().filter(|line| line.contains("onclick") && line.contains('&')) {
        let separators = row.matches(" & ").count();
        assert!(row.ends_with("\\\\") && separators > 2, "{row}");
    }
    assert!(
        read("table.md").lines().filter(|line| line.contains("onclick")).all(|line| !line.contains(" | \"q"))
    );
}
