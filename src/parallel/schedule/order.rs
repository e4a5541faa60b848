//! [`Order`]: what each rank of a pipeline computes, in order.

use std::collections::HashMap;
use std::ops::Range;

use super::Action;

/// The sizes of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub ranks: usize,
    /// Stages of each rank. Stage s is on rank s modulo the number of ranks.
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

    /// The blocks of a stage. Stages differ by at most one block; the first stages have more.
    pub fn blocks(&self, stage: usize, layers: usize) -> Range<usize> {
        let before = |stage: usize| (stage * layers).div_ceil(self.stages());
        before(stage)..before(stage + 1)
    }
}

/// The computations of each rank of a pipeline. [`of_rank`](Self::of_rank) adds the messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub shape: Shape,
    /// By rank.
    pub computations: Vec<Vec<Action>>,
}

/// What waits in a rank's memory at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Forwards whose backward is still to come.
    pub graphs: usize,
    /// Weights before so many updates: those that the forwards used, and the latest.
    pub versions: usize,
}

impl Order {
    /// The most that waits in a rank until its first backward is over, and behind it, when gradients wait too.
    pub fn waiting(&self, rank: usize) -> [Waiting; 2] {
        let (mut updates, mut version_of) = (0, HashMap::new());
        // By version of the weights: the forwards that used it.
        let mut graphs: HashMap<usize, usize> = HashMap::new();
        let (mut most, mut behind) = ([Waiting::default(); 2], 0);
        for action in &self.computations[rank] {
            match *action {
                Action::Forward { stage, micro_batch } => {
                    version_of.insert((stage, micro_batch), updates);
                    *graphs.entry(updates).or_default() += 1;
                }
                Action::Backward { stage, micro_batch } => {
                    let version = version_of.remove(&(stage, micro_batch)).expect("its forward was before");
                    let left = graphs.get_mut(&version).expect("a forward used it");
                    *left -= 1;
                    if *left == 0 {
                        graphs.remove(&version);
                    }
                    behind = 1;
                }
                Action::Update => updates += 1,
                Action::Infer { .. } | Action::Send(_) | Action::Receive(_) => {}
            }
            let versions = graphs.len() + usize::from(!graphs.contains_key(&updates));
            let most = &mut most[behind];
            most.graphs = most.graphs.max(version_of.len());
            most.versions = most.versions.max(versions);
        }
        most
    }

    /// The most forwards of a rank whose backward is still to come.
    pub fn live(&self, rank: usize) -> usize {
        self.waiting(rank).map(|waiting| waiting.graphs).into_iter().max().unwrap_or(0)
    }
}
