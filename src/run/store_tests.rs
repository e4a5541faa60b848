//! Rows on disk: whole, damaged, foreign, and folders that cannot be written to.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::*;
use crate::common::files::STALE;
use crate::row::{FORMAT, Status};
use crate::run::testing;

#[path = "store_earlier_tests.rs"]
mod earlier;

fn open(root: &Path) -> Store {
    Store::open(root, &testing::recipe(), &testing::device()).unwrap()
}

fn row(position: usize) -> Row {
    let cell = &testing::recipe().cells[position];
    let row = Row::new(cell, &testing::environment(), Status::Ok, String::new());
    Row { measurement: Some(testing::measurement(1.0)), ..row }
}

fn load(store: &Store) -> Loaded {
    store.load(&testing::recipe().cells, &|_| {}).unwrap()
}

/// Positions of the cells that have a row.
fn there(loaded: &Loaded) -> Vec<usize> {
    (0..loaded.rows.len()).filter(|i| loaded.rows[*i][0].is_some()).collect()
}

fn path(store: &Store, position: usize) -> PathBuf {
    store.row_path(&row(position).key)
}

/// A row whose learning rate came back another one would have another key, and its cell would be measured each time.
#[test]
fn numbers_are_read_back_to_the_last_bit() {
    for number in [0.123_573_452_234_268_19_f64, 0.000_111_147_491_002_383_05, 0.000_951_017_001_658_572_5] {
        let text = serde_json::to_string(&number).unwrap();
        assert_eq!(serde_json::from_str::<f64>(&text).unwrap().to_bits(), number.to_bits(), "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value.as_f64().unwrap().to_bits(), number.to_bits(), "{text}");
    }
}

#[test]
fn a_saved_row_is_loaded() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    assert_eq!(store.folder(), root.path().join("three/cpu-test-1-ghz"));
    assert_eq!(fs::read_to_string(store.folder().join(RECIPE)).unwrap(), testing::recipe().text);
    store.save(&row(1)).unwrap();
    let loaded = load(&store);
    assert_eq!(loaded.rows, [[None], [Some(row(1))], [None]]);
    assert!(loaded.notices.is_empty(), "{:?}", loaded.notices);
    assert_eq!(store.peek(&testing::recipe().cells, &|_| {}).unwrap(), loaded.rows);
    assert_eq!(store.read(&row(1).key), Some(row(1)));
    assert_eq!(store.read(&row(0).key), None);
    let mode = fs::metadata(path(&store, 1)).unwrap().permissions().mode();
    let plain = root.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert_eq!(mode, fs::metadata(plain).unwrap().permissions().mode(), "as readable as any new file");
}

#[test]
fn a_damaged_row_is_moved_aside_and_missing() {
    let other_cell = serde_json::to_string(&Row { cell: row(1).cell, ..row(0) }).unwrap();
    let whole = serde_json::to_string(&row(0)).unwrap();
    let other_key = serde_json::to_string(&row(1)).unwrap();
    let without_result = serde_json::to_string(&Row { measurement: None, ..row(0) }).unwrap();
    for (text, why) in [
        (&whole[..whole.len() / 2], "not a whole row"),
        ("", "not a whole row"),
        ("[1, 2]", "not a row"),
        (other_key.as_str(), "its name is"),
        (other_cell.as_str(), "another cell"),
        (without_result.as_str(), "its status is ok"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path());
        store.save(&row(2)).unwrap();
        fs::write(path(&store, 0), text).unwrap();
        assert_eq!(store.read(&row(0).key), None);
        let loaded = load(&store);
        assert_eq!(there(&loaded), [2], "{why}");
        assert_eq!(loaded.notices.len(), 1);
        assert!(loaded.notices[0].contains(why), "{:?}", loaded.notices);
        assert!(loaded.notices[0].contains(&row(0).key), "names the file: {:?}", loaded.notices);
        let aside = path(&store, 0).with_added_extension("damaged");
        assert_eq!(fs::read_to_string(aside).unwrap(), text, "kept as it was");
        assert!(load(&store).notices.is_empty(), "one notice");
    }
}

#[test]
fn rows_of_other_formats_and_recipes_stay_untouched() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let mut old_format = serde_json::to_value(row(0)).unwrap();
    old_format["format"] = (FORMAT + 1).into();
    old_format["status"] = "a word this version does not know".into();
    fs::write(path(&store, 0), old_format.to_string()).unwrap();
    let mut old_version = serde_json::to_value(row(1)).unwrap();
    old_version["environment"]["runner_version"] = "0.0.1".into();
    old_version["status"] = "a word this version does not know".into();
    fs::write(path(&store, 1), old_version.to_string()).unwrap();
    store.save(&row(2)).unwrap();

    let loaded = store.load(&testing::recipe().cells[..2], &|_| {}).unwrap();
    assert_eq!(loaded.rows, [[None], [None]]);
    let [newer, others] = loaded.notices.as_slice() else { panic!("{:?}", loaded.notices) };
    assert!(
        newer.contains(".json and 1 more row are of other versions of the runner and are left as they are"),
        "{newer}"
    );
    assert_eq!(others, "1 row of another cell or of other input files was left as it is");
    assert_eq!(fs::read_to_string(path(&store, 0)).unwrap(), old_format.to_string());
    assert_eq!(fs::read_to_string(path(&store, 1)).unwrap(), old_version.to_string());
}

