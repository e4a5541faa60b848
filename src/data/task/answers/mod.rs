//! [`OwnQuestions`]: the user's own questions, from files with columns.

mod choices;
mod prompt;
mod read;
mod rows;

use std::collections::HashSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use prompt::Prompt;
use rows::rows;

use super::scoring::{Scoring, Spelling, expression};
use super::{Method, Problem, Problems};
use crate::data::reader::{Reading, Wanted};
use crate::data::{Corpus, DataError, Split};
use crate::keys::key::DefaultValue::{Bool, Depends, Nothing, Word};
use crate::keys::section::section;
use crate::keys::values::Values;
use crate::keys::{Key, Rule, Section};
use crate::params::hub;

section! {
    /// Questions with answers from a file, or a folder with files of several splits. Splits without a file are held out of the
    /// training questions by the seed, a twentieth each. A question that is held out is never trained on.
    #[derive(Eq)]
    pub struct OwnQuestions: Section::of("task", "kind", &["answers"]) => {
        /// A file, a folder or a data set of the Hub.
        pub path: PathBuf = Key::size(Values::Text).called("problems"),
        /// The configuration of a data set of the Hub, such as "ARC-Easy".
        pub subset: Option<String> = Key::size(Values::Text).default(Nothing),
        /// When an answer is right: it is the same text; it comes to the same number; the right choice is the most likely; or
        /// a regular expression says so.
        pub scoring: ScoringKind =
            Key::size(Values::Words(&["exact", "number", "choice", "regex"])).default(Word("exact")),
        /// The column of the question.
        pub question: String = Key::size(Values::Text).default(Word("question")),
        /// The column of the answer: a text, a number, or a list, any of which is right and the first of which is learned.
        pub answer: String = Key::size(Values::Text).default(Word("answer")),
        /// The column with a list of choices, or the columns of one choice each.
        pub choices: Option<Vec<String>> =
            Key::size(Values::Texts).default(Depends("[\"choices\"] with scoring = \"choice\"")),
        /// What is chosen and learned: the text of a choice, whose choices the prompt does not name; or its letter, with the
        /// choices in the prompt.
        pub choose: Option<Choose> =
            Key::size(Values::Words(&["text", "letter"])).default(Depends("\"text\" with scoring = \"choice\"")),
        /// A regular expression of what counts in a written answer: its first group is compared, or the whole match. Without
        /// it each expected answer is an expression.
        pub pattern: Option<String> = Key::size(Values::Text).default(Nothing),
        /// Whether white space at both ends makes no difference.
        pub trim: bool = Key::size(Values::Bool).default(Bool(true)),
        /// Whether capital and small letters make no difference.
        pub ignore_case: bool = Key::size(Values::Bool).default(Bool(false)),
        /// A Jinja template of the text that is asked, over the columns, `question`, `choices` and `letters`.
        pub prompt: Option<String> =
            Key::size(Values::Text).default(Depends("\"Question: {{ question }}\\nAnswer:\", or the question alone in a chat")),
        /// Whether the question is a user's turn in a chat, and the answer the assistant's.
        pub chat: bool = Key::size(Values::Bool).default(Bool(false)),
    }
}

/// `task.scoring`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoringKind {
    Exact,
    Number,
    Choice,
    Regex,
}

/// `task.choose`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choose {
    Text,
    Letter,
}

impl Method for OwnQuestions {
    fn problems(&self, seed: u64) -> Result<Problems, DataError> {
        let named = |e: String| DataError::new(format!("{}: {e}", self.path.display()));
        let problems = self.problems_of_files()?;
        if problems.train.is_empty() {
            return Err(named(
                "no questions to train on; a file has them whose name says neither valid nor test".into(),
            ));
        }
        let problems = problems.hold_out(seed).map_err(named)?;
        without_duplicates(problems).map_err(named)
    }

    fn path(&self) -> Option<PathBuf> {
        Some(hub::local_with(&self.path, self.reading().needs()))
    }

    fn files(&self) -> Vec<PathBuf> {
        let paths = |corpus: Corpus| corpus.named().iter().map(|(_, path)| path.clone()).collect();
        self.path().and_then(|path| Corpus::open(&path).ok()).map_or(Vec::new(), paths)
    }

    fn next(&self) -> Option<String> {
        let prompt = self.template().ok()?;
        Some(match prompt.beginning() {
            "" => "\n\n".into(),
            beginning => format!("\n{beginning}"),
        })
    }

    fn is_chat(&self) -> bool {
        self.chat
    }

