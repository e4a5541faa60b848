//! [`Order`]: which rank of a pipeline computes what, one thing after the other.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Action, check, gpipe, interleaved, lower, one_f_one_b, pipedream, written};

/// The sizes of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub ranks: usize,
    /// Stages of a rank. Stage s is on rank s modulo the number of ranks.
    pub chunks: usize,
    pub micro_batches: usize,
}

impl Shape {
    pub fn stages(&self) -> usize {
        self.ranks * self.chunks
    }

    pub fn rank_of(&self, stage: usize) -> usize {
        stage % self.ranks
    }

    /// The blocks of a stage: as many as another has, or one more or less, the first stages having more.
    pub fn blocks(&self, stage: usize, layers: usize) -> Range<usize> {
        let before = |stage: usize| (stage * layers).div_ceil(self.stages());
        before(stage)..before(stage + 1)
    }
}

/// The computations of each rank, from the sizes and the actions that are written out.
type Actions = fn(Shape, &str) -> Result<Vec<Vec<Action>>, String>;

/// Declares [`Schedule`]: each with its word, what people call it, and its actions.
macro_rules! schedules {
    ($($schedule:ident: $word:literal, $title:literal => $actions:expr;)*) => {
        /// `parallel.pipeline.schedule`
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Schedule { $(#[serde(rename = $word)] $schedule),* }

        impl Schedule {
            pub const WORDS: &[&str] = &[$($word),*];

            /// What people call it.
            pub fn title(self) -> &'static str {
                match self { $(Self::$schedule => $title),* }
            }

            fn actions(self) -> Actions {
                match self { $(Self::$schedule => $actions),* }
            }
        }
    };
}

schedules! {
    Gpipe: "gpipe", "GPipe" => |shape, _| Ok(gpipe::actions(shape));
    OneFOneB: "1f1b", "1F1B" => |shape, _| Ok(one_f_one_b::actions(shape));
    Interleaved: "interleaved", "interleaved 1F1B" => |shape, _| Ok(interleaved::actions(shape));
    Pipedream: "pipedream", "PipeDream" => |shape, _| Ok(pipedream::actions(shape));
    Written: "written", "written schedule" => |shape, text| written::actions(text, shape);
}

/// The actions of each rank of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub shape: Shape,
    /// Without messages.
    pub computations: Vec<Vec<Action>>,
}

impl Schedule {
    /// Whether a rank may have several stages.
    pub fn takes_chunks(self) -> bool {
        matches!(self, Self::Interleaved | Self::Written)
    }

    /// Whether each micro-batch has an update of its own.
    pub fn updates_at_once(self) -> bool {
        self == Self::Pipedream
    }

    /// `text`: the actions that are written out.
    ///
    /// # Errors
    /// The first wrong action.
    pub fn order(self, shape: Shape, text: &str) -> Result<Order, String> {
        let computations = self.actions()(shape, text)?;
        let order = Order { shape, computations };
        check::check(&order)?;
        Ok(order)
    }
}

impl Order {
    /// The actions of a rank, messages among them.
    ///
    /// # Panics
    /// When the order was not checked.
    pub fn of_rank(&self, rank: usize) -> Vec<Action> {
        lower::with_messages(self, rank)
    }

    /// The same with each message to this rank begun before the computation that it would stand behind: it arrives while
    /// that runs. The order of messages stays.
    ///
    /// # Panics
    /// As [`of_rank`](Self::of_rank).
    pub fn of_rank_ahead(&self, rank: usize) -> Vec<Action> {
        lower::received_ahead(self.of_rank(rank))
    }

    /// Messages of a step, over all ranks.
    pub fn messages(&self) -> usize {
        lower::count(self)
    }

    /// Forwards of a rank whose backward is still to come, at most.
    pub fn live(&self, rank: usize) -> usize {
        let (mut live, mut most) = (0usize, 0);
        for action in &self.computations[rank] {
            match action {
                Action::Forward { .. } => live += 1,
                Action::Backward { .. } => live -= 1,
                _ => {}
            }
            most = most.max(live);
        }
        most
    }
}
