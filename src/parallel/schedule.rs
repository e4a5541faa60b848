//! [`Action`]: what a step does, one thing after the other. A [`StepSchedule`] is a list of them.

/// One thing to do. Stages and micro-batches are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A stage computes its output for a micro-batch, and keeps what backward needs.
    Forward { stage: usize, micro_batch: usize },
    /// A stage computes its output for a micro-batch, and keeps nothing.
    Infer { stage: usize, micro_batch: usize },
    /// A stage computes its gradients for a micro-batch, which are added to those since the last update.
    Backward { stage: usize, micro_batch: usize },
    /// The optimizer applies the gradients.
    Update,
}

/// An order of the work of a step.
pub struct StepSchedule {
    /// The list for so many micro-batches.
    pub actions: fn(usize) -> Vec<Action>,
    /// Graphs that live at once at most, with so many micro-batches: of forwards whose backward is still to come.
    pub live_graphs: fn(usize) -> usize,
}

/// What every step follows.
pub const STEP: StepSchedule = StepSchedule { actions: accumulation, live_graphs: |_| 1 };

/// Forward alone.
pub const INFERENCE: StepSchedule = StepSchedule {
    actions: |micro_batches| {
        (0..micro_batches).map(|micro_batch| Action::Infer { stage: 0, micro_batch }).collect()
    },
    live_graphs: |_| 0,
};

/// Gradient accumulation over one stage: forward and backward of each micro-batch in turn, so that one graph
/// lives at a time, then the update. With one micro-batch it is plain training.
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
                    Action::Infer { .. } | Action::Update => {}
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
