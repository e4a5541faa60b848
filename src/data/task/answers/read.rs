//! Rows of a file become problems.

use super::choices::{Offered, letter, right_ones};
use super::prompt::Prompt;
use super::rows::{Row, are_numbers, listed, texts};
use super::{Choose, OwnQuestions, ScoringKind};
use crate::data::Prompted;
use crate::data::task::{Method, Problem};

/// Letters that name choices.
const LETTERS: usize = 26;

impl OwnQuestions {
    /// The problems of rows.
    ///
    /// # Errors
    /// A row of which none can be made; names it and says why.
    pub(super) fn read(&self, rows: &[Row]) -> Result<Vec<Problem>, String> {
        let prompt = self.template()?;
        if self.scoring != ScoringKind::Choice {
            return rows.iter().map(|row| self.written(&prompt, row)).collect();
        }
        let offered: Vec<Offered> = rows.iter().map(|row| self.offered(row)).collect::<Result<_, _>>()?;
        let right = right_ones(&offered)?;
        let of_rows = rows.iter().zip(&offered).zip(right);
        of_rows.map(|((row, offered), right)| self.chosen(&prompt, row, &offered.choices, right)).collect()
    }

    /// A question that is answered in writing.
    fn written(&self, prompt: &Prompt, row: &Row) -> Result<Problem, String> {
        let mut answers = texts(&row.column("answer", &self.answer)?);
        if self.trim {
            answers.iter_mut().for_each(|answer| *answer = answer.trim().into());
        }
        if answers.is_empty() || answers.iter().any(|answer| answer.trim().is_empty()) {
            return Err(row.says("the answer is empty; write one, or remove the question"));
        }
        let scoring = self.scoring();
        answers.iter().try_for_each(|answer| scoring.check(answer)).map_err(|e| row.says(&e))?;
        let prompt = self.asked(prompt, row, &[])?;
        let completion = self.completion(&prompt, &answers[0]);
        Ok(Problem { text: Prompted { prompt, completion }, answers, choices: Vec::new() })
    }

    /// What is chosen from in a row.
    fn offered(&self, row: &Row) -> Result<Offered, String> {
        let usual = ["choices".to_string()];
        let names = self.choices.as_deref().unwrap_or(&usual);
        let mut columns =
            names.iter().map(|name| row.column("choices", name)).collect::<Result<Vec<_>, _>>()?;
        if let [column] = columns.as_mut_slice() {
            *column = listed(std::mem::take(column));
        }
        let choices: Vec<String> =
            columns.iter().flat_map(texts).map(|choice| choice.trim().into()).collect();
        let labels = columns.iter().filter_map(|column| column.get_attr("label").ok());
        let is_too_long = self.choose == Some(Choose::Letter) && choices.len() > LETTERS;
        if choices.len() < 2 || is_too_long || choices.iter().any(String::is_empty) {
            return Err(row.says(&format!(
                "the choices are \"{}\"; a question needs at least two, none of them empty, and at most {LETTERS} with \
                 choose = \"letter\"",
                choices.join("\", \"")
            )));
        }
        Ok(Offered {
            place: row.place.clone(),
            are_numbers: columns.iter().all(are_numbers),
            labels: labels.flat_map(|labels| texts(&labels)).collect(),
            answer: row.column("answer", &self.answer)?,
            choices,
        })
    }

    /// A question with choices.
    fn chosen(
        &self,
        prompt: &Prompt,
        row: &Row,
        choices: &[String],
        right: usize,
    ) -> Result<Problem, String> {
        let prompt = self.asked(prompt, row, choices)?;
        let choose = |place: usize| match self.choose {
            Some(Choose::Letter) => self.completion(&prompt, &letter(place)),
            _ => self.completion(&prompt, &choices[place]),
        };
        let choices: Vec<String> = (0..choices.len()).map(choose).collect();
        let completion = choices[right].clone();
        Ok(Problem { answers: vec![completion.clone()], text: Prompted { prompt, completion }, choices })
    }

    /// The text that is asked.
    fn asked(&self, prompt: &Prompt, row: &Row, choices: &[String]) -> Result<String, String> {
        let question = match row.column("question", &self.question) {
            Ok(question) => texts(&question).concat(),
            // A template may name other columns.
            Err(_) if self.prompt.is_some() => String::new(),
            Err(e) => return Err(e),
        };
        let text = prompt.text(row, question.trim(), choices)?;
        match text.trim().is_empty() || (self.prompt.is_none() && question.trim().is_empty()) {
            true => Err(row.says("the question is empty; write one, or remove the row")),
            false => Ok(text),
        }
    }

    /// An answer behind its prompt: with a space between the two, unless white space or a turn ends the prompt.
    fn completion(&self, prompt: &str, answer: &str) -> String {
        if self.chat || prompt.ends_with(char::is_whitespace) { answer.into() } else { format!(" {answer}") }
    }
}
