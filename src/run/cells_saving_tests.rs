//! What is there when a row cannot be saved, and after it was.

use super::*;

#[test]
fn a_row_that_cannot_be_saved_is_printed_and_the_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = testing::recipe();
    let store = Store::open(folder.path(), &recipe, &testing::device()).unwrap();
    let second = store.row_path(&store.key(&recipe.cells[1], &Inputs::new()));
    // A folder in the row's place, made after the rows were read: the rename fails.
    let executor = MockExecutor::new(|batch, _| {
        if batch == 2 {
            std::fs::create_dir(&second).unwrap();
        }
        finished()
    });
    let (summary, log) = run(folder.path(), &executor, &Options::default());
    let error = summary.unwrap_err();
    assert!(error.to_string().contains(&second.display().to_string()), "{error}");
    assert!(error.help().unwrap().to_string().contains("free some space"));
    let line = log.lines().find(|line| line.starts_with('{')).expect("the row's JSON is printed");
    let row: Row = serde_json::from_str(line).unwrap();
    assert_eq!(
        (row.key, row.measurement),
        (store.key(&recipe.cells[1], &Inputs::new()), Some(testing::measurement(1.0)))
    );
    assert!(log.ends_with("over"), "{log}");
    assert_eq!(executor.take_ran(), [1, 2], "the run stops");
    assert_eq!(statuses(folder.path()), [Some(Status::Ok), None, None]);
}

/// A cell's states are there until its row is, and `--force` begins without them.
#[test]
fn states_stay_until_the_row_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"gpt2\"\nvocab_size = 50\nhidden_size = 8\n\
         num_hidden_layers = 1\nnum_attention_heads = 2\n[train]\nbatch_size = 1\nseq_len = 4\n\
         optimizer = {{ kind = \"sgd\", lr = 0.1 }}\n[save]\nstate = \"{}\"\nevery = 2\n",
        state.display()
    );
    let recipe = Recipe::parse(&Source { path: "recipes/kept.toml".into(), text }).unwrap();
    let save = || {
        std::fs::create_dir_all(state.join("step-2")).unwrap();
        std::fs::write(state.join("step-2/progress.toml"), "").unwrap();
    };
    let store = Store::open(folder.path(), &recipe, &testing::device()).unwrap();
    let row = store.row_path(&store.key(&recipe.cells[0], &Inputs::new()));
    let in_the_way = MockExecutor::new(|_, _| {
        save();
        std::fs::create_dir(&row).unwrap();
        finished()
    });
    let run = |executor: &dyn Executor, force| {
        let options = Options { force, ..Options::default() };
        run_of(&recipe, folder.path(), executor, &options, &AtomicBool::new(false)).0
    };
    assert!(run(&in_the_way, false).is_err() && state.exists(), "without a row it is needed");
    std::fs::remove_dir(&row).unwrap();
    run(&MockExecutor::new(|_, _| finished()), false).unwrap();
    assert!(!state.exists(), "the row is there");
    save();
    let anew = MockExecutor::new(|_, _| {
        assert!(!state.exists(), "everything is measured again");
        finished()
    });
    assert_eq!(run(&anew, true).unwrap().ran, 1);
}
