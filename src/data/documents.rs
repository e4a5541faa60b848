//! The documents of a file of text: JSON lines, WikiText's articles, or text with marks between documents.

use std::path::Path;

use serde_json::Value;

use super::DataError;
use super::tokenizer::END_OF_TEXT;
use crate::words::text::without_mark;

/// A file's documents, none of them empty.
///
/// # Errors
/// A file that cannot be read, or a line that is no document, named.
pub fn read(path: &Path) -> Result<Vec<String>, DataError> {
    let cannot = |e: String| DataError::new(format!("cannot read {}: {e}", path.display()));
    let text = String::from_utf8(std::fs::read(path).map_err(|e| cannot(e.to_string()))?).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        cannot(format!("byte {} is not UTF-8; convert the file to UTF-8", valid + 1))
    })?;
    let text = without_mark(&text);
    let in_line = |(number, line): (usize, &str)| {
        json_document(line)
            .map_err(|e| DataError::new(format!("{}, line {}: {e}", path.display(), number + 1)))
    };
    let documents: Vec<String> = match ending(path).as_str() {
        "jsonl" => {
            let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            lines.map(in_line).collect::<Result<_, _>>()?
        }
        "tokens" | "raw" => articles(text),
        _ => text.split(END_OF_TEXT).map(str::to_string).collect(),
    };
    Ok(documents.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).map(str::to_string).collect())
}

/// The ending of a path in lower case; empty without one.
pub fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default()
}

/// `{ "text": … }`, or `{ "question": …, "answer": … }` one after the other.
fn json_document(line: &str) -> Result<String, String> {
    let value: Value = serde_json::from_str(line).map_err(|e| format!("not JSON: {e}"))?;
    let key = |name: &str| value.get(name).and_then(Value::as_str);
    match (key("text"), key("question"), key("answer")) {
        (Some(text), ..) => Ok(text.to_string()),
        (_, Some(question), Some(answer)) => Ok(format!("{question}\n{answer}")),
        _ => Err("expected the key `text`, or `question` and `answer`, as strings".into()),
    }
}

/// WikiText's articles, each starting with its heading ` = Title = `.
fn articles(text: &str) -> Vec<String> {
    let mut articles = vec![String::new()];
    let mut after_blank = true;
    for line in text.split_inclusive('\n') {
        if after_blank && is_title(line) {
            articles.push(String::new());
        }
        after_blank = line.trim().is_empty();
        let last = articles.len() - 1;
        articles[last].push_str(line);
    }
    articles
}

/// Whether a line is a heading of the first level; the second is ` = = Title = = `.
fn is_title(line: &str) -> bool {
    heading(line)
        .is_some_and(|title| !title.starts_with('=') && !title.ends_with('=') && !title.trim().is_empty())
}

/// The text of a heading of any level.
pub fn heading(line: &str) -> Option<&str> {
    line.trim().strip_prefix("= ")?.strip_suffix(" =")
}
