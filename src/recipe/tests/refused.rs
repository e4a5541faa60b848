//! What is refused, and where the error points.

use super::{BASE, recipe, recipe_of, says};
use crate::device::Target;
use crate::recipe::Recipe;

#[test]
fn impossible_values_are_refused_where_they_stand() {
    says(&BASE.replace("batch_size = 1", "batch_size = 0"), &["must be at least 1, not 0", "r.toml:8:14"]);
    says(&BASE.replace("seq_len = 4", "seq_len = -4"), &["must be at least 1, not -4", "r.toml:9:11"]);
    says(
        &BASE.replace("seq_len = 4", "seq_len = 4.5"),
        &["wrong type", "a whole number of at least 1", "4.5"],
    );
    says(&BASE.replace("seq_len = 4", "seq_len = \"4\""), &["wrong type", "a whole number", "string \"4\""]);
    says(&BASE.replace("seq_len = 4", "seq_len = 99999999999"), &["must be at most 2147483647"]);
    says(&format!("{BASE}[measure]\nmemory_limit = \"11 GIGS\"\n"), &["11 GiB", "11 GIGS"]);
    let gpt2 = "title = \"t\"\ntrain = { batch_size = 1, seq_len = 4 }\n[model]\nkind = \"gpt2\"\npreset = \"gpt2\"\n";
    says(&format!("{gpt2}hidden_size = 0\n"), &["must be at least 1, not 0", "r.toml:6:15"]);
    says(&format!("{gpt2}num_hidden_layers = 2000000000\n"), &["must be at most 65536, not 2000000000"]);
    says(
        &format!("{gpt2}[data]\ncorpus = \"generated\"\nvocab_size = 256\n"),
        &["must be at least 257, not 256", "every byte and the end of a text", "r.toml:8:14"],
    );
    says(&format!("{BASE}[measure]\ntimeout = -1\n"), &["must be a number above 0"]);
    says(&format!("{BASE}optimizer = {{ kind = \"sgd\", lr = nan }}\n"), &["must be a number above 0"]);
    says(
        &format!("train = 3\n{}", BASE.replace("[train]\nbatch_size = 1\nseq_len = 4\n", "")),
        &["expected a table", "found integer `3`"],
    );
}

#[test]
fn impossible_combinations_name_the_rule() {
    says(
        &format!("{BASE}[ops]\nswiglu = \"plain\"\n[grid]\n\"checkpoint.level\" = [0, 1]\n"),
        &["has no effect with ops.swiglu = \"plain\"", "r.toml:13:26"],
    );
    let huge = BASE
        .replace("batch_size = 1", "batch_size = 2000000000")
        .replace("seq_len = 4", "seq_len = 2000000000");
    says(&huge, &["more memory than any machine can address"]);
}

#[test]
fn a_device_that_is_not_there_lists_those_that_are() {
    says(
        &format!("device = \"cuda:7\"\n{BASE}"),
        &["the device \"cuda:7\" is not there", "\"cpu\"", "r.toml:1:10"],
    );
    says(&format!("device = \"gpu\"\n{BASE}"), &["the device \"gpu\" is not there", "\"auto\""]);
}

#[test]
fn a_grid_with_an_error_points_into_the_grid() {
    says(
        &format!("{BASE}[grid]\n\"train.batchsize\" = [1, 2]\n"),
        &["unknown key `batchsize`", "did you mean `batch_size`?", "r.toml:11:1"],
    );
    says(
        &format!("{BASE}[grid]\n\"chekpoint.level\" = [0]\n"),
        &["unknown key `chekpoint`", "did you mean `checkpoint`?"],
    );
    says(
        &format!("{BASE}[grid]\n\"train.batch_size\" = []\n"),
        &["the grid axis `train.batch_size` has no values", "r.toml:11:22"],
    );
    says(
        &format!("{BASE}[grid]\n\"train.batch_size\" = [1, 0]\n"),
        &["must be at least 1, not 0", "r.toml:11:26"],
    );
    says(
        &format!("{BASE}[grid]\n\"train.batch_size.x\" = [1]\n"),
        &["goes through `batch_size`, which is not a table"],
    );
    says(&format!("{BASE}[grid]\n\"train.batch_size\" = [2, 2]\n"), &["cell 2 is the same as cell 1"]);
    says(&format!("grid = 3\n{BASE}"), &["`grid` must be a table"]);
    says(&format!("{BASE}[grid]\n\"train..x\" = [1]\n"), &["is not a dotted key"]);
}

#[test]
fn a_grid_of_a_million_cells_is_refused_at_once() {
    let axis = (1..=100).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!(
        "{BASE}[grid]\n\"train.batch_size\" = [{axis}]\n\"train.seq_len\" = [{axis}]\n\"model.hidden_size\" = [{axis}]\n"
    );
    says(&text, &["the grid has 1000000 cells; the most is 10000", "train.batch_size has 100"]);
}

#[test]
fn the_baseline_must_be_in_the_grid() {
    says(
        &format!("{BASE}[report]\nbaseline = {{ \"checkpoint.levle\" = 0 }}\n"),
        &["`checkpoint.levle`, which no cell has", "did you mean `checkpoint.level`?"],
    );
    says(
        &format!("{BASE}[report]\nbaseline = {{ \"checkpoint.level\" = 1 }}\n"),
        &["matches no cell of the grid"],
    );
    assert_eq!(recipe("[report]\nbaseline = { \"checkpoint.level\" = 0 }\n").report.baseline.len(), 1);
}

#[test]
fn a_published_result_must_be_of_a_cell_of_the_file() {
    let published = "[[report.published]]\ncell = { \"checkpoint.level\" = 1 }\nforward = 0.008\n";
    let text = format!("{BASE}{published}");
    says(
        &text,
        &["a result of `report.published` is of checkpoint.level = 1, which no cell has", "r.toml:10:3"],
    );
    let found = |text: String| recipe_of(&text).report.published.len();
    assert_eq!(found(format!("{BASE}[on_cpu.checkpoint]\nlevel = 1\n{published}")), 1);
    // Another size than the published one, for once.
    let set = "[[set]]\n\"checkpoint.level\" = 0.5\n";
    assert_eq!(found(format!("{text}{set}")), 1);
}

#[test]
fn broken_toml_and_other_files_get_a_clear_error() {
    says("", &["r.toml: the recipe is empty"]);
    says("# only a comment\n", &["the recipe is empty"]);
    says(&format!("{BASE}[model]\n"), &["duplicate", "r.toml:10"]);
    says("title = \n", &["r.toml:1"]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let junk = dir.path().join("junk.toml");
    std::fs::write(&junk, [0x7f, b'E', b'L', b'F', 0xff, 0xfe, 0]).expect("writable");
    let message = Recipe::load(&junk, &[], &Target::Here).expect_err("not text").to_string();
    assert!(message.contains("not a text file: byte 4 is not UTF-8"), "{message}");
    let missing = dir.path().join("none.toml");
    let message = Recipe::load(&missing, &[], &Target::Here).expect_err("not there").to_string();
    assert!(message.contains("cannot read the recipe"), "{message}");
}
