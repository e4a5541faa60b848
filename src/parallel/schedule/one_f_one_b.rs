//! 1F1B (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters", after PipeDream): first as
//! many forwards as stages follow, then a backward after each forward. The bubble is that of GPipe, and rank r of p keeps at
//! most p − r micro-batches.

use super::Action;
use super::order::Shape;

pub fn actions(shape: Shape) -> Vec<Vec<Action>> {
    let update = |mut actions: Vec<Action>| {
        actions.push(Action::Update);
        actions
    };
    computations(shape).into_iter().map(update).collect()
}

/// The actions without updates.
pub fn computations(Shape { ranks, micro_batches, .. }: Shape) -> Vec<Vec<Action>> {
    let of_rank = |stage: usize| {
        let forward = |micro_batch| Action::Forward { stage, micro_batch };
        let backward = |micro_batch| Action::Backward { stage, micro_batch };
        let ahead = (ranks - stage - 1).min(micro_batches);
        let steady = micro_batches - ahead;
        let pairs = (0..steady).flat_map(|i| [forward(ahead + i), backward(i)]);
        (0..ahead).map(forward).chain(pairs).chain((steady..micro_batches).map(backward)).collect()
    };
    (0..ranks).map(of_rank).collect()
}