    fn scoring(&self) -> Scoring {
        let spelling = Spelling { trim: self.trim, ignore_case: self.ignore_case };
        match (self.scoring, &self.pattern) {
            (ScoringKind::Exact, _) => Scoring::Exact(spelling),
            (ScoringKind::Number, _) => Scoring::Number,
            (ScoringKind::Choice, _) => Scoring::Choice,
            (ScoringKind::Regex, Some(pattern)) => Scoring::Pattern(pattern.clone(), spelling),
            (ScoringKind::Regex, None) => Scoring::Expression(spelling),
        }
    }

    fn check(&self, written: &dyn Fn(&str) -> bool) -> Result<(), Rule> {
        use ScoringKind::{Choice, Exact, Regex};
        let uses: [(&'static str, &[ScoringKind]); 5] = [
            ("task.choices", &[Choice]),
            ("task.choose", &[Choice]),
            ("task.pattern", &[Regex]),
            ("task.trim", &[Exact, Regex]),
            ("task.ignore_case", &[Exact, Regex]),
        ];
        Rule::refuse_if(
            self.subset.is_some() && self.path.exists(),
            &["task.subset"],
            "task.subset is a configuration of a data set of the Hub, and task.path names files that are here",
            "remove task.subset, or name the folder of these files in task.path",
        )?;
        let unused = uses.into_iter().find(|(key, of)| written(key) && !of.contains(&self.scoring));
        if let Some((key, _)) = unused {
            return Err(Rule::new(
                &[key, "task.scoring"],
                format!("{key} has no effect with this task.scoring"),
                format!("remove {key}, or choose another task.scoring"),
            ));
        }
        if let Some(pattern) = &self.pattern {
            let help = "correct it; \\ is written once in single quotes: pattern = '####\\s*(\\d+)'";
            expression(pattern)
                .map_err(|e| Rule::new(&["task.pattern"], format!("task.pattern: {e}"), help))?;
        }
        let help = "write a Jinja template such as \"Q: {{ question }}\\nA:\"";
        self.template().map(|_| ()).map_err(|e| Rule::new(&["task.prompt"], e, help))
    }
}

impl OwnQuestions {
    fn reading(&self) -> Reading {
        Reading { subset: self.subset.clone(), ..Reading::default() }
    }

    fn template(&self) -> Result<Prompt, String> {
        let usual = || Prompt::usual(self.chat, self.choose == Some(Choose::Letter));
        Prompt::new(self.prompt.clone().unwrap_or_else(usual))
    }

    /// The names of the columns that are read. What stands before a dot may be a column too.
    fn columns(&self) -> Vec<String> {
        let choices = self.choices.clone().unwrap_or_else(|| vec!["choices".into()]);
        let others = self.template().map_or(Vec::new(), |prompt| prompt.columns());
        let named = [self.question.clone(), self.answer.clone()].into_iter().chain(choices).chain(others);
        named.flat_map(|name| [name.split('.').next().unwrap_or_default().to_string(), name]).collect()
    }

    /// The problems of all files.
    fn problems_of_files(&self) -> Result<Problems, DataError> {
        let root = hub::fetched(&self.path, self.reading().needs()).map_err(DataError::new)?;
        let (corpus, wanted) = (Corpus::open(&root)?, Wanted::these(self.columns()));
        let (mut places, mut all) = (Vec::new(), Vec::new());
        for (split, file) in corpus.named() {
            all.extend(rows(file, &wanted)?);
            places.resize(all.len(), *split);
        }
        let mut problems = Problems::default();
        for (split, problem) in places.into_iter().zip(self.read(&all).map_err(DataError::new)?) {
            problems.of_mut(split).push(problem);
        }
        problems.are_chats = self.chat;
        Ok(problems)
    }
}

/// Without those questions that are trained on or validated with, and are also held out.
///
/// # Errors
/// A split of which nothing is left.
fn without_duplicates(mut problems: Problems) -> Result<Problems, String> {
    let question = |problem: &Problem| problem.text.prompt.trim().to_string();
    let mut held_out: HashSet<String> = problems.test.iter().map(question).collect();
    for split in [Split::Valid, Split::Train] {
        let own = problems.of_mut(split);
        let before = own.len();
        own.retain(|problem| !held_out.contains(&question(problem)));
        let left_out = before - own.len();
        held_out.extend(own.iter().map(question));
        if own.is_empty() {
            return Err(format!(
                "every question of \"{split}\" is held out in another file too; remove it from one"
            ));
        }
        problems.duplicates += left_out;
    }
    Ok(problems)
}

#[cfg(test)]
#[path = "chats_tests.rs"]
mod chats_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
