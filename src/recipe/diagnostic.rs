//! [`RecipeError`]: what is wrong in a recipe, drawn on the line where it stands.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use itertools::Itertools;
use miette::{Diagnostic, NamedSource, SourceSpan};

use super::keys::{self, Entry};
use crate::common::text::is_unseen;
use crate::keys::{is_within, nearest};

/// The text of a recipe and where it came from.
#[derive(Debug, Clone)]
pub struct Source {
    pub path: PathBuf,
    pub text: String,
}

/// An error in a recipe: message, place and advice.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct RecipeError {
    message: String,
    label: String,
    #[help]
    help: Option<String>,
    #[label("{label}")]
    span: Option<SourceSpan>,
    /// Absent without a span: there is no line to draw, and the message alone says which file it is.
    #[source_code]
    source_code: Option<Arc<NamedSource<String>>>,
}

impl RecipeError {
    fn without_source(message: String, help: &str) -> Self {
        Self { message, label: String::new(), help: Some(help.into()), span: None, source_code: None }
    }

    /// With other advice.
    #[must_use]
    pub fn with_help(self, help: String) -> Self {
        Self { help: Some(help), ..self }
    }

    /// With more advice behind its own.
    #[must_use]
    pub(super) fn and_help(self, more: &str) -> Self {
        Self { help: Some(self.help.map_or(more.into(), |help| format!("{help} {more}"))), ..self }
    }

    /// Whether a section lacks a key.
    pub(super) fn is_of_missing_key(&self) -> bool {
        self.message.ends_with(" is missing")
    }

    /// Of this one of several cells.
    #[must_use]
    pub(super) fn in_cell(self, name: &str) -> Self {
        Self { message: format!("{}, in the cell with {name}", self.message), ..self }
    }

    /// Drawn on this part of the text.
    pub(super) fn moved(self, part: Range<usize>) -> Self {
        Self { span: Some(SourceSpan::from(part)), ..self }
    }

    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.message == other.message
    }

    /// Whether it is drawn on no more than this part of the text.
    pub(super) fn is_at(&self, part: &Range<usize>) -> bool {
        self.span.is_some_and(|span| part.start <= span.offset() && span.offset() + span.len() <= part.end)
    }

    /// With this advice where there is none.
    #[must_use]
    pub fn or_help(self, help: &str) -> Self {
        Self { help: self.help.or_else(|| Some(help.into())), ..self }
    }
}

impl Source {
    /// Reads a recipe file.
    ///
    /// # Errors
    /// When the file is missing, unreadable or not UTF-8 text.
    pub fn read(path: &Path) -> Result<Self, RecipeError> {
        let bytes = std::fs::read(path).map_err(|e| {
            let message = format!("cannot read the recipe {}: {e}", path.display());
            RecipeError::without_source(message, "`runner recipes` lists the recipes in ./recipes")
        })?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            let message = format!("{} is not a text file: byte {at} is not UTF-8", path.display());
            RecipeError::without_source(message, "a recipe is a TOML file; check the path")
        })?;
        Ok(Self { path: path.to_path_buf(), text })
    }

    /// Where the text first has these words.
    pub(super) fn find(&self, words: &str) -> Option<Range<usize>> {
        self.text.find(words).map(|at| at..at + words.len())
    }

    /// An error at `span` (or without a place, when there is none).
    pub fn at(&self, span: Option<Range<usize>>, message: String, help: String) -> RecipeError {
        self.labelled(span, message, "here".into(), help)
    }

    /// An error about the whole file.
    pub fn plain(&self, message: &str, help: &str) -> RecipeError {
        self.labelled(None, format!("{}: {message}", self.path.display()), String::new(), help.into())
    }

    /// Refuses a text that no report can show.
    pub fn require_seen(&self, key: &str, text: &str) -> Result<(), RecipeError> {
        let Some(unseen) = text.chars().find(|c| is_unseen(*c)) else { return Ok(()) };
        let message = format!("`{key}` holds the control character {unseen:?}, which no report can show");
        Err(self.plain(&message, "remove it"))
    }

    /// A TOML or serde error, reworded: unknown keys get the nearest valid one.
    /// `also`: valid keys that serde does not know.
    pub fn toml_error(&self, error: &toml::de::Error, also: &[&str]) -> RecipeError {
        let raw = error.message();
        let (message, label, help) = reword(raw, also);
        self.labelled(error.span(), message, label, help)
    }

    fn labelled(
        &self,
        span: Option<Range<usize>>,
        message: String,
        label: String,
        help: String,
    ) -> RecipeError {
        let name = self.path.display().to_string();
        // A span past the end (an unfinished last line) would not draw.
        let len = self.text.len();
        let span = span.map(|s| s.start.min(len)..s.end.min(len).max(s.start.min(len)));
        // A whole table as a span would draw many lines: its first line is enough.
        let span = span.map(|s| match self.text.get(s.clone()).and_then(|t| t.find('\n')) {
            Some(end) if end > 0 => s.start..s.start + end,
            _ => s,
        });
        let (text, span) = span.map(|span| short(&self.text, span)).unzip();
        let source_code = text.map(|text| Arc::new(NamedSource::new(name, text).with_language("toml")));
        let help = Some(help).filter(|help| !help.is_empty());
        RecipeError { message, label, help, span: span.map(SourceSpan::from), source_code }
    }
}

