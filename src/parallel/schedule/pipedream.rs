//! PipeDream (Narayanan et al. 2019): the order of 1F1B with an update after every backward. The backward of a micro-batch
//! uses the weights of its forward, so rank r of p keeps p − r versions of them. The pipeline drains at the end of each step.

use super::Action;
use super::one_f_one_b::computations;
use super::order::Shape;

pub fn actions(shape: Shape) -> Vec<Vec<Action>> {
    let with_update = |action| {
        let update = matches!(action, Action::Backward { .. }).then_some(Action::Update);
        std::iter::once(action).chain(update)
    };
    computations(shape)
        .into_iter()
        .map(|actions| actions.into_iter().flat_map(with_update).collect())
        .collect()
}
