//! Rows of the format before this one.

use super::*;

/// What the format before this one wrote: no defaults, and a key of the cell without them.
fn row_of_format_1(position: usize) -> Value {
    let row = row(position);
    let mut cell = row.cell.clone();
    for (section, key) in [("train", "accumulation_steps"), ("train", "schedule"), ("train", "clip_norm")] {
        cell[section].as_object_mut().unwrap().remove(key);
    }
    for section in ["offload", "eval", "data"] {
        cell.as_object_mut().unwrap().remove(section);
    }
    let key = key(&cell, &row.environment.device.name, &Inputs::new());
    assert_ne!(key, row.key);
    let mut old = serde_json::to_value(&row).unwrap();
    (old["format"], old["cell"], old["key"]) = (1.into(), cell, key.into());
    old
}

#[test]
fn a_folder_of_the_format_before_is_complete() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for position in 0..3 {
        let old = row_of_format_1(position);
        fs::write(store.row_path(old["key"].as_str().unwrap()), old.to_string()).unwrap();
    }
    let before = listing(store.folder());
    let loaded = load(&store);
    assert!(loaded.notices.is_empty(), "{:?}", loaded.notices);
    for (position, found) in loaded.rows.into_iter().enumerate() {
        let old = row_of_format_1(position);
        let found = found.into_iter().flatten().next().expect("a finished row");
        assert_eq!((&found.cell, found.key.as_str()), (&row(position).cell, old["key"].as_str().unwrap()));
    }
    assert_eq!(Results::open(store.folder()).unwrap().rows.len(), 3);
    assert_eq!(listing(store.folder()), before, "the files stay as they are");
    // A cell that nothing can be made of is another one's, and a newer format is not guessed.
    let mut strange = row_of_format_1(1);
    strange["cell"]["train"]["speed"] = 3.into();
    strange["key"] = key(&strange["cell"], &row(1).environment.device.name, &Inputs::new()).into();
    let mut newer = serde_json::to_value(row(2)).unwrap();
    newer["format"] = (FORMAT + 1).into();
    for row in [strange, newer] {
        let at = store.row_path(row["key"].as_str().unwrap());
        fs::write(at, row.to_string()).unwrap();
    }
    assert!(
        load(&store).notices[0].contains("and 1 more row are of other versions"),
        "{:?}",
        load(&store).notices
    );
    assert_eq!(there(&load(&store)), [0, 1, 2]);
}
