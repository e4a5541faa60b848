//! `[parallel]` with every other section.

mod pipeline;
mod shard;
mod tensor;

use super::Checked;
use crate::recipe::{Cell, Folders};
use crate::residence::Memory;
use crate::words::Rule;

/// What ranks do not do, and what they cannot divide.
pub(super) fn check(cell: &Cell, written: impl Fn(&str) -> bool) -> Checked {
    cell.parallel.check(written)?;
    let data = cell.parallel.data;
    if cell.parallel.is_alone() {
        return Ok(());
    }
    pipeline::check(cell)?;
    tensor::check(cell)?;
    shard::check(cell)?;
    let rows = cell.train.batch_size;
    Rule::refuse_if(
        !rows.is_multiple_of(data),
        &["parallel.data", "train.batch_size"],
        format!("train.batch_size = {rows} cannot be divided among {data} replicas"),
        format!("make it a multiple of {data}: it is the batch of all replicas together"),
    )?;
    Rule::refuse_if(
        cell.offload.moves() || cell.offload.optimizer == Memory::Host,
        &["parallel.data", "offload.strategy", "offload.optimizer"],
        "parallel.data does not go with [offload]: gradients on the host are not summed over ranks",
        "remove one of the two",
    )?;
    Rule::refuse_if(
        cell.measure.gradient_histogram,
        &["measure.gradient_histogram", "parallel.data"],
        "a histogram counts the gradients of a whole batch, of which each replica has a part",
        "remove measure.gradient_histogram, or parallel.data",
    )?;
    let method: &str = (&cell.tuning).into();
    Rule::refuse_if(
        !["full", "lora", "bitfit", "adapter"].contains(&method),
        &["tuning.method", "parallel.data"],
        format!("tuning.method = \"{method}\" trains in one process"),
        "use \"full\", \"lora\", \"bitfit\" or \"adapter\", or remove parallel.data",
    )?;
    Rule::refuse_if(
        Folders::of(cell)?.state.is_some(),
        &["save.state", "parallel.data"],
        "the state of a cell in several processes is not saved",
        "remove save.state; save.weights keeps what is trained",
    )
}
