//! A schedule written out in a recipe: the actions of each rank, with semicolons or line ends between ranks.

use super::Action;
use super::order::Shape;
use crate::common::text::counted;

/// Parses `0F0 0F1 0B0 0B1; 1F0 1B0 1F1 1B1`: forward and backward of a stage for a micro-batch. An update is added at the
/// end.
///
/// # Errors
/// Names the first word that is no action, or a wrong number of ranks.
pub fn actions(text: &str, shape: Shape) -> Result<Vec<Vec<Action>>, String> {
    let lists = text.split([';', '\n']).map(str::trim).filter(|list| !list.is_empty());
    let of_rank = |(rank, list): (usize, &str)| -> Result<Vec<Action>, String> {
        let mut actions =
            list.split_whitespace().map(|word| action(rank, word)).collect::<Result<Vec<_>, _>>()?;
        actions.push(Action::Update);
        Ok(actions)
    };
    let lists = lists.enumerate().map(of_rank).collect::<Result<Vec<_>, _>>()?;
    if lists.len() != shape.ranks {
        return Err(format!("it has {}, and there are {} ranks", counted(lists.len(), "list"), shape.ranks));
    }
    Ok(lists)
}

fn action(rank: usize, word: &str) -> Result<Action, String> {
    let parsed = || {
        let letter = word.find(['F', 'B'])?;
        let (stage, rest) = word.split_at(letter);
        let (stage, micro_batch) = (stage.parse().ok()?, rest[1..].parse().ok()?);
        Some(match &rest[..1] {
            "F" => Action::Forward { stage, micro_batch },
            _ => Action::Backward { stage, micro_batch },
        })
    };
    parsed().ok_or_else(|| {
        format!("`{word}` of rank {rank} is no action: `0F3` is the forward of stage 0 for micro-batch 3, `0B3` its backward")
    })
}
