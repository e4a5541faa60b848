//! Recipes: what expands to which cells, and what is refused where.

use crate::common::{Bytes, Compute};
use miette::{GraphicalReportHandler, GraphicalTheme};

use super::*;
use crate::ops::Level;

pub const BASE: &str = r#"title = "t"
[model]
kind = "swiglu"
hidden_size = 8
intermediate_size = 16
num_hidden_layers = 1
[train]
batch_size = 1
seq_len = 4
"#;

fn parse(text: &str) -> Result<Recipe, RecipeError> {
    Recipe::parse(&Source { path: "r.toml".into(), text: text.into() })
}

pub fn recipe(extra: &str) -> Recipe {
    recipe_of(&format!("{BASE}{extra}"))
}

pub fn recipe_of(text: &str) -> Recipe {
    parse(text).unwrap_or_else(|e| panic!("{}", draw(&e)))
}

/// The error as a user sees it.
fn error(text: &str) -> String {
    draw(&parse(text).expect_err("this recipe must be refused"))
}

pub fn draw(error: &RecipeError) -> String {
    let mut out = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(120)
        .render_report(&mut out, error)
        .expect("a string takes any text");
    out
}

/// Asserts that the drawn error holds every part.
#[track_caller]
pub fn says(text: &str, parts: &[&str]) {
    let drawn = error(text);
    for part in parts {
        assert!(drawn.contains(part), "missing `{part}` in:\n{drawn}");
    }
}

#[test]
fn defaults_are_filled_in() {
    let cell = &recipe("").cells[0];
    assert_eq!(cell.device, DeviceId::resolve("auto").expect("there is always one").to_string());
    assert_eq!((cell.measure.warmup, cell.measure.steps), (2, Some(15)));
    assert_eq!(cell.checkpoint.level, Level::Keep);
    assert_eq!(cell.precision.compute, Compute::Fp32);
}

#[test]
fn a_grid_is_a_product_and_its_last_axis_varies_fastest() {
    let recipe = recipe("[grid]\n\"train.batch_size\" = [1, 2]\n\"checkpoint.level\" = [0, 0.5, 1]\n");
    let cells: Vec<(usize, f64)> =
        recipe.cells.iter().map(|c| (c.train.batch_size, c.checkpoint.level.number())).collect();
    assert_eq!(cells, [(1, 0.0), (1, 0.5), (1, 1.0), (2, 0.0), (2, 0.5), (2, 1.0)]);
    assert_eq!(recipe.swept, ["checkpoint.level", "train.batch_size"]);
}

#[test]
fn a_list_of_grids_is_their_union() {
    let recipe = recipe(
        "[[grid]]\n\"train.batch_size\" = 3\n\"checkpoint.level\" = [0, 1]\n[[grid]]\nmodel.hidden_size = 32\n",
    );
    let cells: Vec<(usize, usize)> = recipe
        .cells
        .iter()
        .map(|c| {
            let crate::model::Model::Swiglu(m) = &c.model else { panic!("another model") };
            (c.train.batch_size, m.hidden_size)
        })
        .collect();
    assert_eq!(cells, [(3, 8), (3, 8), (1, 32)]);
}

#[test]
fn a_cell_survives_its_json() {
    let text = "[checkpoint]\nlevel = 0.5\n[measure]\nmemory_limit = \"1 GiB\"\n[grid]\n\"train.optimizer\" = [{ kind = \"adamw\", lr = 0.01 }]\n";
    let cell = recipe(text).cells[0].clone();
    let again = Cell::from_json(&cell.to_json()).expect("what was written can be read");
    assert_eq!(again, cell);
    assert_eq!(cell.settings()["train.optimizer.kind"], "adamw");
    assert_eq!(cell.settings()["model.kind"], "swiglu");
}

#[test]
fn a_default_is_a_value_like_any_other() {
    let json = |text| recipe(text).cells[0].to_json();
    assert_eq!(json(""), json("[checkpoint]\nlevel = 0\n"));
    assert_ne!(json(""), json("[measure]\nsteps = 16\n"));
}

#[test]
fn an_unknown_key_names_the_nearest_one_with_its_place() {
    says(
        &BASE.replace("batch_size", "batchsize"),
        &["unknown key `batchsize`", "did you mean `batch_size`?", "r.toml:8:1", "batchsize = 1"],
    );
    // Each key of the table once, and none of another table's.
    let drawn = error(&BASE.replace("batch_size", "batchsize"));
    assert_eq!(drawn.matches(" schedule").count(), 1, "{drawn}");
    assert!(!drawn.contains("chunks"), "{drawn}");
    says(&BASE.replace("[train]", "[trian]"), &["unknown key `trian`", "did you mean `train`?"]);
    says(&BASE.replace("title", "titel"), &["unknown key `titel`", "did you mean `title`?", "r.toml:1:1"]);
    says(
        &format!("{BASE}[report]\nbasline = {{}}\n"),
        &["unknown key `basline`", "did you mean `baseline`?"],
    );
    says(
        &format!("{BASE}optimizer = {{ kind = \"adamw\", learning_rate = 1.0 }}\n"),
        &["unknown key `learning_rate`", "valid keys here: lr"],
    );
}

#[test]
fn what_is_of_the_whole_recipe_is_in_no_grid() {
    says(
        &format!("{BASE}[grid]\ntitle = [\"a\", \"b\"]\n"),
        &["`title` is of the whole recipe", "r.toml:11:1", "write it outside of grids"],
    );
    says(
        &format!("{BASE}[grid]\n\"report.baseline\" = [1]\n"),
        &["`report.baseline` is of the whole recipe"],
    );
}

