//! [`Action`]: one action of a step. A [`StepSchedule`] lists the actions of one process, and an [`order`] those of
//! each rank.

mod check;
mod gpipe;
mod interleaved;
mod lower;
mod one_f_one_b;
pub mod order;
mod pipedream;
pub mod pipeline;
pub mod simulate;
pub mod timeline;
mod written;

use std::fmt;

/// One action. Stages and micro-batches count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A stage computes its output for a micro-batch and keeps what backward needs.
    Forward { stage: usize, micro_batch: usize },
    /// A stage computes its output for a micro-batch and keeps nothing.
    Infer { stage: usize, micro_batch: usize },
    /// A stage computes its gradients for a micro-batch and adds them to those since the last update.
    Backward { stage: usize, micro_batch: usize },
    /// A result is sent to the rank of the next or the previous stage.
    Send(Message),
    /// A result is received from there.
    Receive(Message),
    /// The optimizer applies the gradients.
    Update,
}

/// A result that one stage sends to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    pub carries: Carries,
    /// The stage that computes it.
    pub stage: usize,
    pub micro_batch: usize,
    /// The rank at the other end.
    pub peer: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Carries {
    /// The output of a stage, for the next one.
    Activation,
    /// The gradient of a stage's input, for the previous one.
    Gradient,
}

/// As PyTorch writes them: `2F0`, `1B3`, `0SEND_F1`, `1RECV_F1`.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forward { stage, micro_batch } | Self::Infer { stage, micro_batch } => {
                write!(f, "{stage}F{micro_batch}")
            }
            Self::Backward { stage, micro_batch } => write!(f, "{stage}B{micro_batch}"),
            Self::Send(message) => write!(f, "{}", message.named("SEND")),
            Self::Receive(message) => write!(f, "{}", message.named("RECV")),
            Self::Update => f.write_str("U"),
        }
    }
}

impl Message {
    fn named(&self, what: &str) -> String {
        let Self { carries, stage, micro_batch, .. } = self;
        let kind = match carries {
            Carries::Activation => "F",
            Carries::Gradient => "B",
        };
        format!("{stage}{what}_{kind}{micro_batch}")
    }
}

/// The order of a step's work in one process.
pub struct StepSchedule {
    /// The actions for so many micro-batches.
    pub actions: fn(usize) -> Vec<Action>,
    /// Most graphs alive at once with so many micro-batches: those of forwards whose backward is still to come.
    pub live_graphs: fn(usize) -> usize,
}

/// The schedule of training.
pub const STEP: StepSchedule = StepSchedule { actions: accumulation, live_graphs: |_| 1 };

/// The schedule of inference: forwards only.
pub const INFERENCE: StepSchedule = StepSchedule {
    actions: |micro_batches| {
        (0..micro_batches).map(|micro_batch| Action::Infer { stage: 0, micro_batch }).collect()
    },
    live_graphs: |_| 0,
};

/// Gradient accumulation: forward and backward of each micro-batch in turn, so that one graph lives at a time, then the
/// update. With one micro-batch it is plain training.
pub fn accumulation(micro_batches: usize) -> Vec<Action> {
    let both =
        |micro_batch| [Action::Forward { stage: 0, micro_batch }, Action::Backward { stage: 0, micro_batch }];
    (0..micro_batches).flat_map(both).chain([Action::Update]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_graphs_live_as_are_said_to() {
        for micro_batches in 1..6 {
            let mut live = 0;
            let mut after = |action| {
                match action {
                    Action::Forward { .. } => live += 1,
                    Action::Backward { .. } => live -= 1,
                    _ => {}
                }
                live
            };
            for schedule in [STEP, INFERENCE] {
                let most = (schedule.actions)(micro_batches).into_iter().map(&mut after).max();
                assert_eq!(most, Some((schedule.live_graphs)(micro_batches)));
            }
            assert_eq!(live, 0);
        }
    }

    #[test]
    fn accumulation_has_one_graph_at_a_time_and_one_update() {
        let (forward, backward) = (
            |micro_batch| Action::Forward { stage: 0, micro_batch },
            |micro_batch| Action::Backward { stage: 0, micro_batch },
        );
        assert_eq!(accumulation(1), [forward(0), backward(0), Action::Update]);
        assert_eq!(accumulation(2), [forward(0), backward(0), forward(1), backward(1), Action::Update]);
    }
}
