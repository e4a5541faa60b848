//! `parallel.shard` with every other section.

use crate::keys::Rule;
use crate::model::Model;
use crate::parallel::DataReduce;
use crate::recipe::Cell;
use crate::recipe::rules::Checked;
use crate::residence::{Memory, ResidentBlocks, Shard, Strategy};

const KEY: &str = "parallel.shard";

/// A key, whether it does not go with this one, why, and what to change.
type Refusal = (&'static str, bool, &'static str, String);

/// Refuses what replicas cannot divide among themselves.
pub(super) fn check(cell: &Cell) -> Checked {
    let shard = cell.parallel.shard;
    if shard.is_none() {
        return Ok(());
    }
    let mut refused = of_training(cell).into_iter().chain(of_blocks(cell));
    match refused.find(|(_, broken, ..)| *broken) {
        None => Ok(()),
        Some((key, _, why, help)) => {
            Err(Rule::new(&[KEY, key], format!("{KEY} = \"{shard}\" does not go with {key}: {why}"), help))
        }
    }
}

/// Who has parts, and what updates them.
fn of_training(cell: &Cell) -> [Refusal; 6] {
    let train = &cell.train;
    let rule = train.optimizer.rule();
    [
        (
            "parallel.data",
            cell.parallel.data == 1,
            "there is one replica, and no other to divide anything with",
            "set parallel.data to 2 or more, or remove parallel.shard".into(),
        ),
        (
            "parallel.tensor",
            cell.parallel.tensor > 1,
            "the ranks of a layer have parts of it already",
            "remove one of the two".into(),
        ),
        (
            "parallel.data_reduce",
            cell.parallel.data_reduce == DataReduce::Rank0,
            "with \"rank0\" the first rank updates everything",
            "remove parallel.data_reduce, or parallel.shard".into(),
        ),
        (
            "model",
            cell.model.decoder().is_none(),
            "it divides the parameters of a language model, block by block",
            format!("remove {KEY}, or set model.kind to one of: {}", Model::LANGUAGE.join(", ")),
        ),
        (
            "train.optimizer",
            rule.is_none() || !train.mode.trains(),
            "each rank updates its part, and nothing is updated",
            match train.mode.trains() {
                true => format!("set train.optimizer, or remove {KEY}"),
                false => format!("remove {KEY}"),
            },
        ),
        (
            "train.optimizer",
            rule.is_some_and(|rule| rule.reads_matrices()),
            "this optimizer reads the rows and columns of each matrix, and a rank's part is not made of whole ones",
            "use train.optimizer = { kind = \"adamw8bit\", lr = 1e-3 }, or remove parallel.shard".into(),
        ),
    ]
}

/// How blocks are computed again, and where they are.
fn of_blocks(cell: &Cell) -> [Refusal; 5] {
    let (shard, offload) = (cell.parallel.shard, cell.offload);
    [
        (
            "checkpoint.blocks",
            shard == Shard::Weights && cell.checkpoint.blocks > 1,
            "with \"weights\" each block is computed again by itself, while its weights are gathered",
            "remove checkpoint.blocks, or use parallel.shard = \"gradients\"".into(),
        ),
        (
            "offload.strategy",
            offload.moves() && shard != Shard::Weights,
            "each rank has the whole weights of all blocks, which stay on the device",
            format!("use {KEY} = \"weights\", or remove offload.strategy"),
        ),
        (
            "offload.strategy",
            matches!(offload.strategy, Strategy::Checkpointed(_)),
            "blocks come from all ranks and from the host by one operator",
            "use offload.strategy = \"overlap\", \"function\" or \"naive\"".into(),
        ),
        (
            "offload.optimizer",
            offload.optimizer == Memory::Host && shard == Shard::Weights && !offload.moves(),
            "the host updates the parts of blocks that move there",
            "add offload.strategy = \"overlap\", or remove offload.optimizer".into(),
        ),
        (
            "offload.resident_blocks",
            offload.resident_blocks != ResidentBlocks::default(),
            "the parts of all blocks move",
            "remove offload.resident_blocks".into(),
        ),
    ]
}