#[test]
fn a_title_that_no_report_can_show_is_refused() {
    let titled = |title: &str| BASE.replacen(BASE.lines().next().expect("a title"), title, 1);
    says(&titled(r#"title = "a\u0000b""#), &["`title` holds the control character '\\0'", "remove it"]);
    says(&titled(r#"title = "a\u0085b""#), &["`title` holds the control character", "remove it"]);
    let stage = "[[ladder]]\nname = \"a\\uffffb\"\n";
    says(&format!("{BASE}{stage}"), &["`name` holds the control character", "remove it"]);
    assert_eq!(parse(&titled("title = \"\"\"two\nlines\"\"\"")).unwrap().title, "two\nlines");
}

#[test]
fn an_unknown_value_names_the_valid_ones() {
    says(
        &BASE.replace("\"swiglu\"", "\"swigul\""),
        &["unknown value `swigul`", "did you mean `swiglu`?", "r.toml:3:8"],
    );
    says(&format!("{BASE}[precision]\ncompute = \"int3\"\n"), &["unknown value `int3`", "fp32", "bf16"]);
    says(&format!("{BASE}[checkpoint]\nlevel = 2\n"), &["0, 0.5 or 1, not 2", "r.toml:11:9"]);
}

#[test]
fn missing_keys_are_named() {
    says(&BASE.replace("batch_size = 1\n", ""), &["the key `batch_size` is missing", "r.toml:7"]);
    says(&BASE.replace("kind = \"swiglu\"\n", ""), &["the key `kind` is missing in `model`", "r.toml:2"]);
    let rank = format!("{BASE}[tuning]\nrank = 8\n");
    says(&rank, &["the key `method` is missing in `tuning`", "which can be lora, qlora"]);
    says(&BASE.replace("title = \"t\"\n", ""), &["the key `title` is missing"]);
    says("title = \"t\"\n", &["the key `model` is missing"]);
}

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
fn results_of_a_device_that_is_not_here_can_be_read() {
    let source = Source { path: "r.toml".into(), text: format!("device = \"cuda:7\"\n{BASE}") };
    let recipe = Recipe::parse_finished(&source, false).expect("only running needs the device");
    assert_eq!(recipe.cells[0].device, "cuda:7");
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

#[test]
fn amounts_of_memory_read_and_print_in_their_units() {
    let limit =
        |text: &str| recipe(&format!("[measure]\nmemory_limit = {text}\n")).cells[0].measure.memory_limit;
    assert_eq!(limit("\"11 GiB\""), Some(Bytes(11 << 30)));
    assert_eq!(limit("\"1.5 gb\""), Some(Bytes(1_500_000_000)));
    assert_eq!(limit("4096"), Some(Bytes(4096)));
    assert_eq!(Bytes(1 << 30).to_string(), "1.00 GiB");
    assert_eq!(Bytes(1023).to_string(), "0.999 KiB".replace("0.999", "1.00"));
    assert_eq!(Bytes(512).to_string(), "512 B");
    assert_eq!(Bytes((11.5 * f64::from(1 << 20)) as u64).to_string(), "11.5 MiB");
}

/// Sections for the CPU replace the recipe's there and nowhere else, and are checked everywhere.
#[test]
fn sections_for_the_cpu_replace_the_recipes_own() {
    let text = format!(
        "{BASE}[grid]\n\"train.batch_size\" = [64, 128]\n\
         [on_cpu]\ntrain = {{ batch_size = 2, seq_len = 8 }}\n\
         [on_cpu.grid]\n\"checkpoint.level\" = [0, 0.5, 1]\n"
    );
    let source = Source { path: "r.toml".into(), text: text.clone() };
    let sizes = |on_cpu| -> Vec<usize> {
        let recipe = Recipe::parse_finished(&source, on_cpu).expect("a valid recipe");
        recipe.cells.iter().map(|cell| cell.train.batch_size).collect()
    };
    assert_eq!((sizes(true), sizes(false)), (vec![2; 3], vec![64, 128]));
    assert_eq!(Recipe::parse(&source).unwrap().cells.len(), if DeviceId::all().len() > 1 { 2 } else { 3 });
    says(&text.replace("checkpoint.level", "checkpoint.levle"), &["unknown key `levle`", "r.toml:15:1"]);
    says(&text.replace("\"train.batch_size\"", "\"train.batch\""), &["unknown key `batch`", "r.toml:11:1"]);
    says(&format!("on_cpu = 3\n{BASE}"), &["`on_cpu` must be a table of sections", "r.toml:1:1"]);
}

#[test]
fn the_cpu_may_stand_beside_one_gpu() {
    let of = |devices: &str| {
        let text = format!("{BASE}[grid]\ndevice = [{devices}]\n");
        Recipe::parse_finished(&Source { path: "r.toml".into(), text }, false)
    };
    assert!(of("\"cuda:0\", \"cpu\"").expect("a valid recipe").mixes_devices());
    assert!(!of("\"cpu\"").expect("a valid recipe").mixes_devices());
    let error = draw(&of("\"cuda:0\", \"cpu\", \"cuda:1\"").expect_err("two GPUs"));
    assert!(error.contains("runs on one GPU, and this one names cuda:0 and cuda:1"), "{error}");
}
