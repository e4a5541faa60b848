//! Texts and tokenizers.

use runner::data::Tokenizer;
use serde_json::Value;

use super::{TUNED, failed};
use crate::language::copied;
use crate::place::{Place, SMALL, changed};

/// `SMALL` on a text of files, without [eval].
fn on_text(corpus: &str) -> String {
    changed(SMALL, &[("\"generated\"\nsize = \"100 KiB\"", &format!("\"{corpus}\""))])
}

fn sentences(count: usize) -> String {
    (0..count).map(|n| format!("The {n}th fox jumps over {} lazy dogs.\n", n * 7)).collect()
}

#[test]
fn loaded_weights_read_text_in_their_own_tokens() {
    let place = Place::new(TUNED);
    let folder = copied(&place, "qwen2");
    let lacks = ["qwen2 holds no tokenizer.json", "data.tokenizer", "recipe.toml:4"];
    place.runner(&["check", "recipe.toml"]).exits(2).says(&lacks);
    place.write("sized.toml", &TUNED.replace("size = \"20 KiB\"", "size = \"20 KiB\"\nvocab_size = 300"));
    place.runner(&["check", "sized.toml"]).exits(2).says(&["loaded weights come with their own"]);
    // A tokenizer that is named counts, whatever the folder has.
    let trained = "size = \"20 KiB\"\ntokenizer = \"train\"\nvocab_size = 300";
    place.write("trained.toml", &TUNED.replace("size = \"20 KiB\"", trained));
    place.runner(&["check", "trained.toml"]).exits(0);

    let texts = [sentences(100)];
    Tokenizer::train(&texts, 290).unwrap().save(&folder).unwrap();
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let row = place.rows().remove(0);
    assert_eq!(row["cell"]["data"]["tokenizer"], "qwen2");
    // And not one of 4096 tokens.
    assert_eq!(row["cell"]["data"]["vocab_size"], Value::Null);
}

#[test]
fn a_text_with_more_tokens_than_the_weights_is_refused() {
    let place = Place::new(TUNED);
    let folder = copied(&place, "qwen2");
    let words: String = (0..3000).map(|n| format!("word{n} word{n} ")).collect();
    Tokenizer::train(std::slice::from_ref(&words), 600).unwrap().save(&folder).unwrap();
    place.write("words.txt", &words);
    place.write("recipe.toml", &TUNED.replace("\"generated\"\nsize = \"20 KiB\"", "\"words.txt\""));
    failed(&place, &["the text has the token 5", "and the model has only 512 rows", "data.tokenizer"]);
}

#[test]
fn one_text_file_trains_where_nothing_is_evaluated() {
    let place = Place::new(&on_text("book.txt"));
    place.write("book.txt", &sentences(400));
    place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
    let evaluated = format!("{}[eval]\nevery = 1\nbatches = 1\n", on_text("book.txt"));
    place.write("recipe.toml", &evaluated);
    for command in ["check", "plan", "run"] {
        place.runner(&[command, "recipe.toml"]).exits(2).says(&[
            "book.txt has no text for \"valid\"",
            "a held-out file such as valid.txt",
            "recipe.toml:10",
        ]);
    }
    place.write("recipe.toml", &on_text("held-out-test.txt"));
    place.write("held-out-test.txt", &sentences(400));
    place.runner(&["check", "recipe.toml"]).exits(2).says(&["no text for \"train\"", "data.train_split"]);
    // A recipe for another machine, where the text is.
    place.write("recipe.toml", &on_text("elsewhere"));
    place.runner(&["check", "recipe.toml"]).exits(0);
    place
        .runner(&["run", "recipe.toml"])
        .exits(1)
        .says(&["nothing was measured", "data.corpus = \"elsewhere\""]);
}

/// Every cell would fail for the same reason.
#[test]
fn files_that_are_not_there_are_named_before_the_first_cell_runs() {
    let grid = "[grid]\n\"train.batch_size\" = [1, 2]\n";
    let place = Place::new(&format!("{}{grid}", on_text("wiki")));
    let here = place.path().canonicalize().expect("it is there");
    let parts = ["data.corpus = \"wiki\"", here.to_str().expect("UTF-8"), "--set data.corpus=PATH"];
    let ended = place.runner(&["run", "recipe.toml"]).exits(1).says(&parts);
    assert!(!ended.err.contains("cell 1/2: "), "{}", ended.err);
    assert!(place.row_files().is_empty());
    // What does not read them runs.
    let grid = "[[grid]]\n\"train.batch_size\" = [1, 2]\n[[grid]]\n\"data.corpus\" = \"generated\"\n\"data.size\" = \"100 KiB\"\n";
    place.write("recipe.toml", &format!("{}{grid}", on_text("wiki")));
    let parts = ["2 cells will fail", "data.corpus = \"wiki\"", "3 measured", "2 failed"];
    place.runner(&["run", "recipe.toml"]).exits(1).says(&parts);
    // Once they are there all is well.
    std::fs::create_dir(place.path().join("wiki")).expect("a folder");
    place.write("wiki/train.txt", &sentences(400));
    place.runner(&["run", "recipe.toml", "--retry-failed"]).exits(0).says(&["2 measured"]);
}

#[test]
fn evaluations_that_read_their_text_repeatedly_say_so() {
    for (batches, repeatedly) in [(2, false), (900, true)] {
        let recipe = format!("{SMALL}[eval]\nevery = 5\nbatches = {batches}\n");
        let place = Place::new(&recipe.replace("seq_len = 16", "seq_len = 4"));
        place.runner(&["run", "recipe.toml"]).exits(0);
        let way = place.rows().remove(0)["measurement"]["paths"]["evaluation"].clone();
        assert_eq!(way.as_str().is_some_and(|way| way.contains("eval.batches = 900")), repeatedly, "{way}");
    }
}

#[test]
fn held_out_text_that_is_too_short_matters_to_those_who_evaluate() {
    for sampler in ["", "sampler = \"padded\"\n"] {
        let recipe = on_text("text").replace("[train]", &format!("{sampler}[train]"));
        let place = Place::new(&recipe);
        std::fs::create_dir(place.path().join("text")).unwrap();
        place.write("text/train.txt", &sentences(400));
        place.write("text/valid.txt", "\n");
        place.runner(&["run", "recipe.toml"]).exits(0).says(&["1 measured"]);
        std::fs::remove_dir_all(place.path().join("results")).unwrap();
        place.write("recipe.toml", &format!("{recipe}[eval]\nevery = 1\n"));
        failed(&place, &["there is no text for \"valid\" in", "write some into it"]);
    }
    let place = Place::new(&format!("{}[eval]\nevery = 1\n", on_text("text")));
    std::fs::create_dir(place.path().join("text")).unwrap();
    place.write("text/train.txt", &sentences(400));
    place.write("text/valid.txt", "A fox.");
    failed(&place, &["\"valid\"", "less than one sequence of 16", "train.seq_len"]);
}
