//! Recipes: what expands to which cells, and unknown keys.

mod refused;

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
    says(
        &BASE.replace("[train]", "[train]\nepochs = 3"),
        &["unknown key `epochs`", "did you mean `measure.epochs`?"],
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
fn results_of_a_device_that_is_not_here_can_be_read() {
    let source = Source { path: "r.toml".into(), text: format!("device = \"cuda:7\"\n{BASE}") };
    let recipe = Recipe::parse_finished(&source, false).expect("only running needs the device");
    assert_eq!(recipe.cells[0].device, "cuda:7");
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
