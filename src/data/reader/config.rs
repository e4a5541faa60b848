//! [`Reading`]: the keys of `[data]` that say how files become records, and [`Learn`]: what of these is learned.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::kind::{Kind, describes};
use crate::keys::key::DefaultValue::Depends;
use crate::keys::section::section;
use crate::keys::values::Values;
use crate::keys::{Key, Section};
use crate::params::hub::{Needs, Records};

/// How the files of a corpus are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// `None`: what the columns of each record fit.
    pub format: Option<Format>,
    pub columns: Columns,
    /// Whether records that cannot be read are left out and counted, in place of an error.
    pub skip_broken: bool,
    /// The share of the training files' records that is held out.
    pub held_out: Option<f64>,
    /// The configuration of a data set of the Hub.
    pub subset: Option<String>,
}

impl Reading {
    /// What is needed of a data set of the Hub.
    pub fn needs(&self) -> Needs<'_> {
        let is_read = |path: &Path| Kind::from_path(path).is_some() && !describes(path);
        Needs::Records(Records { subset: self.subset.as_deref(), is_read })
    }
}

/// `data.format`: what the records of a file are.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Format {
    Text,
    /// A conversation of `role` and `content`, as OpenAI's.
    Messages,
    /// A conversation of `from` and `value`, as ShareGPT's.
    Conversations,
    PromptCompletion,
    /// An instruction with or without an input, and its output, as Alpaca's.
    Instruction,
    QuestionAnswer,
    InputIds,
}

impl Format {
    /// As recipes write them.
    pub const WORDS: [&str; 7] = [
        "text",
        "messages",
        "conversations",
        "prompt_completion",
        "instruction",
        "question_answer",
        "input_ids",
    ];
}

/// `data.learn`: which tokens count in the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Learn {
    /// The turns of a chat's assistant, completions and answers.
    #[default]
    Assistant,
    All,
}

/// Declares [`Columns`]: each key is the name that the column has in the file, and without it its own.
macro_rules! columns {
    ($($key:ident: $about:literal),* $(,)?) => {
        section! {
            /// Names of the columns of JSON, CSV and parquet files, where they have others than these.
            #[derive(Default, Eq)]
            pub struct Columns: Section::new("data.columns") => {
                $(
                    #[doc = $about]
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    pub $key: Option<String> = Key::size(Values::Text)
                        .default(Depends(concat!("\"", stringify!($key), "\"")))
                        .called(concat!("column of ", stringify!($key))),
                )*
            }
        }

        impl Columns {
            /// The keys that are written, with the names of their columns.
            pub fn written(&self) -> impl Iterator<Item = (&'static str, &str)> {
                [$((stringify!($key), &self.$key)),*]
                    .into_iter()
                    .filter_map(|(key, name)| Some((key, name.as_deref()?)))
            }

            /// The name of the column of a key.
            pub fn name<'a>(&'a self, key: &'a str) -> &'a str {
                self.written().find(|(written, _)| *written == key).map_or(key, |(_, name)| name)
            }
        }
    };
}

columns! {
    text: "Text, all of which is learned.",
    messages: "A list of messages with `role` and `content`.",
    conversations: "A list of turns with `from` and `value`.",
    prompt: "What is given before `completion`.",
    completion: "What is learned after `prompt`.",
    instruction: "What is asked for; `output` is the answer.",
    input: "What an instruction is about; it may be missing or empty.",
    output: "The answer to an instruction.",
    question: "What is given before `answer`.",
    answer: "What is learned after `question`.",
    input_ids: "A list of tokens.",
    labels: "A list as long as `input_ids`: -100 where a token is given, and else the token.",
    tools: "Functions that a chat may call.",
}
