//! [`Rendered`]: a text, and where the template says that the model generates it.

use std::ops::Range;

/// Begin and end of what is generated. No text has these: Unicode gives them no meaning.
pub const MARKS: [char; 2] = ['\u{fdd0}', '\u{fdd1}'];

/// The text of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    pub text: String,
    /// What stands between marks, in bytes; as transformers' `return_assistant_tokens_mask` has it.
    pub generated: Vec<Range<usize>>,
}

impl Rendered {
    /// Takes the marks out of a text.
    ///
    /// # Errors
    /// When the text itself has such characters, or the template divides it within marks.
    pub fn new(marked: &str) -> Result<Self, String> {
        let (mut rendered, mut start) = (Self::default(), None);
        for part in marked.split_inclusive(MARKS) {
            let mark = part.chars().next_back().filter(|last| MARKS.contains(last));
            rendered.text.push_str(part.trim_end_matches(MARKS));
            start = match (mark, start) {
                (None, start) => start,
                (Some(mark), None) if mark == MARKS[0] => Some(rendered.text.len()),
                (Some(mark), Some(start)) if mark == MARKS[1] => {
                    rendered.generated.push(start..rendered.text.len());
                    None
                }
                _ => return Err(unpaired()),
            };
        }
        if start.is_some() { Err(unpaired()) } else { Ok(rendered) }
    }
}

fn unpaired() -> String {
    "the template's marks of what is generated do not stand in pairs, or the text has the characters U+FDD0 or U+FDD1, which \
     mean nothing and stand for marks"
        .into()
}
