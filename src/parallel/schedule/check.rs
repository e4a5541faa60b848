//! Checks that an order can be carried out: every stage computes each micro-batch once forward and once backward, and no rank
//! waits for a result that never comes.

use super::Action;
use super::order::{Order, Shape};
use super::simulate::{Times, simulate};

/// # Errors
/// Names the first wrong action.
pub fn check(order: &Order) -> Result<(), String> {
    let Shape { micro_batches, .. } = order.shape;
    let stages = order.shape.stages();
    // By stage and micro-batch.
    let mut done = [vec![false; stages * micro_batches], vec![false; stages * micro_batches]];
    for (rank, actions) in order.computations.iter().enumerate() {
        for action in actions {
            let (backward, stage, micro_batch) = match *action {
                Action::Forward { stage, micro_batch } => (false, stage, micro_batch),
                Action::Backward { stage, micro_batch } => (true, stage, micro_batch),
                _ => continue,
            };
            let wrong = |why: String| Err(format!("`{action}` of rank {rank} {why}"));
            if stage >= stages {
                return wrong(format!("is of stage {stage}, and the stages are 0 to {}", stages - 1));
            }
            if micro_batch >= micro_batches {
                return wrong(format!(
                    "is of micro-batch {micro_batch}, and the micro-batches are 0 to {}",
                    micro_batches - 1
                ));
            }
            let owner = order.shape.rank_of(stage);
            if owner != rank {
                return wrong(format!("is of stage {stage}, which rank {owner} has"));
            }
            let place = stage * micro_batches + micro_batch;
            if backward && !done[0][place] {
                return wrong("comes before its forward".into());
            }
            if std::mem::replace(&mut done[usize::from(backward)][place], true) {
                return wrong("stands twice".into());
            }
        }
    }
    for stage in 0..stages {
        for micro_batch in 0..micro_batches {
            let actions = [Action::Forward { stage, micro_batch }, Action::Backward { stage, micro_batch }];
            for (action, done) in actions.into_iter().zip(&done) {
                if !done[stage * micro_batches + micro_batch] {
                    return Err(format!("rank {} misses `{action}`", order.shape.rank_of(stage)));
                }
            }
        }
    }
    simulate(order, &Times::equal(order.shape)).map(drop)
}