/// By what was measured; neither the build nor the name of the file counts.
#[test]
fn a_row_of_another_build_is_a_finished_row() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let mut old = Row { key: "0123456789abcdef".into(), inputs: None, ..row(0) };
    (old.environment.commit, old.environment.build) = ("0123456789ab".into(), String::new());
    old.environment.runner_version = "0.0.1".into();
    store.save(&old).unwrap();
    assert_eq!(load(&store).rows, [[Some(old.clone())], [None], [None]]);
    assert_eq!(Results::open(store.folder()).unwrap().rows, [old.clone()], "and is reported");

    let mut newer = row(0);
    newer.environment.date = "2030-01-01T00:00:00Z".into();
    store.save(&newer).unwrap();
    let loaded = load(&store);
    assert_eq!(loaded.rows, [[Some(newer)], [None], [None]], "the newest counts");
    assert_eq!(loaded.notices, ["1 row of another cell or of other input files was left as it is"]);
    for (device, cell) in [("another device", row(0).cell), (testing::device().name.as_str(), row(1).cell)] {
        let mut other = Row { key: "fedcba9876543210".into(), cell, inputs: None, ..row(0) };
        other.environment.device.name = device.into();
        other.environment.date = "2040-01-01T00:00:00Z".into();
        store.save(&other).unwrap();
        assert_ne!(load(&store).rows[0], [Some(other)]);
    }
}

/// A recipe that asks for fewer processes than a cell has: the run's report counts all of them, as `runner report` does.
#[test]
fn a_report_counts_every_process_of_a_cell() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for repeat in 1..=3 {
        store.save(&Row { repeat, ..row(0) }).unwrap();
    }
    let loaded = load(&store);
    assert_eq!(loaded.rows, [[Some(row(0))], [None], [None]]);
    assert_eq!(loaded.notices, Vec::<String>::new());
    let reported = store.results(&testing::recipe(), &|_| {}).unwrap();
    assert_eq!(reported.rows.iter().map(|row| row.repeat).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(reported.rows, Results::open(store.folder()).unwrap().rows);
}

/// The rows that are published with the project are finished ones for this version too.
#[test]
fn committed_rows_are_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let folders = walkdir::WalkDir::new(&root).into_iter().map(|entry| entry.unwrap().into_path());
    let mut count = 0;
    for folder in folders.filter(|path| path.join(RECIPE).is_file()) {
        let results = Results::open(&folder).unwrap();
        assert!(results.notices.is_empty(), "{}: {:?}", folder.display(), results.notices);
        for row in &results.rows {
            let cell = Cell::from_json(&row.cell).unwrap();
            assert_eq!(cell.to_json(), row.cell, "{}: {} is whole", folder.display(), row.key);
        }
        count += results.rows.len();
    }
    assert!(count >= 200, "{count} rows");
}

#[test]
fn unfinished_files_are_ignored_and_removed_after_a_day() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let [old, young] = ["old", "young"].map(|name| store.rows().join(format!(".writing-{name}.tmp")));
    for path in [&old, &young] {
        fs::write(path, "{").unwrap();
    }
    let past = std::time::SystemTime::now() - 2 * STALE;
    File::options().write(true).open(&old).unwrap().set_modified(past).unwrap();
    let loaded = load(&open(root.path()));
    assert!(there(&loaded).is_empty() && loaded.notices.is_empty());
    assert!(!old.exists() && young.exists());
}

#[test]
fn a_file_in_the_way_is_an_error_before_anything_is_measured() {
    let root = tempfile::tempdir().unwrap();
    for in_the_way in ["results", "results/three", "results/three/cpu-test-1-ghz/rows"] {
        let folder = tempfile::tempdir_in(root.path()).unwrap();
        let path = folder.path().join(in_the_way);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        let results = folder.path().join("results");
        let error = Store::open(&results, &testing::recipe(), &testing::device()).unwrap_err();
        let text = format!("{error} {}", error.help().unwrap());
        assert!(text.contains(&results.display().to_string()), "{text}");
        assert!(text.contains("another results folder"), "{text}");
    }
}

/// /proc takes no new folders, not even from root.
#[test]
fn a_folder_that_takes_no_files_is_an_error() {
    let error = Store::open(Path::new("/proc"), &testing::recipe(), &testing::device()).unwrap_err();
    assert!(error.to_string().contains("cannot write results to /proc/three"), "{error}");
}

#[test]
fn a_save_that_fails_keeps_the_earlier_row() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.save(&row(0)).unwrap();
    // A folder in the row's place: the rename fails after everything was written.
    fs::create_dir(path(&store, 1)).unwrap();
    store.save(&row(1)).unwrap_err();
    assert_eq!(store.read(&row(0).key), Some(row(0)));
    let left: Vec<_> = fs::read_dir(store.rows()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "nothing unfinished stays: {left:?}");
}

#[test]
fn a_results_folder_is_read_without_writing() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.save(&row(2)).unwrap();
    store.save(&row(0)).unwrap();
    fs::write(path(&store, 1), "{").unwrap();
    let before = listing(store.folder());
    let results = Results::open(store.folder()).unwrap();
    assert_eq!(results.rows, [row(0), row(2)], "in the order of the cells");
    assert_eq!(results.recipe.name(), "three");
    assert!(results.notices.len() == 1 && results.notices[0].contains("left out"), "{:?}", results.notices);
    assert_eq!(listing(store.folder()), before);

    let error = Results::open(root.path()).unwrap_err().to_string();
    assert!(error.contains("not a results folder"), "{error}");
}

fn listing(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = [folder.to_path_buf(), folder.join(ROWS)]
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()))
        .collect();
    paths.sort();
    paths
}
