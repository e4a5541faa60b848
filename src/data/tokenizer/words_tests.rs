//! Words have the tokens that they have in the whole text, and are split where it is safe.

use std::path::Path;
use std::sync::Arc;

use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tokenizers::AddedToken;

use super::super::Tokenizer;
use super::super::ends::read_json;
use super::*;

/// What meets in texts: words, marks, digits, white space of every kind, letters of several bytes, composed and not, signs
/// without letters, and what an added token looks like.
const PIECES: [&str; 44] = [
    "the",
    "Fox",
    "don't",
    "WE'LL",
    "x",
    " ",
    "  ",
    "    ",
    "\n",
    "\n\n",
    " \n",
    "\r\n",
    "\t",
    "\u{a0}",
    "\u{2003}",
    "\u{2028}",
    "1",
    "23",
    "4567",
    ".",
    "...",
    "!?",
    ")",
    "\"",
    "'s",
    "é",
    "e\u{301}",
    "\u{301}",
    "ß",
    "東京",
    "日",
    "🦊",
    "👩\u{200d}👧",
    "ना",
    "\u{94d}",
    "א",
    "<|endoftext|>",
    "<|",
    "endoftext|>",
    "<s>",
    "_",
    "\u{0}",
    "K",
    "²",
];

fn text(rng: &mut ChaCha8Rng, pieces: usize) -> String {
    (0..pieces).map(|_| *PIECES.choose(rng).unwrap()).collect()
}

/// A byte-level BPE trained on such texts, changed.
fn tokenizer(change: impl FnOnce(&mut Value)) -> Tokenizer {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let texts: Vec<String> = (0..300).map(|_| text(&mut rng, 40)).collect();
    let trained = Tokenizer::train(&texts, 700).unwrap();
    let mut json: Value = serde_json::from_str(&trained.json().unwrap()).unwrap();
    change(&mut json);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    Tokenizer::load(&path).unwrap()
}

fn offsets(tokenizer: &Tokenizer, text: &str) -> Vec<Place> {
    let (ids, offsets) = tokenizer.encode_offsets(text).unwrap();
    ids.into_iter().zip(offsets).map(|(id, (start, end))| (id, start..end)).collect()
}

fn split(pattern: &str) -> Value {
    json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false })
}

fn byte_level(use_regex: bool) -> Value {
    json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex })
}

fn steps(steps: &[Value]) -> Value {
    json!({ "type": "Sequence", "pretokenizers": steps })
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Every tokenizer whose words are looked up here: GPT-2's, Llama 3's, Qwen 2's, GPT-4o's and SmolLM2's rules, and one with
/// tokens of its own behind others.
fn with_words() -> Vec<Tokenizer> {
    let qwen2 = LLAMA3.replace("{1,3}", "");
    let rules = [
        byte_level(true),
        steps(&[split(LLAMA3), byte_level(false)]),
        steps(&[split(&qwen2), byte_level(false)]),
        steps(&[split(O200K), byte_level(false)]),
        steps(&[json!({ "type": "Digits", "individual_digits": true }), byte_level(true)]),
        steps(&[json!({ "type": "Digits", "individual_digits": false }), split(&qwen2), byte_level(false)]),
        // Without a look ahead.
        steps(&[split(&LLAMA3.replace(r"|\s+(?!\S)", "")), byte_level(false)]),
        steps(&[split(r" ?\p{L}+|\p{N}|\s+"), byte_level(false)]),
    ];
    let mut all: Vec<Tokenizer> =
        rules.into_iter().map(|rule| tokenizer(|json| json["pre_tokenizer"] = rule)).collect();
    all.push(tokenizer(|json| {
        json["normalizer"] = json!({ "type": "NFC" });
        json["pre_tokenizer"] = steps(&[split(&qwen2), byte_level(false)]);
    }));
    let mut more = tokenizer(|_| ());
    for content in ["<|", "x  ", "<|endoftext|>!"] {
        more.inner.add_special_tokens([AddedToken::from(content, true)]).unwrap();
    }
    more.words = Words::new(&more.inner).map(Arc::new);
    all.push(more);
    all
}

#[test]
fn words_have_the_tokens_of_the_whole_text() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let texts: Vec<String> = (0..400).map(|n| text(&mut rng, n % 60)).collect();
    for (n, tokenizer) in with_words().iter().enumerate() {
        let words = tokenizer.words.as_ref().unwrap_or_else(|| panic!("{n}"));
        // Twice: what is new, and what came before.
        for text in texts.iter().chain(&texts) {
            let expected = whole(&tokenizer.inner, text).unwrap();
            let places =
                words.encode(&tokenizer.inner, text).unwrap_or_else(|| panic!("{n}: {text:?}")).unwrap();
            assert_eq!(places, expected, "{n}: {text:?}");
            let ids: Vec<u32> = expected.iter().map(|(id, _)| *id).collect();
            assert_eq!(tokenizer.encode(text).unwrap(), ids);
            assert_eq!(offsets(tokenizer, text), expected);
        }
    }
}

