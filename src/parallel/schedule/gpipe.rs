//! GPipe (Huang et al. 2019): all forwards, then all backwards, beginning with the last micro-batch. Every rank keeps all
//! micro-batches.

use super::Action;
use super::order::Shape;

pub fn actions(shape: Shape) -> Vec<Vec<Action>> {
    let of_rank = |stage| {
        let forwards = (0..shape.micro_batches).map(|micro_batch| Action::Forward { stage, micro_batch });
        let backwards =
            (0..shape.micro_batches).rev().map(|micro_batch| Action::Backward { stage, micro_batch });
        forwards.chain(backwards).chain([Action::Update]).collect()
    };
    (0..shape.ranks).map(of_rank).collect()
}
