//! `[parallel]` with every other section.

mod pipeline;
mod shard;
mod tensor;

use super::{Checked, needs_gpu};
use crate::common::DeviceId;
use crate::device::Target;
use crate::device::cuda::nccl;
use crate::keys::Rule;
use crate::parallel::Engine;
use crate::recipe::{Cell, Folders};
use crate::residence::Memory;

/// Refuses what ranks do not do, and what they cannot divide.
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
        cell.parallel.shard.is_none() && (cell.offload.moves() || cell.offload.optimizer == Memory::Host),
        &["parallel.data", "offload.strategy", "offload.optimizer"],
        "parallel.data goes with [offload] where ranks divide the parameters: each has its part on the host",
        match cell.offload.moves() {
            true => "add shard = \"weights\" under [parallel], or remove [offload]",
            false => "add shard = \"optimizer\" under [parallel], or remove offload.optimizer",
        },
    )?;
    Rule::refuse_if(
        cell.measure.gradient_histogram,
        &["measure.gradient_histogram"],
        "a histogram counts all gradients of a whole batch, of which each rank has a part",
        "remove measure.gradient_histogram, or [parallel]",
    )?;
    let method: &str = (&cell.tuning).into();
    Rule::refuse_if(
        !["full", "lora", "qlora", "bitfit", "adapter"].contains(&method),
        &["tuning.method", "parallel.data"],
        format!("tuning.method = \"{method}\" trains in one process"),
        "use \"full\", \"lora\", \"qlora\", \"bitfit\" or \"adapter\", or remove [parallel]",
    )?;
    Rule::refuse_if(
        Folders::of(cell)?.state.is_some(),
        &["save.state"],
        "the state of a cell in several processes is not saved",
        "remove save.state; save.weights keeps what is trained",
    )
}

/// Refuses devices that cannot run the ranks.
pub(super) fn on_device(cell: &Cell, device: DeviceId, target: &Target) -> Checked {
    let (parallel, by_nccl) = (&cell.parallel, cell.parallel.engine == Engine::Nccl);
    if parallel.is_alone() {
        return Ok(());
    }
    if device == DeviceId::Cpu {
        let rule = needs_gpu(
            cell,
            &["parallel.engine", "device"],
            "parallel.engine = \"nccl\" sums on GPUs, and the device is the CPU",
            "remove parallel.engine, or set device = \"cuda:0\"",
        );
        return if by_nccl { Err(rule) } else { Ok(()) };
    }
    Rule::refuse_if(
        by_nccl && !parallel.is_one_group(),
        &["parallel.engine", "parallel.tensor", "parallel.data"],
        "parallel.engine = \"nccl\" connects all ranks as one group; replicas whose layers are divided work in several",
        "set parallel.engine = \"sockets\", or one of parallel.data and parallel.tensor to 1",
    )?;
    let (ranks, gpus) = (parallel.ranks(), target.gpus());
    if let Some(gpus) = gpus.filter(|gpus| by_nccl && *gpus < ranks) {
        return Err(Rule::elsewhere(
            &["parallel.data", "parallel.engine"],
            format!("parallel.engine = \"nccl\" needs a GPU for each of {ranks} ranks, and {gpus} are here"),
            "set parallel.engine = \"sockets\", with which ranks share GPUs, or parallel.data to what is here",
        ));
    }
    if by_nccl && gpus.is_some() && !nccl::present() {
        return Err(Rule::elsewhere(
            &["parallel.engine"],
            nccl::ABSENT,
            "or leave parallel.engine out: it is then what each machine has",
        ));
    }
    Ok(())
}