/// All cores encode parts of it.
#[test]
fn a_long_text_is_encoded_in_parts() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let tokenizer = tokenizer(|_| ());
    let mut long = text(&mut rng, 120_000);
    // Longer than a part without a bound.
    long.push_str(&"日本".repeat(PART / 4));
    long.push_str(&text(&mut rng, 100_000));
    let parts: Vec<Range<usize>> = parts(&long, 0..long.len()).collect();
    assert!(parts.len() >= 3 && parts[0].start == 0 && parts.last().unwrap().end == long.len());
    assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start && !pair[0].is_empty()));
    assert!(offsets(&tokenizer, &long) == whole(&tokenizer.inner, &long).unwrap());
}

/// Parts that are not known, or that make a word's tokens depend on others, turn the lookup off; the tokens are the same.
#[test]
fn what_is_not_known_is_tokenised_as_a_whole() {
    let own = LLAMA3.replace(r"|\s+(?!\S)", r"|\S+ \S+|\s+(?!\S)");
    let no_end = LLAMA3.strip_suffix(r"|\s+").unwrap();
    let mut merged = split(LLAMA3);
    merged["behavior"] = "MergedWithPrevious".into();
    for rule in [
        steps(&[split(&own), byte_level(false)]),
        steps(&[split(no_end), byte_level(false)]),
        steps(&[merged, byte_level(false)]),
        steps(&[json!({ "type": "Digits", "individual_digits": true }), byte_level(false)]),
        steps(&[json!({ "type": "Punctuation", "behavior": "Isolated" }), byte_level(true)]),
        json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true }),
        byte_level(false),
    ] {
        let tokenizer = tokenizer(|json| json["pre_tokenizer"] = rule.clone());
        assert!(tokenizer.words.is_none(), "{rule}");
        assert!(!tokenizer.encode("the Fox, 23").unwrap().is_empty());
    }
    let lower = tokenizer(|json| json["normalizer"] = json!({ "type": "Lowercase" }));
    assert!(lower.words.is_none());
    let random = tokenizer(|json| json["model"]["dropout"] = 0.5.into());
    assert!(random.words.is_none());
    // A token that takes the space beside it is found with the whole text alone.
    let mut takes = tokenizer(|_| ());
    takes.inner.add_special_tokens([AddedToken::from("[x]", true).lstrip(true)]).unwrap();
    takes.words = Words::new(&takes.inner).map(Arc::new);
    let words = takes.words.as_ref().unwrap();
    assert!(
        words.encode(&takes.inner, "a [x] b").is_none() && words.encode(&takes.inner, "a [y] b").is_some()
    );
    let ids = takes.encode("a  [x] b").unwrap();
    assert_eq!(ids, takes.inner.encode("a  [x] b", false).unwrap().get_ids());
    assert!(ids.contains(&takes.inner.token_to_id("[x]").unwrap()));
}

/// More words than are kept.
#[test]
fn words_beyond_those_that_are_kept_have_their_tokens() {
    let mut lookup = Lookup::default();
    let encode = |n: u32| move || Ok(vec![(n, 0..1), (n + 1, 1..3)]);
    for round in 0..2 {
        for n in 0..70_000 {
            let found: Vec<Place> = lookup.find(&n.to_string(), encode(n)).unwrap().collect();
            assert_eq!(found, [(n, 0..1), (n + 1, 1..3)], "{round}");
        }
    }
    let kept: Vec<Place> = lookup.find("65535", || panic!("it is kept")).unwrap().collect();
    assert_eq!(kept[0].0, 65_535);
}

#[test]
fn the_tokenizers_of_published_families_have_words() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers");
    for (name, has_words) in [("llama3", true), ("qwen2", true), ("llama2", false)] {
        let tokenizer = Tokenizer::load(&folder.join(name)).unwrap();
        assert_eq!(tokenizer.words.is_some(), has_words, "{name}");
        let expected = read_json(&folder.join(name).join("expected.json")).unwrap();
        for text in expected.as_array().unwrap().iter().map(|text| text["text"].as_str().unwrap()) {
            assert_eq!(offsets(&tokenizer, text), whole(&tokenizer.inner, text).unwrap(), "{name}");
        }
    }
}
