//! Cells that need other hardware than there is.

use super::*;

/// A cell on a GPU and one on the CPU, on a machine that `target` describes.
fn both(target: &str) -> Recipe {
    let text = testing::recipe().text.replace("device = \"cpu\"\n", "").replace(
        "\"train.batch_size\" = [1, 2, 3]",
        "device = [\"cuda:0\", \"cpu\"]\n\"measure.repeats\" = [2]",
    );
    let source = Source { path: "recipes/both.toml".into(), text };
    Recipe::parse_for(&source, &target.parse::<Target>().unwrap()).unwrap()
}

fn run(folder: &Path, recipe: &Recipe, options: &Options) -> (Summary, String) {
    let executor = MockExecutor::new(|_, _| finished());
    let (summary, log) = run_of(recipe, folder, &executor, options, &AtomicBool::new(false));
    (summary.unwrap(), log)
}

fn statuses(folder: &Path, recipe: &Recipe) -> Vec<Option<Status>> {
    let store = Store::open(folder, recipe, &testing::device()).unwrap();
    let loaded = store.load(&recipe.cells, &|_| ()).unwrap();
    loaded.rows.iter().map(|rows| rows[0].as_ref().map(|row| row.status)).collect()
}

/// On a machine of the same name that has the GPU the same folder goes on.
#[test]
fn a_cell_that_needs_other_hardware_is_a_skipped_row_until_a_machine_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let laptop = both("cpu");
    assert_eq!(laptop.elsewhere.keys().copied().collect::<Vec<_>>(), [0]);
    let (summary, log) = run(folder.path(), &laptop, &Options::default());
    assert_eq!(statuses(folder.path(), &laptop), [Some(Status::Skipped), Some(Status::Ok)]);
    assert_eq!(summary, Summary { ran: 2, ok: 2, elsewhere: 1, ..Summary::default() });
    assert_eq!((summary.exit_code(), log.contains("start 1")), (69, false));
    assert!(summary.to_string().ends_with("1 skipped for other hardware"), "{summary}");
    let (again, _) = run(folder.path(), &laptop, &Options { force: true, ..Options::default() });
    assert_eq!((again.ran, again.elsewhere), (2, 1), "what needs other hardware is not forced to run");

    // What a machine of the same name that has the GPU writes.
    let server = both("cuda, 8 GiB");
    assert!(server.elsewhere.is_empty());
    let store = Store::open(folder.path(), &server, &testing::device()).unwrap();
    let skipped = store.read(&store.key(&server.cells[0], &Inputs::new())).unwrap();
    assert!(Options::default().wants(Some(&skipped)), "that machine runs it");
    for repeat in 1..=2 {
        let row = Row::new(&server.cells[0], &testing::environment(), Status::Ok, String::new());
        store.save(&Row { repeat, measurement: Some(testing::measurement(1.0)), ..row }).unwrap();
    }
    assert_eq!(statuses(folder.path(), &laptop), [Some(Status::Ok); 2]);
    let (summary, _) = run(folder.path(), &laptop, &Options::default());
    assert_eq!(summary, Summary { finished_earlier: 4, ok: 4, ..Summary::default() }, "and its row stays");
}

/// The row comes from a machine of the same name without the hardware.
#[test]
fn a_cell_that_another_machine_skips_meanwhile_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = testing::recipe();
    let store = Store::open(folder.path(), &recipe, &testing::device()).unwrap();
    let executor = MockExecutor::new(|_, _| {
        let reason = "not here".to_string();
        let row = Row::new(&recipe.cells[1], &testing::environment(), Status::Skipped, reason);
        store.save_skipped(&row).unwrap();
        finished()
    });
    let (summary, _) = super::run(folder.path(), &executor, &Options::default());
    assert_eq!(summary.unwrap(), Summary { ran: 3, ok: 3, ..Summary::default() });
    assert_eq!(statuses(folder.path(), &recipe), [Some(Status::Ok); 3]);
}

/// Then there is nothing to sweep.
#[test]
fn a_recipe_of_which_nothing_can_run_is_an_error() {
    let text = testing::recipe().text.replace("device = \"cpu\"", "device = \"cuda:0\"");
    let source = Source { path: "recipes/gpu.toml".into(), text };
    let error = Recipe::parse_for(&source, &"cpu".parse::<Target>().unwrap()).unwrap_err();
    assert!(error.to_string().contains("the device \"cuda:0\" is not there"), "{error}");
}
