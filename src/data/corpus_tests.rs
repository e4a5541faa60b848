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
        ("test.jsonl", "{\"text\": \"T\"}\n{\"body\": 1}"),
    ]);
    let corpus = Corpus::open(folder.path()).unwrap();
    assert_eq!(corpus.documents(Split::Train).unwrap(), ["1+1?\n2", "T"]);
    let message = corpus.documents(Split::Test).unwrap_err().to_string();
    assert!(message.contains("test.jsonl, line 2: expected the key `text`"), "{message}");
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
        ("a.json", "[]"),
        ("b.csv", "text\n"),
        ("c.parquet", "PAR1"),
        ("d.jsonl.gz", ""),
        ("e.md", "x"),
        ("f", "x"),
    ]);
    let open = |name: &str| Corpus::open(&folder.path().join(name)).unwrap_err().to_string();
    for (name, advice) in [
        ("a.json", "name it .jsonl"),
        ("b.csv", "write its texts into a .jsonl file"),
        ("c.parquet", "write its texts into a .jsonl file"),
        ("d.jsonl.gz", "decompress it"),
        ("e.md", "if it is plain text, name it .txt"),
        ("f", "if it is plain text, name it .txt"),
        // Of a folder without text the first is named.
        ("", "a.json is not read"),
    ] {
        let message = open(name);
        assert!(
            message.contains("is not read: a corpus has files that end in .tokens, .raw, .txt, .jsonl"),
            "{message}"
        );
        assert!(message.contains(advice), "{message}");
    }
    // Beside text only what is named as a split.
    std::fs::write(folder.path().join("train.txt"), "x").unwrap();
    assert!(Corpus::open(folder.path()).is_ok());
    std::fs::write(folder.path().join("test.csv"), "x").unwrap();
    assert!(open("").contains("test.csv is not read"));
}

#[test]
fn what_is_no_corpus_is_named() {
    let folder = folder(&[("notes.md", "x")]);
    let message = Corpus::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("holds no text: a corpus has files that end in .tokens"), "{message}");
    let message = Corpus::open(Path::new("no/such")).unwrap_err().to_string();
    assert!(message.contains("cannot read the corpus no/such"), "{message}");
    std::fs::write(folder.path().join("a.txt"), [0xff, 0xfe]).unwrap();
    let message = Corpus::open(folder.path()).unwrap().documents(Split::Train).unwrap_err().to_string();
    assert!(message.contains("a.txt"), "{message}");
}
