//! [`Schedule`]: the schedules of a pipeline.

use serde::{Deserialize, Serialize};

use super::order::{Order, Shape};
use super::{Action, check, gpipe, interleaved, one_f_one_b, pipedream, written};

/// Makes the computations of each rank from the sizes, or parses them from a written schedule.
type Actions = fn(Shape, &str) -> Result<Vec<Vec<Action>>, String>;

/// Declares the schedules, each with its word, its usual name, and its actions.
macro_rules! schedules {
    ($($schedule:ident: $word:literal, $title:literal => $actions:expr;)*) => {
        /// `parallel.pipeline.schedule`
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Schedule { $(#[serde(rename = $word)] $schedule),* }

        impl Schedule {
            pub const WORDS: &[&str] = &[$($word),*];

            /// Its usual name.
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

impl Schedule {
    /// Whether a rank may have several stages.
    pub fn takes_chunks(self) -> bool {
        matches!(self, Self::Interleaved | Self::Written)
    }

    /// Whether each micro-batch has an update of its own.
    pub fn updates_at_once(self) -> bool {
        self == Self::Pipedream
    }

    /// `text`: the actions of a written schedule.
    ///
    /// # Errors
    /// Names the first wrong action.
    pub fn order(self, shape: Shape, text: &str) -> Result<Order, String> {
        let computations = self.actions()(shape, text)?;
        let order = Order { shape, computations };
        check::check(&order)?;
        Ok(order)
    }
}
