//! Corpora: what is read as which split, and what is refused.

use super::*;

const WIKI: &str = " \n = First article = \n \n A line . \n \n = = Section = = \n \n x = y = z \n \
                    Another line . \n \n = Second = \n \n Text . \n";

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn wikitext_is_split_at_titles() {
    let folder = folder(&[("wiki.valid.tokens", WIKI), ("wiki.test.tokens", " \n = Only = \n \n Text . \n")]);
    let corpus = Corpus::open(folder.path()).unwrap();
    let valid = corpus.documents(Split::Valid).unwrap();
    assert_eq!(valid.len(), 2);
    assert!(valid[0].starts_with("= First article =") && valid[0].ends_with("Another line ."));
    assert!(valid[0].contains("= = Section = ="));
    assert_eq!(valid[1], "= Second = \n \n Text .");
    let paragraphs = corpus.paragraphs(Split::Valid).unwrap();
    assert_eq!(paragraphs, ["A line .", "x = y = z", "Another line .", "Text ."]);
    assert_eq!(corpus.documents(Split::Test).unwrap().len(), 1);
    let message = corpus.documents(Split::Train).unwrap_err().to_string();
    assert!(message.contains("no text for \"train\"") && message.contains("wiki.train.tokens"), "{message}");
    assert!(message.contains("wiki.valid.tokens"), "{message}");
}

#[test]
fn text_files_are_documents_unless_they_mark_the_ends_of_theirs() {
    let folder = folder(&[
        ("b.txt", "One\n\nstory.\n"),
        ("a.txt", "First<|endoftext|>\nSecond\n<|endoftext|>\n"),
        ("test/c.txt", "Third"),
        ("README.md", "not text of the corpus"),
        ("my-val-set.txt", "Fourth"),
    ]);
    let corpus = Corpus::open(folder.path()).unwrap();
    assert_eq!(corpus.documents(Split::Train).unwrap(), ["First", "Second", "One\n\nstory."]);
    assert_eq!(corpus.documents(Split::Test).unwrap(), ["Third"]);
    assert_eq!(corpus.documents(Split::Valid).unwrap(), ["Fourth"]);
    let one = Corpus::open(&folder.path().join("b.txt")).unwrap();
    assert_eq!(one.documents(Split::Train).unwrap(), ["One\n\nstory."]);
}

#[test]
fn json_lines_have_text_or_questions() {
    let folder = folder(&[
        ("train.jsonl", "{\"question\": \"1+1?\", \"answer\": \"2\"}\n\n{\"text\": \"T\"}\n"),
        ("test.jsonl", "{\"text\": \"U\"}\n{\"body\": 1}"),
    ]);
    let corpus = Corpus::open(folder.path()).unwrap();
    assert_eq!(corpus.documents(Split::Train).unwrap(), ["1+1?\n2", "T"]);
    let message = corpus.documents(Split::Test).unwrap_err().to_string();
    assert!(message.contains("test.jsonl, line 2: expected the column `text`"), "{message}");
}

#[test]
fn a_record_is_one_sample_of_either_kind() {
    let folder =
        folder(&[("train.jsonl", "{\"text\": \"a\\n  b\"}\n{\"question\": \"c\", \"answer\": \"d\"}\n")]);
    let corpus = Corpus::open(folder.path()).unwrap();
    assert_eq!(corpus.paragraphs(Split::Train).unwrap(), ["a\n  b", "c\nd"]);
    assert_eq!(corpus.documents(Split::Train).unwrap(), corpus.paragraphs(Split::Train).unwrap());
}

#[test]
fn hidden_files_are_no_text() {
    let folder = folder(&[
        ("a.txt", "seen"),
        (".b.txt", "x"),
        ("._a.txt", "x"),
        (".ipynb_checkpoints/a-checkpoint.txt", "x"),
        ("c/.git/train.txt", "x"),
        (".cache/train.csv", "x"),
    ]);
    let corpus = Corpus::open(folder.path()).unwrap();
    assert_eq!(corpus.documents(Split::Train).unwrap(), ["seen"]);
    // Unless it is what the user names.
    let hidden = Corpus::open(&folder.path().join("c/.git")).unwrap();
    assert_eq!(hidden.documents(Split::Train).unwrap(), ["x"]);
}

#[test]
fn what_is_held_out_by_its_name_is_not_trained_on() {
    let folder =
        folder(&[("train.txt", "a"), ("eval.txt", "b"), ("train/heldout.txt", "c"), ("test-00000.txt", "d")]);
    let corpus = Corpus::open(folder.path()).unwrap();
    assert_eq!(corpus.documents(Split::Train).unwrap(), ["a"]);
    assert_eq!(corpus.documents(Split::Valid).unwrap(), ["b", "c"]);
    let one = Corpus::open(&folder.path().join("eval.txt")).unwrap();
    assert!(one.require(Split::Train).unwrap_err().to_string().contains("no text for \"train\""));
}

