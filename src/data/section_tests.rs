//! `[data]`: defaults, what is refused, and that a row keeps its identity.

use super::*;
use crate::recipe::{Cell, Recipe, Source};

fn cell(text: &str) -> Result<Cell, String> {
    let text = format!(
        "title = \"t\"\n[model]\nkind = \"gpt2\"\npreset = \"gpt2\"\n[train]\nbatch_size = 1\n\
         seq_len = 8\n[eval]\nevery = 1\n[data]\n{text}\n"
    );
    let recipe = Recipe::parse_finished(&Source { path: "r.toml".into(), text }, true);
    recipe.map(|mut recipe| recipe.cells.remove(0)).map_err(|e| format!("{:?}", miette::Report::new(e)))
}

fn parse(text: &str) -> Data {
    cell(text).unwrap_or_else(|e| panic!("{e}")).data
}

#[test]
fn absent_keys_take_their_defaults() {
    assert_eq!(parse(""), Data::Random);
    let text = Data::Text {
        corpus: TextSource::Generated { size: GENERATED },
        reading: Box::default(),
        template: None,
        template_variables: None,
        learn: Learn::Assistant,
        tokenizer: TokenizerSource::Train { vocab_size: VOCAB_SIZE },
        train_split: Split::Train,
        eval_split: Split::Valid,
        shuffle_buffer: None,
        sampler: SamplerConfig::of(Sampler::Blocks(Blocks {})),
    };
    assert_eq!(parse("corpus = \"generated\""), text);
    assert_eq!(parse("corpus = \"generated\"\nsampler = \"blocks\""), text);
}

#[test]
fn a_resolved_section_reads_back_as_itself() {
    for text in [
        "",
        "corpus = \"generated\"\nsize = \"1 MB\"\nvocab_size = 300",
        "corpus = \"wiki\"\nsampler = \"balanced\"\nk = 0\nlongest_first = true\nnum_workers = 0",
        "corpus = \"wiki\"\nsampler = \"packed\"\nlast_sample = \"drop\"\nprefetch_factor = 3",
        "corpus = \"wiki\"\nsampler = \"padded\"\ntokenize = \"every_step\"\npinned = false",
        "corpus = \"task\"\nsampler = \"standard\"\n[task]\nkind = \"sums\"\ndigits = 3",
        "corpus = \"task\"\nsampler = \"packed\"\n[task]\nkind = \"gsm8k\"\npath = \"none\"\nevaluate_generation = 5",
        "corpus = \"a.csv\"\nformat = \"text\"\nskip_broken = true\nheld_out = 0.25\nsubset = \"s\"\ntemplate = \"chatml\"\n\
         learn = \"all\"\ncolumns = { text = \"body\" }",
        "corpus = \"wiki\"\ntokenizer = \"models/gpt2\"\ntrain_split = \"valid\"\neval_split = \"test\"",
        "corpus = \"wiki\"\ntokenizer = \"models/gpt2\"\nshuffle_buffer = 8\ntemplate_variables = \"a = 1\"",
    ] {
        let mut cell = cell(text).unwrap_or_else(|e| panic!("{e}"));
        // A row is of a known device.
        cell.train.graph_is_open = false;
        let json = cell.to_json();
        assert_eq!(Cell::from_json(&json).unwrap(), cell, "{json}");
    }
    let keys = cell("corpus = \"wiki\"\nsampler = \"packed\"").unwrap().to_json()["data"].clone();
    assert_eq!((&keys["sampler"], &keys["last_sample"]), (&"packed".into(), &"cut".into()));
    assert_eq!((&keys["num_workers"], &keys["prefetch_factor"]), (&1.into(), &2.into()), "defaults too");
}

