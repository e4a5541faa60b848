//! Rules of `train.graph`: a recorded step cannot have what changes from step to step.

use super::{Checked, drops};
use crate::parallel::{DataReduce, Engine};
use crate::recipe::{Cell, WARMUP_OF_A_GRAPH};
use crate::residence::Memory;
use crate::words::Rule;

pub(super) fn check(cell: &Cell) -> Checked {
    let (train, offload) = (&cell.train, &cell.offload);
    if !train.graph {
        return Ok(());
    }
    let parallel = &cell.parallel;
    let replicas = parallel.data > 1 && parallel.ranks() == parallel.data && parallel.shard.is_none();
    let broken = [
        (
            "train.accumulation_steps",
            cell.model.decoder().is_none() && train.accumulation_steps > 1,
            "the problems of a SwiGLU stack stay where they were drawn, and a graph reads one place",
        ),
        ("train.mode", !train.mode.trains(), "a forward alone is not recorded"),
        (
            "offload.strategy",
            offload.strategy.movement().is_some_and(|movement| movement.host_waits()),
            "the host waits for each block",
        ),
        (
            "train.accumulation_steps",
            offload.moves() && train.accumulation_steps > 1,
            "the first micro-batch writes the gradients of blocks that move, and others add to them",
        ),
        ("offload.activations", offload.activations == Memory::Host, "copies of inputs are not recorded"),
        ("offload.optimizer", offload.optimizer != Memory::Device, "copies of gradients are not recorded"),
        ("parallel", !parallel.is_alone() && !replicas, "messages between ranks are not recorded"),
        (
            "parallel.data_reduce",
            replicas && parallel.data_reduce != DataReduce::AllReduce,
            "the weights that a rank receives have no fixed place",
        ),
        ("parallel.engine", replicas && parallel.engine == Engine::Sockets, "the host sums gradients"),
        ("tuning.dropout", drops(cell), "a graph would drop the same elements in each step"),
        (
            "tuning.method",
            cell.tuning().virtual_count() > 0,
            "the rows of virtual tokens differ from batch to batch",
        ),
        (
            "data.sampler",
            cell.data.sampler().sampler.keeps_samples(),
            "batches of samples differ in their lengths, and each length has launches of its own",
        ),
        (
            "measure.warmup",
            cell.measure.warmup < WARMUP_OF_A_GRAPH,
            "the first warm-up step computes, and the second is recorded",
        ),
    ];
    match broken.into_iter().find(|(_, broken, _)| *broken) {
        None => Ok(()),
        Some((key, _, reason)) => Err(Rule::new(
            &["train.graph", key],
            format!("train.graph = true cannot go with this {key}: {reason}"),
            format!("remove train.graph, or change {key}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::recipe::tests::{BASE, says};

    #[test]
    fn what_differs_from_step_to_step_cannot_be_recorded() {
        let model = "title = \"t\"\ndevice = \"cuda:0\"\n[model]\nkind = \"gpt2\"\nvocab_size = 50\nhidden_size = 8\n\
                     num_hidden_layers = 1\nnum_attention_heads = 2\nmax_position_embeddings = 8\n[train]\nbatch_size = 2\n\
                     seq_len = 4\ngraph = true\n";
        for (more, key) in [
            ("mode = \"inference\"\n", "train.mode"),
            ("[offload]\nstrategy = \"naive\"\n", "offload.strategy"),
            ("accumulation_steps = 2\n[offload]\nstrategy = \"overlap\"\n", "train.accumulation_steps"),
            (
                "optimizer = { kind = \"sgd\", lr = 0.1 }\n[offload]\nstrategy = \"overlap\"\noptimizer = \"host\"\n",
                "offload.optimizer",
            ),
            ("optimizer = { kind = \"sgd\", lr = 0.1 }\n[parallel]\ntensor = 2\n", "parallel"),
            (
                "optimizer = { kind = \"sgd\", lr = 0.1 }\n[parallel]\ndata = 2\nshard = \"optimizer\"\n",
                "parallel",
            ),
            (
                "optimizer = { kind = \"sgd\", lr = 0.1 }\n[parallel]\ndata = 2\ndata_reduce = \"rank0\"\n",
                "parallel.data_reduce",
            ),
            (
                "optimizer = { kind = \"sgd\", lr = 0.1 }\n[parallel]\ndata = 2\nengine = \"sockets\"\n",
                "parallel.engine",
            ),
            (
                "optimizer = { kind = \"sgd\", lr = 0.1 }\n[tuning]\nmethod = \"lora\"\nrank = 1\ndropout = 0.1\n",
                "tuning.dropout",
            ),
            ("[measure]\nwarmup = 1\n", "measure.warmup"),
        ] {
            let said = format!("cannot go with this {key}");
            says(&format!("{model}{more}"), &[&said, "remove train.graph"]);
        }
        says(
            &BASE.replace("seq_len = 4", "seq_len = 4\naccumulation_steps = 2\ngraph = true"),
            &["cannot go with this train.accumulation_steps", "SwiGLU"],
        );
    }
}
