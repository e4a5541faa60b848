//! [`Task`]: the recipe's `[task]` section: questions that a language model is trained to answer, and how its answers
//! are measured. A kind of task makes the problems; what follows from them is the same for all.

mod answer;
mod answers;
mod asking;
mod exam;
mod gsm8k;
mod likelihood;
mod number;
mod scoring;
mod sums;
mod topics;

use std::path::PathBuf;

use minijinja::Value;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

pub use answers::OwnQuestions;
pub use exam::{Exam, Question, Questions, beginning};
pub use gsm8k::Gsm8k;
pub use likelihood::Choice;
pub use scoring::Scoring;
pub use sums::{LastLine, Sums};
pub use topics::Topics;

use super::record::{Chat, Record};
use super::{DataError, Prompted, Split};
use crate::keys::key::DefaultValue::{Nothing, Whole};
use crate::keys::section::{kinds, section};
use crate::keys::values::{COUNT, COUNT_OR_ZERO, Values};
use crate::keys::{Key, Rule, Section};

section! {
    /// Problems with answers, which `data.corpus = "task"` trains on: a question is given, and its answer is learned.
    pub struct Task: Section::new("task") => {
        /// Which problems.
        pub kind: TaskKind = Key::size(Values::Kinds).called("task"),
        /// Questions of each test set that the model answers before training and after it. Without the key it answers none.
        pub evaluate_generation: Option<usize> =
            Key::method(COUNT).default(Nothing).called("questions"),
        /// Worked examples before each of these questions, from the training split.
        pub examples: usize = Key::size(COUNT_OR_ZERO).default(Whole(3)),
        /// Most tokens of an answer.
        pub max_new_tokens: usize = Key::size(COUNT).default(Whole(256)).called("answer tokens"),
        /// Questions that are answered together.
        pub batch_size: usize =
            Key::method(COUNT).default(Whole(16)).called("questions at once"),
    }
}

kinds! {
    /// What the problems are.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum TaskKind: Method {
        Answers(OwnQuestions),
        Gsm8k(Gsm8k),
        Sums(Sums),
        Topics(Topics),
    }
}

/// What sets one kind of task apart from the others.
pub trait Method {
    /// All problems. The seed decides their order, and their parts where the problems do not.
    ///
    /// # Errors
    /// Files that cannot be read, or have something else in them.
    fn problems(&self, seed: u64) -> Result<Problems, DataError>;

    /// The file or folder that the problems are read from, if they are.
    fn path(&self) -> Option<PathBuf> {
        None
    }

    /// The files that [`problems`](Self::problems) reads, in its order.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// What every prompt begins with, or stands before it: a model that writes this after an answer begins another problem.
    /// `None` where a classifier answers, or there is nothing to answer.
    fn next(&self) -> Option<String> {
        None
    }

    /// When an answer is right.
    fn scoring(&self) -> Scoring {
        Scoring::Number
    }

    /// Whether questions are users' turns in a chat.
    fn is_chat(&self) -> bool {
        false
    }

    /// Refuses keys without effect. `written`: whether a dotted key stands in the recipe.
    fn check(&self, _written: &dyn Fn(&str) -> bool) -> Result<(), Rule> {
        Ok(())
    }

    /// The number of classes, where a prompt's completion is the number of its class; `None` where completions are text that
    /// the model writes.
    fn classes(&self) -> Option<usize> {
        None
    }
}

/// A question with its answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The question is given, and an answer is learned.
    pub text: Prompted,
    /// Each of them is right.
    pub answers: Vec<String>,
    /// What a model chooses from, the right one among them; empty where it writes its answer.
    pub choices: Vec<String>,
}

impl Problem {
    /// The text to learn is the answer.
    fn new(text: Prompted) -> Self {
        Self { answers: vec![text.completion.clone()], choices: Vec::new(), text }
    }
}

/// The problems of a task, split into parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Problems {
    pub train: Vec<Problem>,
    pub valid: Vec<Problem>,
    pub test: Vec<Problem>,
    /// Of a test set that comes with the task, with its name.
    pub published: Option<(&'static str, Vec<Problem>)>,
    /// Whether a question is a user's turn in a chat, and its answer the assistant's.
    pub are_chats: bool,
    /// Questions that a split held out has too: they are left out.
    pub duplicates: usize,
}

/// One in so many problems is held out for validation, and one for the test: 90/5/5.
const PARTS: usize = 20;

impl Problems {
    pub fn of(&self, split: Split) -> &[Problem] {
        match split {
            Split::Train => &self.train,
            Split::Valid => &self.valid,
            Split::Test => &self.test,
        }
    }

    fn of_mut(&mut self, split: Split) -> &mut Vec<Problem> {
        match split {
            Split::Train => &mut self.train,
            Split::Valid => &mut self.valid,
            Split::Test => &mut self.test,
        }
    }

    /// What is trained on of a split.
    pub fn records(&self, split: Split) -> impl Iterator<Item = Record> {
        let record = |Problem { text, .. }: &Problem| match self.are_chats {
            true => Record::Chat(conversation([(text.prompt.as_str(), Some(text.completion.as_str()))])),
            false => Record::Pair(text.clone()),
        };
        self.of(split).iter().map(record)
    }

    /// Prompts with what is learned of a split.
    pub fn texts(&self, split: Split) -> Vec<Prompted> {
        self.of(split).iter().map(|problem| problem.text.clone()).collect()
    }

    /// Holds out one in [`PARTS`] of the training problems, drawn by the seed, for each other split that has none.
    ///
    /// # Errors
    /// Too few problems; says what to change.
    fn hold_out(mut self, seed: u64) -> Result<Self, String> {
        let (part, count) = (self.train.len() / PARTS, self.train.len());
        self.train.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        for split in [&mut self.test, &mut self.valid].into_iter().filter(|split| split.is_empty()) {
            if part == 0 {
                return Err(format!("{count} problems; a split in 90/5/5 needs {PARTS}"));
            }
            *split = self.train.split_off(self.train.len() - part);
        }
        Ok(self)
    }
}

/// A chat of users' turns, each with the assistant's, if it has answered.
pub(super) fn conversation<'t>(turns: impl IntoIterator<Item = (&'t str, Option<&'t str>)>) -> Chat {
    let message = |role: &str, content: &str| Value::from_pairs([("role", role), ("content", content)]);
    let messages = turns.into_iter().flat_map(|(question, answer)| {
        let answer = answer.map(|answer| message("assistant", answer));
        std::iter::once(message("user", question)).chain(answer)
    });
    Chat { messages: messages.collect(), tools: None }
}

impl Task {
    /// Refuses files that do not hold the task's problems. Files that are missing pass: a recipe is also checked on machines
    /// where it does not run.
    pub(crate) fn check_files(&self, seed: u64) -> Result<(), Rule> {
        let files = self.kind.files();
        if files.is_empty() || files.iter().any(|file| !file.exists()) {
            return Ok(());
        }
        let help = "correct it, or name other files in task.path";
        self.kind
            .problems(seed)
            .map(|_| ())
            .map_err(|e| Rule::new(&["task.path", "task"], e.to_string(), help))
    }
}