/// The most bytes of a line that an error shows, beginning with the place: an axis of thousands of values is one line.
const MOST: usize = 300;

/// The text without the ends of long lines, and the place in it. What is before the place in its line stays: columns are
/// counted from there.
fn short(text: &str, span: Range<usize>) -> (String, Range<usize>) {
    let (mut out, mut place, mut begin) = (String::new(), 0..0, 0);
    for line in text.split_inclusive('\n') {
        let end = begin + line.len();
        let here = (begin..end).contains(&span.start) || (span.start == end && end == text.len());
        let most = MOST + if here { span.start - begin } else { 0 };
        let last = text.floor_char_boundary(if line.len() > most { begin + most } else { end });
        if here {
            let start = out.len() + span.start - begin;
            place = start..start + span.end.clamp(span.start, last) - span.start;
        }
        out.push_str(&text[begin..last]);
        if last < end {
            out.push_str("…\n");
        }
        begin = end;
    }
    (out, place)
}

/// Turns serde's wording into (message, label, help) in the recipe's own terms.
fn reword(raw: &str, also: &[&str]) -> (String, String, String) {
    let quoted: Vec<&str> = raw.split('`').skip(1).step_by(2).collect();
    if raw.starts_with("unknown field") || raw.starts_with("unknown variant") {
        return reword_unknown(raw, &quoted, also);
    }
    if raw.starts_with("missing field") {
        let name = quoted.first().copied().unwrap_or("?");
        let doc = keys::all().iter().find(|entry| entry.key.name == name).map(|entry| entry.key.doc);
        let help = doc.map_or_else(|| format!("add `{name}`"), |doc| format!("add `{name}`: {doc}"));
        return (format!("the key `{name}` is missing"), "in this table".into(), help);
    }
    if let Some(rest) = raw.strip_prefix("invalid type: ") {
        let (message, help) = match rest.split_once(", expected ") {
            // A word for a table whose kind it is.
            Some(("unit variant", "newtype variant")) => (
                "wrong type: expected a table, found a word".into(),
                "write a table with the word as its kind, such as { kind = \"gpt2\" }, or { method = \"lora\" } in [tuning]",
            ),
            Some((found, expected)) => {
                let expected = plain_type(expected);
                let help =
                    if expected == "a table" { "write a table; `runner keys` lists its keys" } else { "" };
                (format!("wrong type: expected {expected}, found {found}"), help)
            }
            None => (format!("wrong type: {rest}"), ""),
        };
        return (message, "wrong type".into(), help.into());
    }
    (raw.to_string(), "here".into(), String::new())
}

