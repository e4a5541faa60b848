//! [`Splits`]: what is known of how a tokenizer splits a text, and whether at the [`bounds`](super::bounds) of words.

use std::ops::Range;

use serde_json::Value;
use tokenizers::Tokenizer as Inner;
use tokenizers::utils::SysRegex;

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
/// Of the known alternatives the only one that no finite automaton matches. It leaves out the last of several spaces before a
/// word.
const LOOKS_AHEAD: &str = r"|\s+(?!\S)";
/// The last alternative of all: what is white space matches.
const LAST: &str = r"|\s+";
/// Matches white space to the end of a line.
const ENDS_LINE: &str = r"|\s*[\r\n]+";
/// GPT-2's rule, which is built in.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// How a tokenizer splits a text, of each piece of which it makes tokens.
#[derive(Debug)]
pub struct Splits {
    /// Whether numbers stand alone: digit by digit, or those that follow one another.
    digits: Option<bool>,
    /// The rule for words without [`LOOKS_AHEAD`]: an automaton is several times as fast.
    regex: SysRegex,
    looks_ahead: bool,
    ends_line: bool,
    /// Whether letters may be composed first.
    pub composes: bool,
}

impl Splits {
    /// `None` where they are not known, or do not split every text at the bounds of words.
    pub fn new(inner: &Inner) -> Option<Self> {
        let composes = match inner.get_normalizer() {
            None => false,
            // A space is never composed with what stands before it.
            Some(normalizer) if serde_json::to_value(normalizer).ok()?["type"] == "NFC" => true,
            Some(_) => return None,
        };
        let late = inner.get_added_tokens_decoder().values().any(|token| token.normalized);
        let splits = serde_json::to_value(inner.get_pre_tokenizer()?).ok()?;
        let (digits, pattern) = rule(&splits).filter(|_| !(composes && late))?;
        let words = pattern.strip_suffix(LAST).filter(|words| are_known(words))?;
        let (looks_ahead, words) = match words.strip_suffix(LOOKS_AHEAD) {
            Some(words) => (true, words),
            None => (false, words),
        };
        let ends_line = words.ends_with(ENDS_LINE);
        let regex = SysRegex::new(&format!("{words}{LAST}")).ok()?;
        Some(Self { digits, regex, looks_ahead, ends_line, composes })
    }

    /// The pieces of a word that stands between bounds, in bytes.
    pub fn pieces(&self, word: &str) -> Vec<Range<usize>> {
        let mut pieces = Vec::with_capacity(4);
        let Some(each) = self.digits else {
            self.by_rule(word, 0, &mut pieces);
            return pieces;
        };
        let mut start = 0;
        let mut chars = word.chars().peekable();
        let mut end = 0;
        while let Some(char) = chars.next() {
            end += char.len_utf8();
            let next = chars.peek().map(|next| next.is_numeric());
            if next.is_none_or(|next| next != char.is_numeric() || (next && each)) {
                self.by_rule(&word[start..end], start, &mut pieces);
                start = end;
            }
        }
        pieces
    }

    /// The pieces of a part of a word, which begins at `start`.
    fn by_rule(&self, part: &str, start: usize, pieces: &mut Vec<Range<usize>>) {
        let mut from = 0;
        while let Some((first, end)) = self.regex.find_iter(&part[from..]).next() {
            let (first, mut end) = (from + first, from + end);
            let piece = &part[first..end];
            let ends_line = self.ends_line && piece.ends_with(['\r', '\n']);
            if self.looks_ahead && !ends_line && end < part.len() && piece.chars().all(char::is_whitespace) {
                // Of several spaces the last belongs to what follows.
                let last = piece.char_indices().next_back().map_or(0, |(last, _)| last);
                end = if last > 0 { first + last } else { end };
            }
            if from < first {
                pieces.push(start + from..start + first);
            }
            pieces.push(start + first..start + end);
            from = end;
        }
        if from < part.len() {
            pieces.push(start + from..start + part.len());
        }
    }
}

/// Whether numbers stand alone, digit by digit, and the rule for words of a pre-tokenizer whose steps are known. Each step leaves
/// to the next what it would leave of the pieces between bounds alone.
fn rule(splits: &Value) -> Option<(Option<bool>, String)> {
    let one = std::slice::from_ref(splits);
    let steps = splits["pretokenizers"].as_array().map_or(one, Vec::as_slice);
    let (last, steps) = steps.split_last()?;
    let (digits, steps) = match steps.split_first() {
        Some((first, steps)) if first["type"] == "Digits" => {
            (Some(first["individual_digits"].as_bool()?), steps)
        }
        _ => (None, steps),
    };
    let is_last = last["type"] == "ByteLevel" && last["add_prefix_space"] == false;
    let pattern = match (steps, last["use_regex"].as_bool()?) {
        ([], true) => GPT2,
        ([split], false)
            if split["type"] == "Split" && split["behavior"] == "Isolated" && split["invert"] == false =>
        {
            split["pattern"]["Regex"].as_str()?
        }
        _ => return None,
    };
    is_last.then(|| (digits, pattern.to_string()))
}

/// Whether alternatives are known, each of them.
fn are_known(alternatives: &str) -> bool {
    ALTERNATIVES.iter().any(|known| {
        let rest = alternatives.strip_prefix(known);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('|').is_some_and(are_known))
    })
}
