//! The key table for people: `runner keys` in a terminal, and `docs/recipe.md`.

use super::keys::{self, Entry};
use super::whole;
use crate::common::text;
use crate::keys::key::DefaultValue;
use crate::keys::values::Values;
use crate::keys::{Key, Section};

/// What stands before the tables in `docs/recipe.md`.
const INTRODUCTION: &str = include_str!("reference.md");

/// The keys whose path begins with `prefix`; empty where there are none.
pub fn table(prefix: &str) -> String {
    let line = |entry: &Entry| {
        let with = entry.section.kind.map_or_else(String::new, |kind| match quoted(kind.values).as_slice() {
            [] => format!("{} other than {}", kind.key, quoted(kind.but).join(", ")),
            values => format!("{} = {}", kind.key, values.join(", ")),
        });
        let Entry { path, section, key, .. } = entry;
        vec![path.clone(), with, values(section, key), default(key), key.doc.into()]
    };
    let of_whole = whole::KEYS.iter().filter(|(key, _)| whole::path(key).starts_with(prefix));
    let of_whole = of_whole.map(|(key, doc)| [key, "", "", "", doc].map(String::from).to_vec());
    let of_cells = keys::all().iter().filter(|entry| entry.path.starts_with(prefix)).map(line);
    let lines: Vec<Vec<String>> = of_whole.chain(of_cells).collect();
    if lines.is_empty() {
        return String::new();
    }
    text::wrapped_table(&["key", "with", "values", "default", "what it is for"], lines, 120)
}

/// The whole reference, as Markdown.
pub fn markdown() -> String {
    let mut out = format!("{INTRODUCTION}\n| key | |\n|---|---|\n");
    whole::KEYS.iter().for_each(|(key, doc)| out += &format!("| `{key}` | {doc} |\n"));
    let mut last = None;
    for section in keys::sections() {
        if section.kind.is_none() && last != Some(section.path) {
            let name = if section.path.is_empty() {
                "Top of the recipe".into()
            } else {
                format!("`[{}]`", section.path)
            };
            out += &format!("\n## {name}\n");
        }
        last = Some(section.path);
        out += &format!("\n{}\n", heading(section, |text| format!("`{text}`")));
        if !section.keys.is_empty() {
            out += "\n| key | values | default | |\n|---|---|---|---|\n";
        }
        for key in section.keys {
            let cells = [format!("`{}`", key.name), values(section, key), default(key), key.doc.into()];
            out += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
    }
    out
}

/// `With data.sampler = "packed": Random samples joined.`
fn heading(section: &Section, code: impl Fn(&str) -> String) -> String {
    let Some(kind) = section.kind else { return section.doc.into() };
    let path = section.path_of(kind.key);
    let with = match quoted(kind.values).as_slice() {
        [] => format!("{} other than {}", code(&path), quoted(kind.but).join(", ")),
        values => code(&format!("{path} = {}", values.join(" | "))),
    };
    format!("With {with}: {}", section.doc)
}

fn values(section: &Section, key: &Key) -> String {
    let or = |words: &[String]| words.join(", ");
    match key.values {
        Values::Bool => "true, false".into(),
        Values::BoolOr(words) => format!("true, false, {}", or(&quoted(words))),
        Values::Words(words) => or(&quoted(words)),
        Values::Kinds => or(&quoted(&keys::kinds(section.path, key.name))),
        Values::Whole { least, most } => format!("a whole number from {least} to {most}"),
        Values::WholeOr { least, most, words } => {
            format!("a whole number from {least} to {most}, or {}", or(&quoted(words)))
        }
        Values::Number(range) => range.describe().into(),
        Values::Scale => "a number above 0".into(),
        Values::Numbers(numbers) => or(&numbers.iter().map(f64::to_string).collect::<Vec<_>>()),
        Values::Bytes => "an amount such as \"11 GiB\"".into(),
        Values::Text => "text".into(),
        Values::Texts => "a list of texts".into(),
        Values::Path(words) => format!("{} or a path", or(&quoted(words))),
    }
}

fn default(key: &Key) -> String {
    match key.default {
        DefaultValue::Required => "must be written".into(),
        DefaultValue::Nothing => "none".into(),
        DefaultValue::Depends(phrase) => phrase.into(),
        DefaultValue::Word(word) => format!("\"{word}\""),
        default => default.value().map_or_else(String::new, |value| text::value(&value)),
    }
}

fn quoted(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("\"{word}\"")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `runner keys --markdown > docs/recipe.md`
    #[test]
    fn the_reference_in_the_docs_is_current() {
        let written = include_str!("../../docs/recipe.md");
        assert!(written == markdown(), "write it again: runner keys --markdown > docs/recipe.md");
    }

    #[test]
    fn a_prefix_chooses_keys() {
        let table = table("train.optimizer.weight");
        assert!(table.contains("kind = \"sgd\"") && table.contains("kind = \"adamw\""), "{table}");
        assert!(!table.contains("train.optimizer.lr") && super::table("trian").is_empty());
        for (prefix, says) in
            [("title", "What the report is called"), ("grid", "[grid]"), ("report.b", "baseline")]
        {
            assert!(super::table(prefix).contains(says), "{prefix}");
        }
    }
}
