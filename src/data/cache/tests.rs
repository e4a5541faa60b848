//! Tokens are made once for all that want them, whatever happens to their file.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::samples::{Encoded, Token};
use super::*;

fn store(first: u32) -> Store {
    let mut store = Store::empty();
    store.push(&Encoded {
        tokens: (first..first + LEAST as u32).map(Token::learned).collect(),
        last_label: Some(3),
    });
    store
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|ending| ending == "tokens")).collect()
}

#[test]
fn tokens_are_made_once_and_again_if_their_file_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("below");
    let made = Cell::new(0);
    let of = |name: &str, first: u32| {
        let make = || {
            made.set(made.get() + 1);
            Ok(store(first))
        };
        remembered(&folder, name, make).unwrap()
    };
    assert_eq!(of("a", 0).tokens(), store(0).tokens());
    assert_eq!((of("a", 7).tokens(), made.get()), (store(0).tokens(), 1));
    assert_eq!((of("b", 7).tokens(), made.get()), (store(7).tokens(), 2));
    let file = folder.join("a.tokens");
    let whole = fs::read(&file).unwrap();
    // Cut, changed, empty, and another's.
    let changed = [&whole[..500], &[!whole[500]], &whole[501..]].concat();
    for (i, damaged) in [&whole[..whole.len() - 1], &changed, b"", b"text"].into_iter().enumerate() {
        fs::write(&file, damaged).unwrap();
        assert_eq!((of("a", 0).tokens(), made.get()), (store(0).tokens(), 3 + i));
        assert_eq!(fs::read(&file).unwrap(), whole);
    }
    assert_eq!(files_of(&folder).len(), 2);
}

#[test]
fn an_error_is_not_remembered_and_few_tokens_are_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let error = || Err(DataError::new("broken"));
    assert_eq!(remembered(folder.path(), "a", error).err().unwrap().to_string(), "broken");
    let mut few = Store::empty();
    few.push(&Encoded { tokens: vec![Token::given(1)], last_label: None });
    assert_eq!(remembered(folder.path(), "a", || Ok(few)).unwrap().tokens(), [Token::given(1)]);
    assert!(files_of(folder.path()).is_empty());
    assert_eq!(remembered(folder.path(), "a", || Ok(store(5))).unwrap().tokens(), store(5).tokens());
    assert_eq!(files_of(folder.path()).len(), 1);
}

/// A folder that cannot be made, and a file that cannot be written, as on a full disk.
#[test]
fn without_a_place_for_them_tokens_are_made_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let none = folder.path().join("file").join("below");
    assert_eq!(remembered(&none, "a", || Ok(store(1))).unwrap().tokens(), store(1).tokens());
    assert_eq!(remembered(Path::new("/dev/full"), "a", || Ok(store(2))).unwrap().tokens(), store(2).tokens());
    fs::create_dir(folder.path().join("b.tokens")).unwrap();
    assert_eq!(remembered(folder.path(), "b", || Ok(store(3))).unwrap().tokens(), store(3).tokens());
    // Nothing unfinished is left.
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn of_several_at_once_one_makes_the_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let made = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let make = || {
                    made.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    Ok(store(9))
                };
                assert_eq!(remembered(folder.path(), "a", make).unwrap().tokens(), store(9).tokens());
            });
        }
    });
    assert_eq!(made.into_inner(), 1);
}

#[test]
fn what_nobody_uses_goes_after_a_month() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| remembered(folder.path(), name, || Ok(store(1))).unwrap();
    let month = 31 * files::STALE;
    for name in ["a", "b"] {
        of(name);
        let file = File::open(folder.path().join(name).with_extension("tokens")).unwrap();
        file.set_modified(SystemTime::now() - month).unwrap();
    }
    // Used again.
    let mapped = of("a");
    of("c");
    let mut names: Vec<_> =
        files_of(folder.path()).iter().map(|path| path.file_stem().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["a", "c"]);
    assert_eq!(mapped.tokens(), store(1).tokens());
}

#[test]
fn a_key_is_all_that_decides_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let (a, b) = (file("a", "one"), file("b", "one"));
    let name = |files: &[&PathBuf]| {
        let files: Vec<PathBuf> = files.iter().map(|path| path.to_path_buf()).collect();
        Key::new().with("learn", "all").with_files(&files).map(|key| key.name())
    };
    let names = [name(&[&a]), name(&[&b]), name(&[&a, &b]), name(&[&b, &a]), name(&[])];
    assert!(
        names.iter().all(Option::is_some) && (1..5).all(|i| !names[..i].contains(&names[i])),
        "{names:?}"
    );
    assert_eq!(name(&[&a]), names[0]);
    // Wherever they are.
    let moved = tempfile::tempdir().unwrap();
    let moved = ["a", "b"].map(|name| {
        fs::copy(folder.path().join(name), moved.path().join(name)).unwrap();
        moved.path().join(name)
    });
    assert_eq!(name(&[&moved[0], &moved[1]]), names[2]);
    file("a", "two");
    assert_ne!(name(&[&a]), names[0]);
    assert_eq!(name(&[&folder.path().join("c")]), None);
    let of = |pairs: &[(&str, &str)]| {
        pairs.iter().fold(Key::new(), |key, (name, value)| key.with(name, value)).name()
    };
    assert_ne!(of(&[("ab", "c")]), of(&[("a", "bc")]));
    assert_ne!(of(&[("a", "b"), ("c", "d")]), of(&[("c", "d"), ("a", "b")]));
}

#[test]
fn the_library_is_the_one_that_is_built_in() {
    let lock = include_str!("../../../Cargo.lock");
    let (name, version) = key::TOKENIZERS.split_once(' ').expect("two words");
    let package = format!("name = \"{name}\"\nversion = \"{version}\"");
    assert!(lock.contains(&package), "{package} in Cargo.lock: TOKENIZERS names what makes tokens");
}