/// The same of a key or a value that is not known; `quoted` are the names in `raw`: the one typed, then those that are known.
fn reword_unknown(raw: &str, quoted: &[&str], also: &[&str]) -> (String, String, String) {
    let unknown_field = raw.starts_with("unknown field");
    let (what, plural) = if unknown_field { ("key", "valid keys") } else { ("value", "valid values") };
    let Some((&typed, known)) = quoted.split_first() else {
        return (raw.into(), "here".into(), String::new());
    };
    // Keys that go with a kind, such as `buffers` with `offload.strategy`, of the table that has all of these keys.
    let has = |path: &str| keys::all().iter().any(|entry| is_within(&entry.path, path));
    let is_table = |path: &str| known.iter().all(|name| has(&format!("{path}.{name}")));
    let chosen = keys::all().iter().filter(|entry| {
        unknown_field
            && entry.section.kind.is_some_and(|kind| known.contains(&kind.key))
            && entry.path.rsplit_once('.').is_some_and(|(table, _)| is_table(table))
    });
    let chosen = chosen.map(|entry| entry.key.name);
    let valid = known.iter().chain(also).copied().chain(chosen).unique();
    // A key that is there already may be known elsewhere.
    let valid: Vec<&str> = valid.filter(|name| *name != typed).collect();
    let list = valid.join(", ");
    let (label, help) = match nearest(typed, &valid) {
        Some(best) => (format!("did you mean `{best}`?"), format!("{plural} here: {list}")),
        None if valid.is_empty() => ("no key is allowed here".into(), "remove it".into()),
        None if unknown_field && keys::all().iter().any(|entry| entry.key.name == typed) => {
            let paths = keys::all().iter().filter(|entry| entry.key.name == typed);
            let paths = paths.map(|entry| format!("`{}`", entry.path)).unique().join(" or ");
            (format!("did you mean {paths}?"), format!("{plural} here: {list}"))
        }
        None => (format!("not a valid {what}"), format!("{plural} here: {list}")),
    };
    let (label, help) = match of_other_kinds(typed).filter(|_| unknown_field) {
        Some(kinds) => (kinds, if valid.is_empty() { "remove it".into() } else { help }),
        None => (label, help),
    };
    (format!("unknown {what} `{typed}`"), label, help)
}

/// `k` goes with `data.sampler = "balanced"`: where a key of this name belongs.
fn of_other_kinds(name: &str) -> Option<String> {
    let of_entry = |entry: &Entry| {
        let values = entry.section.kind?.values.iter().map(|value| format!("\"{value}\"")).join(" or ");
        (!values.is_empty()).then(|| format!("{} = {values}", entry.chooser().unwrap_or_default()))
    };
    let kinds = keys::all().iter().filter(|entry| entry.key.name == name).filter_map(of_entry).join(", ");
    (!kinds.is_empty()).then(|| format!("`{name}` goes with {kinds}"))
}

/// serde names Rust types; a user knows TOML's.
fn plain_type(expected: &str) -> String {
    match expected {
        "a string" | "a borrowed string" => "a string".into(),
        e if e.starts_with("struct ") || e == "a map" => "a table".into(),
        e if e.starts_with('u') || e.starts_with('i') => match e {
            "u64" | "u32" | "usize" | "i64" | "i32" => "a whole number".into(),
            other => other.into(),
        },
        "f64" | "f32" => "a number".into(),
        "a sequence" => "a list".into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_behind_the_place() {
        let long = format!("title = \"é\"\nx = [{}]\nkey = 1\n", "1, ".repeat(1000));
        for what in ["title", "x = [1", "key"] {
            let start = long.find(what).unwrap();
            let (text, place) = short(&long, start..start + what.len());
            assert!(text.len() < 400 && text.contains('…'), "{text}");
            assert_eq!(&text[place], what);
        }
        let (text, place) = short(&long, 13..long.len());
        assert!(text[place.clone()].starts_with("x = [1, ") && place.len() == MOST, "{place:?}");
        // A place far behind keeps its column.
        let end = long.find("]\n").unwrap();
        assert_eq!(short(&long, end..end + 1), (long.clone(), end..end + 1));
        assert_eq!(short("a", 1..1), ("a".into(), 1..1));
    }
}
