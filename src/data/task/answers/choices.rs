//! [`right_ones`]: which of its choices is the right one of each question of a file.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::rows::texts;

/// What a question's columns say.
pub struct Offered {
    /// Where it stands, for an error.
    pub place: String,
    pub choices: Vec<String>,
    /// Whether the file has numbers as choices, and no texts.
    pub are_numbers: bool,
    /// The names of the choices, where the file has names of its own.
    pub labels: Vec<String>,
    pub answer: Value,
}

/// How a file says which choice is right.
#[derive(Clone, Copy)]
enum Reading {
    /// The text of the choice.
    Text,
    /// The choice's own name.
    Label,
    /// A for the first.
    Letter,
    /// 0 for the first.
    Index,
}

const READINGS: [Reading; 4] = [Reading::Text, Reading::Label, Reading::Letter, Reading::Index];

/// The name of a choice that has none; there are 26.
pub fn letter(place: usize) -> String {
    char::from(b'A' + place as u8).into()
}

/// The place of the right choice of each question. All of them are read in one way.
///
/// # Errors
/// An answer that is not among the choices, and answers that can be read in two ways; names the question.
pub fn right_ones(questions: &[Offered]) -> Result<Vec<usize>, String> {
    let read = |reading| move |question: &Offered| question.place_of(reading);
    let all = READINGS.map(|reading| questions.iter().map_while(read(reading)).collect::<Vec<usize>>());
    let mut whole = all.iter().filter(|places| places.len() == questions.len());
    let Some(places) = whole.next() else {
        let furthest = all.iter().map(Vec::len).max().unwrap_or(0);
        let Offered { place, choices, answer, .. } = &questions[furthest];
        return Err(format!(
            "{place}: the answer \"{answer}\" is not among the choices \"{}\"; an answer is the text of a choice, its \
             label, its letter (A for the first) or its index (0 for the first), the same for all questions",
            choices.join("\", \"")
        ));
    };
    let other =
        whole.find_map(|other| (0..questions.len()).find(|question| other[*question] != places[*question]));
    match other {
        None => Ok(places.clone()),
        Some(question) => {
            let Offered { place, choices, answer, .. } = &questions[question];
            Err(format!(
                "{place}: the answer \"{answer}\" can be read in two ways with the choices \"{}\": as a text or label, and \
                 as a letter or index; write into the column whichever of the two is no choice",
                choices.join("\", \"")
            ))
        }
    }
}

impl Offered {
    /// The place of the right choice, if the answer is read so.
    fn place_of(&self, reading: Reading) -> Option<usize> {
        let answer = texts(&self.answer).into_iter().next()?;
        let answer = answer.trim();
        let is_index = self.answer.kind() == ValueKind::Number && !self.are_numbers;
        let place = |names: &[String]| names.iter().position(|name| *name == answer);
        match reading {
            // A number is no text, also where a choice is spelled so.
            Reading::Text | Reading::Label | Reading::Letter if is_index => None,
            Reading::Text => place(&self.choices),
            Reading::Label => place(&self.labels),
            Reading::Letter => place(&(0..self.choices.len()).map(letter).collect::<Vec<_>>()),
            Reading::Index => answer.parse().ok().filter(|index| *index < self.choices.len()),
        }
    }
}
