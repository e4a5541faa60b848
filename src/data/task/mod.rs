//! [`Task`]: the recipe's `[task]` section: questions that a language model is trained to answer, and how its answers
//! are measured. A kind of task makes the problems; what follows from them is the same for all.

mod answer;
mod exam;
mod gsm8k;
mod number;
mod sums;
mod topics;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use exam::{Exam, Questions, beginning};
pub use gsm8k::Gsm8k;
pub use sums::{LastLine, Sums};
pub use topics::Topics;

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

    /// The files that [`problems`](Self::problems) reads, in its order.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// What every prompt begins with, or stands before it: a model that writes this after an answer begins another problem.
    /// `None` where problems have no number as an answer.
    fn next(&self) -> Option<&'static str> {
        None
    }

    /// The number of classes, where a prompt's completion is the number of its class; `None` where completions are text that
    /// the model writes.
    fn classes(&self) -> Option<usize> {
        None
    }
}

/// The problems of a task, split into parts. An answer ends with a line `#### n`, or is the number of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Problems {
    pub train: Vec<Prompted>,
    pub valid: Vec<Prompted>,
    pub test: Vec<Prompted>,
    /// Of a test set that comes with the task, with its name.
    pub published: Option<(&'static str, Vec<Prompted>)>,
}

impl Problems {
    pub fn of(&self, split: Split) -> &[Prompted] {
        match split {
            Split::Train => &self.train,
            Split::Valid => &self.valid,
            Split::Test => &self.test,
        }
    }
}

impl Task {
    /// Refuses files that do not hold the task's problems. Files that are missing pass: a recipe is also checked on machines
    /// where it does not run.
    pub(crate) fn check_files(&self, seed: u64) -> Result<(), Rule> {
        let files = self.kind.files();
        if files.is_empty() || files.iter().any(|file| !file.exists()) {
            return Ok(());
        }
        let help = "correct the line, or name another folder in task.path";
        self.kind
            .problems(seed)
            .map(|_| ())
            .map_err(|e| Rule::new(&["task.path", "task"], e.to_string(), help))
    }
}
