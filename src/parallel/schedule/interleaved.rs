//! Interleaved 1F1B (Narayanan et al. 2021): each rank has several stages, its chunks, which are far apart in the network.
//! Filling and draining the pipeline then take the time of a chunk for each rank: the bubble is divided by the number of
//! chunks, and the number of messages is multiplied by it. Micro-batches go through a chunk in groups, as many as there are
//! ranks.

use super::Action;
use super::order::Shape;

pub fn actions(shape: Shape) -> Vec<Vec<Action>> {
    let Shape { ranks, micro_batches, chunks } = shape;
    let all = micro_batches * chunks;
    // The k-th forward of a rank, and its k-th backward.
    let micro_batch = |k: usize| k / (ranks * chunks) * ranks + k % ranks;
    let forward = |rank: usize, k: usize| Action::Forward {
        stage: (k / ranks) % chunks * ranks + rank,
        micro_batch: micro_batch(k),
    };
    let backward = |rank: usize, k: usize| Action::Backward {
        stage: (chunks - 1 - (k / ranks) % chunks) * ranks + rank,
        micro_batch: micro_batch(k),
    };
    let of_rank = |rank: usize| {
        let ahead = match micro_batches == ranks {
            true => all,
            false => ((ranks - rank - 1) * 2 + (chunks - 1) * ranks).min(all),
        };
        let pairs = (0..all - ahead).flat_map(|k| [forward(rank, ahead + k), backward(rank, k)]);
        let rest = (all - ahead..all).map(|k| backward(rank, k));
        (0..ahead).map(|k| forward(rank, k)).chain(pairs).chain(rest).chain([Action::Update]).collect()
    };
    (0..ranks).map(of_rank).collect()
}