#[test]
fn impossible_sections_say_what_to_change() {
    for (text, expected) in [
        ("tokenizer = \"train\"", "`tokenizer` has no meaning with corpus = \"random\""),
        ("corpus = \"wiki\"\nsize = \"1 MB\"", "`size` belongs to corpus = \"generated\""),
        ("corpus = \"wiki\"\ntokenizer = \"gpt2\"\nvocab_size = 300", "`vocab_size` belongs to tokenizer"),
        ("corpus = \"wiki\"\nvocab_size = 256", "at least 257"),
        ("corpus = \"wiki\"\ntrain_split = \"dev\"", "unknown value `dev`"),
        ("corpora = \"wiki\"", "unknown key `corpora`"),
        ("sampler = \"padded\"", "`sampler` has no meaning with corpus = \"random\""),
        ("corpus = \"wiki\"\nk = 4", "`k` is a key of data.sampler"),
        ("corpus = \"wiki\"\nsampler = \"blocks\"\npinned = true", "`pinned` is a key of data.sampler"),
        ("corpus = \"wiki\"\nsampler = \"blanced\"\nk = 4", "did you mean `balanced`?"),
        ("corpus = \"wiki\"\nsampler = \"balanced\"", "add `k`: Tokens by which"),
        ("corpus = \"wiki\"\nsampler = \"standard\"\nk = 4", "`k` goes with data.sampler = \"balanced\""),
        ("corpus = \"wiki\"\nsampler = \"padded\"\nlongest_first = true", "equally large"),
        ("corpus = \"wiki\"\nsampler = \"packed\"\ntokenize = \"every_step\"", "lengths before it draws"),
        (
            "corpus = \"wiki\"\nsampler = \"padded\"\nnum_workers = 0\nprefetch_factor = 2",
            "no batch is ready ahead",
        ),
    ] {
        let message = cell(text).unwrap_err();
        let words: Vec<&str> = message.split_whitespace().filter(|word| *word != "│").collect();
        assert!(words.join(" ").contains(expected), "{text}\n-> {message}");
    }
}

/// Rows from before there were these keys are known by cells without them.
#[test]
fn keys_of_records_are_absent_at_their_defaults() {
    let written = "skip_broken = false\nlearn = \"assistant\"\ncolumns = {}";
    let [json, default] =
        [written, ""].map(|keys| cell(&format!("corpus = \"a.jsonl\"\n{keys}")).unwrap().to_json());
    assert_eq!(json, default);
    let keys: Vec<_> = json["data"].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["corpus", "eval_split", "sampler", "size", "tokenizer", "train_split", "vocab_size"],
        "what a row had before"
    );
}

#[test]
fn keys_of_records_are_refused_where_there_are_none() {
    for (text, expected) in [
        ("format = \"text\"", "`format` has no meaning with corpus = \"random\""),
        (
            "corpus = \"generated\"\nheld_out = 0.1",
            "`held_out` belongs to a corpus of files; with corpus = \"generated\"",
        ),
        ("corpus = \"generated\"\nlearn = \"all\"", "`learn` belongs to a corpus of files"),
        ("corpus = \"a.csv\"\nheld_out = 0.0", "held_out = 0 holds nothing out"),
        ("corpus = \"a.csv\"\nheld_out = 1.0", "must be a number from 0 to below 1"),
        ("corpus = \"a.csv\"\nformat = \"alpaca\"", "unknown value `alpaca`"),
        ("corpus = \"a.csv\"\ncolumns = { body = \"text\" }", "unknown key `body`"),
        ("corpus = \"generated\"\nshuffle_buffer = 8", "`shuffle_buffer` belongs to a corpus of files"),
        (
            "corpus = \"generated\"\ntemplate_variables = \"a = 1\"",
            "`template_variables` belongs to a corpus of files",
        ),
        ("corpus = \"a.csv\"\ntemplate_variables = \"a: 1\"", "is no list of names and values"),
        ("corpus = \"a.csv\"\nshuffle_buffer = 8", "a tokenizer is trained on all text"),
        ("corpus = \"a.csv\"\ntokenizer = \"t\"\nshuffle_buffer = 8\nheld_out = 0.1", "found in all text"),
        (
            "corpus = \"a.csv\"\ntokenizer = \"t\"\nshuffle_buffer = 8\n[measure]\nepochs = 1",
            "the steps of an epoch are known when all text is tokenised",
        ),
        (
            "corpus = \"a.csv\"\ntokenizer = \"t\"\nshuffle_buffer = 8\nsampler = \"padded\"\nnum_workers = 2",
            "one thread makes the batches",
        ),
    ] {
        let message = cell(text).unwrap_err();
        let words: Vec<&str> = message.split_whitespace().filter(|word| *word != "│").collect();
        assert!(words.join(" ").contains(expected), "{text}\n-> {message}");
    }
}
