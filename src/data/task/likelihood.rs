//! [`Choice`]: a choice behind its prompt, and how likely the model finds it.

use super::Problem;
use super::asking::Asking;
use crate::data::collate::NO_LABEL;
use crate::data::{Collated, DataError};
use crate::params::tuning::VirtualTokens;

/// What a question can be answered with.
pub struct Choice {
    /// The choice alone.
    pub text: String,
    tokens: Vec<u32>,
    /// How many of them are the prompt's.
    given: usize,
}

impl Choice {
    /// The choices of a problem behind the `text` of its question. Both are tokenised as one text, as in training.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text, or a choice is none of it.
    pub(super) fn all(problem: &Problem, text: &str, asking: &Asking) -> Result<Vec<Self>, DataError> {
        let choice = |choice: &String| {
            let (tokens, given) = asking.answered(text, choice)?;
            if given == tokens.len() {
                return Err(DataError::new(format!(
                    "the choice \"{choice}\" has no token: the tokenizer leaves its characters out; write another text"
                )));
            }
            Ok(Self { text: choice.clone(), tokens, given })
        };
        problem.choices.iter().map(choice).collect()
    }

    /// Of the prompt and the choice.
    pub(super) fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// A row for each choice, filled up behind it. The choice's tokens alone are predicted.
    pub fn collated(choices: &[&Self], virtual_tokens: Option<VirtualTokens>) -> Collated {
        let width = choices.iter().map(|choice| choice.tokens.len()).max().unwrap_or(0);
        let mut batch = Collated { rows: choices.len(), width, ..Collated::default() };
        for choice in choices {
            let (length, tokens) = (choice.tokens.len(), choice.tokens.iter().map(|token| *token as i32));
            let padding = width - length;
            let labels =
                tokens.clone().enumerate().map(|(i, token)| if i < choice.given { NO_LABEL } else { token });
            let mut labels = labels.chain(std::iter::repeat_n(NO_LABEL, padding + 1));
            batch.first_labels.extend(labels.next());
            batch.labels.extend(labels);
            batch.ids.extend(tokens.chain(std::iter::repeat_n(0, padding)));
            batch.positions.extend(0..width as i32);
        }
        batch.with_virtual_tokens(virtual_tokens)
    }

    /// The mean log-likelihood of a character, from the losses of the row's tokens in nats: longer choices are less likely for
    /// their length alone. lm-evaluation-harness calls the accuracy that follows `acc_norm`.
    pub fn log_likelihood(&self, losses: &[f32]) -> f64 {
        let sum: f64 = losses.iter().map(|loss| f64::from(*loss)).sum();
        -sum / self.text.trim_start().chars().count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Prompted, Tokenizer};

    #[test]
    fn the_choice_alone_is_predicted() {
        let choices: Vec<String> = [" be", " é"].map(String::from).into();
        let text = Prompted { prompt: "to".into(), completion: choices[0].clone() };
        let problem = Problem { text, answers: vec![choices[0].clone()], choices };
        let tokenizer = Tokenizer::train(&[], 257).unwrap();
        let asking = Asking { tokenizer: &tokenizer, template: None, examples: Vec::new() };
        let all = Choice::all(&problem, "ab to", &asking).unwrap();
        let batch = Choice::collated(&all.iter().collect::<Vec<_>>(), None);
        let ids = |text: &str| tokenizer.encode(text).unwrap().into_iter().map(|id| id as i32);
        let [be, e] = [" be", " é"].map(|text| ids(text).collect::<Vec<i32>>());
        assert_eq!((batch.rows, batch.width, be.len(), e.len()), (2, 8, 3, 3));
        let given = [NO_LABEL; 4];
        let labels = [&given[..], &be, &[NO_LABEL], &given, &e, &[NO_LABEL]].concat();
        assert_eq!(batch.labels, labels);
        assert_eq!(batch.ids, ids("ab to beab to é").collect::<Vec<_>>());
        assert_eq!(batch.positions, [0, 1, 2, 3, 4, 5, 6, 7].repeat(2));
        // By its characters without the space: one, though it has two bytes.
        let losses = [0.0, 0.5, 2.0, 3.5];
        assert_eq!(all.iter().map(|choice| choice.log_likelihood(&losses)).collect::<Vec<_>>(), [-3.0, -6.0]);
        // Padding is no part of a choice.
        let longer = Choice { text: "a".into(), tokens: vec![1; 10], given: 8 };
        let batch = Choice::collated(&[&all[0], &longer], None);
        assert_eq!(batch.labels[..10], [&given[..], &be, &[NO_LABEL; 3]].concat());
        assert_eq!(batch.labels[10..], [&[NO_LABEL; 7][..], &[1, 1, NO_LABEL]].concat());
    }
}
