//! `[parallel]`: a cell in several processes, and how they divide its work.

use serde::{Deserialize, Serialize};

use super::pipeline::Pipeline;
use crate::residence::Shard;
use crate::words::key::DefaultValue::{Number, Whole, Word};
use crate::words::section::section;
use crate::words::values::{POSITIVE, Values};
use crate::words::{Key, Rule, Section};

/// Most ranks of a cell: each has a connection to every other.
const MOST_RANKS: i64 = 256;

section! {
    /// Several processes for a cell, its ranks.
    pub struct Parallel: Section::new("parallel") => {
        /// Replicas of the model, each with its share of the rows of every batch.
        ///
        /// `train.batch_size` is that of all together: the same problem, whatever their number.
        pub data: usize = Key::method(Values::Whole { least: 1, most: MOST_RANKS })
            .default(Whole(1))
            .reads(&[("1", "one replica"), ("", "{} replicas")])
            .without("one process"),
        /// How the replicas' gradients come together: summed on every rank, block by block behind backward; or
        /// gathered on the first rank, which updates and sends the weights.
        pub data_reduce: DataReduce =
            Key::method(Values::Words(&["all_reduce", "rank0"])).default(Word("all_reduce")).tacit(),
        /// What the replicas divide among them, each having its part: nothing; the optimizer's state; gradients too; or the
        /// weights of blocks too, which are gathered for their turns.
        ///
        /// Absent in rows where it says nothing new.
        #[serde(default, skip_serializing_if = "Shard::is_none")]
        pub shard: Shard = Key::method(Values::Words(&["none", "optimizer", "gradients", "weights"]))
            .default(Word("none"))
            .reads(&[("none", "nothing divided"), ("", "{} divided")])
            .without("nothing divided")
            .tacit(),
        /// Ranks that each layer of a replica is divided among: attention by its heads, the MLP by its inner columns,
        /// embedding, head and loss by the vocabulary.
        pub tensor: usize = Key::method(Values::Whole { least: 1, most: MOST_RANKS })
            .default(Whole(1))
            .reads(&[("1", "whole layers"), ("", "layers over {} ranks")])
            .without("whole layers"),
        /// Seconds that a rank waits for another before the cell ends as failed.
        pub timeout: f64 = Key::method(POSITIVE).default(Number(30.0)).called("time limit of a wait").tacit(),
    } and {
        /// `None`: every rank has the whole network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub pipeline: Option<Pipeline>,
    }
}

/// `parallel.data_reduce`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataReduce {
    AllReduce,
    Rank0,
}

impl Default for Parallel {
    fn default() -> Self {
        Self::SECTION.defaults()
    }
}

impl Parallel {
    /// Processes of a cell.
    pub fn ranks(&self) -> usize {
        let stages = self.pipeline.as_ref().map_or(1, |pipeline| pipeline.stages);
        self.data * self.tensor * stages
    }

    /// Whether one process does it all.
    pub fn is_alone(&self) -> bool {
        self.ranks() == 1
    }

    /// Refuses what has no effect. `written`: whether a dotted key stands in the recipe.
    ///
    /// # Errors
    /// The key, and what to change.
    pub fn check(&self, written: impl Fn(&str) -> bool) -> Result<(), Rule> {
        let unused = [
            (
                "parallel.data_reduce",
                self.data == 1,
                "with one replica: there is no other to sum gradients with",
            ),
            ("parallel.shard", self.data == 1, "with one replica: there is no other to divide anything with"),
            ("parallel.timeout", self.is_alone(), "in one process: there is no other to wait for"),
        ];
        if let Some((key, _, reason)) = unused.into_iter().find(|(key, unused, _)| *unused && written(key)) {
            return Err(Rule::new(
                &[key],
                format!("{key} has no effect {reason}"),
                format!("remove {key}, or set parallel.data to 2 or more"),
            ));
        }
        Rule::refuse_if(
            self.data * self.tensor > 1 && self.pipeline.is_some(),
            &["parallel.pipeline", "parallel.data", "parallel.tensor"],
            "parallel.pipeline does not go with parallel.data or parallel.tensor: each stage is on one rank",
            "remove one of them",
        )?;
        let ranks = self.ranks();
        Rule::refuse_if(
            ranks as i64 > MOST_RANKS,
            &["parallel.tensor", "parallel.data"],
            format!(
                "{} replicas over {} ranks each are {ranks} ranks, more than {MOST_RANKS}",
                self.data, self.tensor
            ),
            "make one of the two smaller: each rank has a connection to every other",
        )
    }
}
