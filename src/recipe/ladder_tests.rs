//! Ladders: which cells they make, and what is refused where.

use super::tests::{BASE, draw, recipe, says};
use super::*;

const LADDER: &str = "[[ladder]]\nname = \"plain\"\n[[ladder]]\nname = \"larger\"\nwhy = \"w\"\n\
    set = { \"train.batch_size\" = 2, checkpoint.level = 0.5 }\n[[ladder]]\nname = \"recomputed\"\n\
    set = { \"checkpoint.level\" = 1 }\n";

#[test]
fn each_rung_of_a_ladder_adds_to_those_before_it() {
    let ladder = recipe(LADDER);
    let cells: Vec<(usize, f64)> =
        ladder.cells.iter().map(|cell| (cell.train.batch_size, cell.checkpoint.level.number())).collect();
    assert_eq!(cells, [(1, 0.0), (2, 0.5), (2, 1.0)]);
    let stages: Vec<(&str, &str)> =
        ladder.report.ladder.iter().map(|stage| (stage.name.as_str(), stage.why.as_str())).collect();
    assert_eq!(stages, [("plain", ""), ("larger", "w"), ("recomputed", "")]);
    // The same cells as those of a grid that repeats the settings of every rung before.
    let grids = recipe(
        "[[grid]]\n\"train.batch_size\" = 1\n[[grid]]\n\"train.batch_size\" = 2\n\"checkpoint.level\" = 0.5\n\
         [[grid]]\n\"train.batch_size\" = 2\n\"checkpoint.level\" = 1\n",
    );
    let json = |recipe: &Recipe| recipe.cells.iter().map(Cell::to_json).collect::<Vec<_>>();
    assert_eq!(json(&ladder), json(&grids));
}

/// The rungs of a training loop without waste, with every setting of the rungs before written out.
#[test]
fn the_ladder_of_the_training_loop_has_the_cells_that_were_measured() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let load = |path: &str| Recipe::parse_finished(&Source::read(&root.join(path)).unwrap(), false).unwrap();
    let ladder = load("recipes/pipeline_ladder.toml");
    let measured = load("results/pipeline_ladder/h100-80gb-hbm3/recipe.toml");
    assert_eq!(ladder.cells, measured.cells);
    let stages = |recipe: &Recipe| -> Vec<[String; 2]> {
        recipe.report.ladder.iter().map(|stage| [stage.name.clone(), stage.why.clone()]).collect()
    };
    assert_eq!(stages(&ladder), stages(&measured));
    assert_eq!(ladder.cells.len(), 8);
}

/// As copies of recipes of earlier versions have it.
#[test]
fn a_rung_may_have_its_name_as_stage() {
    assert_eq!(recipe(&LADDER.replace("name", "stage")).report.ladder[1].name, "larger");
}

#[test]
fn a_table_of_a_grid_names_its_cells() {
    let named = recipe(
        "[[grid]]\nname = \"keep all\"\n\"train.batch_size\" = [1, 2]\n\
         [[grid]]\n\"checkpoint.level\" = 1\n",
    );
    assert_eq!(named.names, ["keep all", "keep all", ""]);
    let grid = |name: &str| format!("{BASE}[grid]\nname = {name}\n\"train.batch_size\" = [1, 2]\n");
    for wrong in ["\"\"", "3", "\"a\\nb\"", "[\"a\", \"b\"]"] {
        says(&grid(wrong), &["a `name` of cells is no text", "r.toml:"]);
    }
    says(&grid("\"x\"").replace("name", "names"), &["names"]);
}

#[test]
fn a_wrong_ladder_is_refused_where_it_is_wrong() {
    says(
        &format!("{BASE}[grid]\n\"train.batch_size\" = [1, 2]\n{LADDER}"),
        &["`grid` and `ladder` both say", "r.toml:10"],
    );
    says(&format!("ladder = 3\n{BASE}"), &["`ladder` must be a list of tables", "r.toml:1:1"]);
    says(
        &format!("{BASE}{}", LADDER.replace("= 1 }", "= [0, 1] }")),
        &["2 values of `checkpoint.level`", "r.toml:18:9"],
    );
    says(
        &format!("{BASE}{}", LADDER.replace("\"larger\"", "\"lar\\nger\"")),
        &["line break or another control character"],
    );
    says(
        &format!("{BASE}{}", LADDER.replace("batch_size", "batchsize")),
        &["did you mean `batch_size`?", "r.toml:15:9"],
    );
    says(
        &format!("{BASE}{}", LADDER.replace("= 1 }", "= 0.5 }")),
        &["cell 3 is the same as cell 2", "rung \"recomputed\""],
    );
    says(&format!("{BASE}{}", LADDER.replace("why", "wyh")), &["unknown key `wyh`", "did you mean `why`?"]);
    says(&format!("{BASE}[[ladder]]\nset = {{}}\n"), &["the key `name` is missing"]);
}

#[test]
fn a_grid_for_the_cpu_takes_the_place_of_a_ladder() {
    let text = format!("{BASE}{LADDER}[on_cpu.grid]\n\"train.batch_size\" = [3, 4]\n");
    let source = Source { path: "r.toml".into(), text };
    let count = |on_cpu| Recipe::parse_finished(&source, on_cpu).expect("a valid recipe").cells.len();
    assert_eq!((count(true), count(false)), (2, 3));
    // A setting that makes rungs alike leaves one of them.
    let set = ["checkpoint.level=0".parse().unwrap()];
    let source = Source { path: "r.toml".into(), text: format!("{BASE}{LADDER}") }.with(&set);
    let recipe = Recipe::parse(&source).unwrap_or_else(|e| panic!("{}", draw(&e)));
    assert_eq!((recipe.cells.len(), recipe.report.ladder.len()), (2, 2));
}
