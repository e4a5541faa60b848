//! What is known of a tokenizer's parts: whether it parts every text at the [`bounds`](super::bounds) of words, and its added
//! tokens.

use std::ops::Range;

use serde_json::Value;
use tokenizers::Tokenizer as Inner;

/// GPT-2's rule for words, which [`ByteLevel`](tokenizers::pre_tokenizers::byte_level::ByteLevel) has built in, and the rules
/// of later families, alternative by alternative. Each matches a space or the end of a line at its beginning alone, unless all
/// that it matches is white space, or it is the end of a line behind a sign; and only `\s+(?!\S)` looks beyond its match,
/// behind white space.
const ALTERNATIVES: [&str; 20] = [
    "'s",
    "'t",
    "'re",
    "'ve",
    "'m",
    "'ll",
    "'d",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r" ?\p{L}+",
    r" ?\p{N}+",
    r" ?[^\s\p{L}\p{N}]+",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}",
    r"\p{N}{1,3}",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
];
/// The last alternative of all: what is white space matches.
const LAST: &str = r"\s+";

/// Whether a tokenizer parts every text at the bounds of words.
pub fn at_words(inner: &Inner) -> bool {
    let normalizer = inner.get_normalizer().map(serde_json::to_value);
    let splits = inner.get_pre_tokenizer().map(serde_json::to_value);
    let keeps_bounds = match &normalizer {
        None => true,
        // A space is never composed with what stands before it.
        Some(Ok(normalizer)) => {
            normalizer["type"] == "NFC"
                && !inner.get_added_tokens_decoder().values().any(|token| token.normalized)
        }
        Some(Err(_)) => false,
    };
    keeps_bounds && matches!(splits, Some(Ok(splits)) if parts_words(&splits))
}

/// Whether the steps of a pre-tokenizer part a text at the bounds of words, and each of them leaves to the next what it would
/// leave of the two pieces alone.
fn parts_words(splits: &Value) -> bool {
    let one = std::slice::from_ref(splits);
    let steps = splits["pretokenizers"].as_array().map_or(one, Vec::as_slice);
    let [steps @ .., last] = steps else { return false };
    let is_known = |step: &Value| match step["type"].as_str() {
        Some("Digits") => true,
        Some("Split") => is_pattern(step),
        _ => false,
    };
    last["type"] == "ByteLevel"
        && last["add_prefix_space"] == false
        && steps.iter().all(is_known)
        && (last["use_regex"] == true || steps.iter().any(is_pattern))
}

/// Whether a step parts a text by alternatives that are known.
fn is_pattern(step: &Value) -> bool {
    let Some(pattern) = step["pattern"]["Regex"].as_str() else { return false };
    let rest = pattern.strip_suffix(LAST).and_then(|rest| rest.strip_suffix('|'));
    step["behavior"] == "Isolated" && step["invert"] == false && rest.is_some_and(are_known)
}

/// Whether alternatives are known, each of them.
fn are_known(alternatives: &str) -> bool {
    ALTERNATIVES.iter().any(|known| {
        let rest = alternatives.strip_prefix(known);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('|').is_some_and(are_known))
    })
}

/// A piece of a text, and its token, if it is one that was added.
pub type Split = (Range<usize>, Option<u32>);

/// Tokens that are found in a text before it is split.
#[derive(Debug)]
pub struct Added {
    /// The longest first.
    tokens: Vec<(String, u32)>,
    /// The bytes that they begin with.
    begins: Box<[bool; 256]>,
    /// Whether they take nothing of what is beside them, and none of them is looked for after others.
    stands_alone: bool,
}

impl Added {
    pub fn new(inner: &Inner) -> Self {
        let all = inner.get_added_tokens_decoder();
        let late = all.values().filter(|token| token.normalized).count();
        let takes = all.values().any(|token| token.lstrip || token.rstrip || token.single_word);
        let mut tokens: Vec<(String, u32)> = all
            .into_iter()
            .map(|(id, token)| (token.content, id))
            .filter(|(text, _)| !text.is_empty())
            .collect();
        tokens.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        let mut begins = Box::new([false; 256]);
        tokens.iter().for_each(|(text, _)| begins[usize::from(text.as_bytes()[0])] = true);
        let stands_alone = !takes && (late == 0 || late == tokens.len());
        Self { tokens, begins, stands_alone }
    }

    /// The pieces of a text; `None` where a token that does not stand alone is in it.
    pub fn splits(&self, text: &str) -> Option<Vec<Split>> {
        let (mut splits, mut start, mut i) = (Vec::new(), 0, 0);
        while let Some(next) = text.as_bytes()[i..].iter().position(|byte| self.begins[usize::from(*byte)]) {
            i += next;
            let behind = &text.as_bytes()[i..];
            match self.tokens.iter().find(|(token, _)| behind.starts_with(token.as_bytes())) {
                None => i += 1,
                Some(_) if !self.stands_alone => return None,
                Some((token, id)) => {
                    if start < i {
                        splits.push((start..i, None));
                    }
                    start = i + token.len();
                    splits.push((i..start, Some(*id)));
                    i = start;
                }
            }
        }
        if start < text.len() {
            splits.push((start..text.len(), None));
        }
        Some(splits)
    }
}
