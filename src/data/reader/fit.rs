//! Which [`Format`] the columns of a record fit.

use super::{Columns, Format, Reading};
use crate::common::text::few;

/// Columns that a message lists.
const MOST_NAMED: usize = 20;

impl Format {
    /// In the order in which they are listed.
    const ALL: [Self; 7] = [
        Self::Text,
        Self::Messages,
        Self::Conversations,
        Self::PromptCompletion,
        Self::Instruction,
        Self::QuestionAnswer,
        Self::InputIds,
    ];

    /// The keys of the columns that it must have.
    pub fn required(self) -> &'static [&'static str] {
        match self {
            Self::Text => &["text"],
            Self::Messages => &["messages"],
            Self::Conversations => &["conversations"],
            Self::PromptCompletion => &["prompt", "completion"],
            Self::Instruction => &["instruction", "output"],
            Self::QuestionAnswer => &["question", "answer"],
            Self::InputIds => &["input_ids"],
        }
    }

    /// The keys of the columns that it may have.
    fn optional(self) -> &'static [&'static str] {
        match self {
            Self::Messages | Self::Conversations | Self::PromptCompletion => &["tools"],
            Self::Instruction => &["input"],
            Self::InputIds => &["labels"],
            Self::Text | Self::QuestionAnswer => &[],
        }
    }

    fn reads(self, key: &str) -> bool {
        self.required().contains(&key) || self.optional().contains(&key)
    }
}

/// The names of all columns that a record may be read from.
pub fn names(reading: &Reading) -> Vec<String> {
    let formats: &[Format] = reading.format.as_ref().map_or(&Format::ALL, std::slice::from_ref);
    let keys = formats.iter().flat_map(|format| format.required().iter().chain(format.optional()));
    keys.map(|key| reading.columns.name(key).to_string()).collect()
}

/// The format that the columns fit, of which `has` says whether one is there; `there`: the names of all.
///
/// # Errors
/// None or several; and a column that the recipe names and that is not there.
pub fn fitting(reading: &Reading, has: impl Fn(&str) -> bool, there: &[&str]) -> Result<Format, String> {
    let columns = &reading.columns;
    let listed =
        || format!("its columns are {}", few(there.iter().map(|name| format!("`{name}`")), MOST_NAMED));
    let fits = |format: &Format| format.required().iter().all(|key| has(columns.name(key)));
    let named = |format: &Format| columns.written().all(|(key, _)| format.reads(key));
    let is_null = |format: Format| {
        let names = || format.required().iter().map(|key| columns.name(key));
        names().find(|name| !has(name)).filter(|_| names().all(|name| there.contains(&name)))
    };
    let candidates = reading.format.as_ref().map_or(&Format::ALL[..], std::slice::from_ref);
    let null = || candidates.iter().find_map(|format| is_null(*format));
    if let Some(format) = reading.format {
        let missing = format.required().iter().map(|key| columns.name(key)).find(|name| !has(name));
        return match (missing, null()) {
            (None, _) => Ok(format),
            (_, Some(name)) => Err(format!("`{name}` is null")),
            (Some(name), None) => Err(format!(
                "data.format = \"{format}\" needs a column `{name}`, and there is none; {}",
                listed()
            )),
        };
    }
    if let Some((key, name)) = columns.written().find(|(_, name)| !there.contains(name)) {
        return Err(format!("there is no column `{name}`, which data.columns.{key} names; {}", listed()));
    }
    let fitting: Vec<Format> =
        Format::ALL.into_iter().filter(|format| fits(format) && named(format)).collect();
    match (&fitting[..], null()) {
        ([format], _) => Ok(*format),
        ([], Some(name)) => Err(format!("`{name}` is null")),
        ([], None) => Err(format!("{}; {}", expected(columns), listed())),
        _ => Err(format!(
            "its columns fit more than one format: {}; say which in data.format",
            fitting.iter().map(|format| format!("\"{format}\"")).collect::<Vec<_>>().join(", ")
        )),
    }
}

fn expected(columns: &Columns) -> String {
    let format = |format: Format| {
        let names = format.required().iter().map(|key| format!("`{}`", columns.name(key)));
        names.collect::<Vec<_>>().join(" and ")
    };
    format!(
        "expected the column {}; [data.columns] takes other names, as prompt = \"question\"",
        Format::ALL.map(format).join(", or ")
    )
}