#[test]
fn data_that_is_not_read_is_named_with_what_to_do() {
    let folder = folder(&[
        ("b.arrow", "x"),
        ("c.xlsx", "x"),
        ("d.parquet.gz", ""),
        ("e.md", "x"),
        ("f", "x"),
        ("dataset_infos.json", "{}"),
    ]);
    let open = |name: &str| Corpus::open(&folder.path().join(name)).unwrap_err().to_string();
    for (name, advice) in [
        ("b.arrow", "write its records into a .parquet or .jsonl file"),
        ("c.xlsx", "write its records into a .parquet or .jsonl file"),
        ("d.parquet.gz", "decompress it"),
        ("e.md", "if it is plain text, name it .txt"),
        ("f", "if it is plain text, name it .txt"),
        // Of a folder without data the first is named.
        ("", "b.arrow is not read"),
    ] {
        let message = open(name);
        assert!(
            message.contains("is not read: a corpus has files that end in .txt, .tokens, .raw, .jsonl"),
            "{message}"
        );
        assert!(message.contains(advice), "{message}");
    }
    // Beside data only what is named as a split.
    std::fs::write(folder.path().join("train.txt"), "x").unwrap();
    let files = Corpus::open(folder.path()).unwrap().files(&[Split::Train, Split::Valid, Split::Test]);
    assert_eq!(files.len(), 1, "what describes a data set is none of its files");
    std::fs::write(folder.path().join("test.arrow"), "x").unwrap();
    assert!(open("").contains("test.arrow is not read"));
}

#[test]
fn what_is_no_corpus_is_named() {
    let folder = folder(&[("notes.md", "x")]);
    let message = Corpus::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("holds no data: a corpus has files that end in .txt"), "{message}");
    let message = Corpus::open(Path::new("no/such")).unwrap_err().to_string();
    assert!(message.contains("cannot read the corpus no/such"), "{message}");
    std::fs::write(folder.path().join("a.txt"), [0xff, 0xfe]).unwrap();
    let message = Corpus::open(folder.path()).unwrap().documents(Split::Train).unwrap_err().to_string();
    assert!(message.contains("a.txt"), "{message}");
}

fn texts(corpus: &Corpus, split: Split) -> Vec<String> {
    let records = corpus.records(split, SampleUnit::Documents).unwrap();
    records.map(|record| record.unwrap().into_text().unwrap()).collect()
}

#[test]
fn a_record_of_two_splits_stays_in_the_last() {
    let folder = folder(&[
        ("train.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n{\"text\": \"a\"}\n"),
        ("valid.csv", "text\nb\nd\n"),
        ("test.json", "[{\"text\": \"d\"}, {\"text\": \"a\"}, {\"body\": 1}]"),
    ]);
    let corpus = Corpus::open(folder.path()).unwrap();
    let mut records = corpus.records(Split::Train, SampleUnit::Documents).unwrap();
    let train: Vec<String> = records.by_ref().map(|record| record.unwrap().into_text().unwrap()).collect();
    assert_eq!((train, records.left_out().duplicates), (vec!["c".to_string()], 3));
    assert_eq!(texts(&corpus, Split::Valid), ["b"]);
    // A broken record is an error where its own split is read.
    let message = corpus.documents(Split::Test).unwrap_err().to_string();
    assert!(message.contains("test.json, record 3: "), "{message}");
    // All of these files decide what is trained on.
    assert_eq!(corpus.files(&[Split::Train]).len(), 3);
    assert_eq!(corpus.files(&[Split::Valid]).len(), 2);
    assert_eq!(corpus.files(&[Split::Test]).len(), 1);
}

#[test]
fn files_of_text_are_compared_with_none() {
    let folder =
        folder(&[("train.txt", "a<|endoftext|>b"), ("test.txt", "a"), ("valid.jsonl", "{\"text\": \"b\"}")]);
    let corpus = Corpus::open(folder.path()).unwrap();
    assert_eq!(texts(&corpus, Split::Train), ["a", "b"]);
    assert_eq!(corpus.files(&[Split::Train]).len(), 1);
}

#[test]
fn a_share_of_the_training_files_is_held_out() {
    let lines: String = (0..200).map(|i| format!("{{\"text\": \"{}\"}}\n", i % 150)).collect();
    let folder = folder(&[("chats.jsonl", lines.as_str()), ("test.jsonl", "{\"text\": \"7\"}\n")]);
    let open = |seed, splits| {
        let reading = Reading { held_out: Some(0.2), ..Reading::default() };
        Corpus::open(folder.path()).unwrap().read_by(reading, seed, splits)
    };
    let corpus = open(3, [Split::Train, Split::Valid]);
    let (train, valid) = (texts(&corpus, Split::Train), texts(&corpus, Split::Valid));
    // The seventh is in the test split, with its copy.
    assert_eq!(train.len() + valid.len(), 198);
    assert!(
        valid.iter().all(|text| !train.contains(text)) && (15..=65).contains(&valid.len()),
        "{}",
        valid.len()
    );
    assert_ne!(texts(&open(4, [Split::Train, Split::Valid]), Split::Valid), valid);
    assert_eq!(texts(&corpus, Split::Test), ["7"]);
    corpus.require(Split::Valid).unwrap();
    assert_eq!(corpus.files(&[Split::Valid]), corpus.files(&[Split::Train]));
    // What has a name of its own is not made of others.
    let message = open(3, [Split::Train, Split::Test]).require(Split::Test).unwrap_err().to_string();
    assert!(message.contains("data.held_out holds out a share of \"train\" as \"test\""), "{message}");
}
