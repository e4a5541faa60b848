//! [`Row`]: a row of a file with its place, and the [`texts`] of a value.

use std::path::Path;

use minijinja::Value;
use minijinja::value::ValueKind;

use crate::data::DataError;
use crate::data::reader::{self, Fields, Wanted};

/// A row of a file.
pub struct Row {
    /// The file and the line, for an error.
    pub place: String,
    pub fields: Fields,
}

/// The rows of a file with columns.
///
/// # Errors
/// A file without columns, and a row that cannot be read, named.
pub fn rows(path: &Path, wanted: &Wanted) -> Result<Vec<Row>, DataError> {
    let (mut rows, mut all) = (reader::rows(path, wanted.clone())?, Vec::new());
    while let Some(row) = rows.next().transpose()? {
        let place = rows.place(row.number);
        let fields = row.columns.map_err(|reason| DataError::new(format!("{place}: {reason}")))?;
        all.push(Row { place, fields });
    }
    Ok(all)
}

impl Row {
    /// What is wrong with it.
    pub fn says(&self, problem: &str) -> String {
        format!("{}: {problem}", self.place)
    }

    /// What stands in a column; a dot leads into an object.
    ///
    /// # Errors
    /// A column that is missing; lists those that there are.
    pub fn column(&self, key: &str, name: &str) -> Result<Value, String> {
        let named = |name: &str| self.fields.get(name).filter(|value| !value.is_undefined()).cloned();
        let value = named(name).or_else(|| {
            let mut parts = name.split('.');
            let first = named(parts.next()?)?;
            parts.try_fold(first, |value, part| {
                value.get_attr(part).ok().filter(|value| !value.is_undefined())
            })
        });
        value.ok_or_else(|| self.lacks(key, name))
    }

    /// Of a column that `task.{key}` names.
    pub fn lacks(&self, key: &str, name: &str) -> String {
        let names = self.fields.names().join(", ");
        self.says(&format!("there is no column `{name}`, which task.{key} names; the columns are {names}"))
    }
}

/// The texts of a value: of a text or a number itself, of a list those of its elements, of an object those of its column
/// `text`, as SQuAD and ARC have it. None of nothing.
pub fn texts(value: &Value) -> Vec<String> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter().into_iter().flatten().flat_map(|element| texts(&element)).collect()
        }
        ValueKind::Map => value.get_attr("text").map_or(Vec::new(), |value| texts(&value)),
        ValueKind::String | ValueKind::Number | ValueKind::Bool => vec![value.to_string()],
        _ => Vec::new(),
    }
}

/// The list that a text is, in JSON: a field of CSV has lists so.
pub fn listed(value: Value) -> Value {
    let text = value.as_str().filter(|text| text.trim_start().starts_with('['));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(value)
}

/// Whether there are numbers alone.
pub fn are_numbers(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter().into_iter().flatten().all(|element| are_numbers(&element))
        }
        kind => kind == ValueKind::Number,
    }
}
