//! Which split a file belongs to by its name. What is named as held out is never trained on.

use std::path::{Component, Path};

use super::Split;

/// What a word ends with that says that it names a part of a data set: testset, valid_data, train1.
const PARTS: [&str; 4] = ["set", "data", "split", "file"];

impl Split {
    /// The split that a path speaks of, such as `wiki.valid.tokens`, `eval.jsonl` or `test/a.txt`; a path that speaks of
    /// none is for training. A file's name counts before its folders, and of these the nearest. A name that speaks of
    /// training and of a held-out split is held out; of a folder it says nothing.
    pub(super) fn from_path(path: &Path) -> Self {
        let mut names = names(path);
        let file = names.next().unwrap_or_default();
        let folders = names.filter(|splits| !splits.contains(&Self::Train));
        std::iter::once(file).chain(folders).find_map(held_out).unwrap_or(Self::Train)
    }
}

/// Whether a path speaks of a split.
pub fn names_split(path: &Path) -> bool {
    names(path).any(|splits| !splits.is_empty())
}

fn held_out(splits: Vec<Split>) -> Option<Split> {
    splits.into_iter().find(|split| *split != Split::Train)
}

/// The splits that a path's names speak of, the file first.
fn names(path: &Path) -> impl Iterator<Item = Vec<Split>> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    });
    names.map(|name| {
        let words = words(&name);
        let pairs = words.windows(2).map(|pair| pair.concat());
        pairs
            .filter_map(|pair| split_of_pair(&pair))
            .chain(words.iter().filter_map(|word| split_of_word(word)))
            .collect()
    })
}

/// The words of a name in lower case: `TrainSet-00000.v2` has train, set and v.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        let begins = c.is_uppercase() && before.is_lowercase();
        if begins || !c.is_alphabetic() {
            words.push(String::new());
        }
        if c.is_alphabetic() {
            words.last_mut().expect("never empty").extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn split_of_pair(pair: &str) -> Option<Split> {
    matches!(pair, "heldout" | "holdout").then_some(Split::HELD_OUT)
}

fn split_of_word(word: &str) -> Option<Split> {
    let stem = PARTS.iter().find_map(|part| word.strip_suffix(part)).filter(|stem| !stem.is_empty());
    match stem.unwrap_or(word) {
        "train" | "training" => Some(Split::Train),
        "valid" | "validation" | "validate" | "val" | "dev" | "devel" | "development" | "eval"
        | "evaluation" | "evaluate" | "heldout" | "holdout" => Some(Split::Valid),
        "test" | "tests" | "testing" => Some(Split::Test),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_speaks_of_its_split() {
        for (name, split) in [
            ("train.jsonl", Split::Train),
            ("train-00000-of-00002.jsonl", Split::Train),
            ("book.txt", Split::Train),
            ("latest.txt", Split::Train),
            ("value-devices.txt", Split::Train),
            ("eval.jsonl", Split::Valid),
            ("EVAL.txt", Split::Valid),
            ("evaluation/a.txt", Split::Valid),
            ("my-val-set.txt", Split::Valid),
            ("valid1.txt", Split::Valid),
            ("devset.txt", Split::Valid),
            ("held-out.txt", Split::Valid),
            ("held_out/a.txt", Split::Valid),
            ("holdout.txt", Split::Valid),
            ("wiki.validation.raw", Split::Valid),
            ("en/dev-clean/a.txt", Split::Valid),
            ("test-00000-of-00001.jsonl", Split::Test),
            ("TestSet2.txt", Split::Test),
            ("testdata.txt", Split::Test),
            ("test/a.txt", Split::Test),
            // The file counts before the folder, and what is held out before training.
            ("train/eval.txt", Split::Valid),
            ("test/valid.txt", Split::Valid),
            ("test/train.txt", Split::Test),
            ("train_eval.txt", Split::Valid),
            ("train-test-split/train.txt", Split::Train),
            ("train-test-split/test.txt", Split::Test),
            ("data/train/0001.txt", Split::Train),
        ] {
            assert_eq!(Split::from_path(Path::new(name)), split, "{name}");
        }
        assert!(names_split(Path::new("a/train.csv")) && !names_split(Path::new("dataset_infos.json")));
    }
}
