//! `parallel.pipeline` with every other section.

use crate::keys::Rule;
use crate::model::Model;
use crate::recipe::rules::Checked;
use crate::recipe::{Cell, Train};
use crate::residence::Memory;

const SECTION: &str = "parallel.pipeline";

/// Keys that a pipeline does not go with, whether the cell has them, why, and what to change.
type Refusal = (&'static [&'static str], bool, &'static str, &'static str);

/// Refuses what cannot be divided into stages, and what stages do not do.
pub(super) fn check(cell: &Cell) -> Checked {
    let Some(pipeline) = &cell.parallel.pipeline else { return Ok(()) };
    let Some(shape) = cell.model.decoder() else {
        return Err(Rule::new(
            &[SECTION],
            "a pipeline divides the blocks of a language model; the swiglu network has none",
            format!("remove {SECTION}, or set model.kind to one of: {}", Model::LANGUAGE.join(", ")),
        ));
    };
    micro_batches(&cell.train, pipeline.micro_batches)?;
    let at_once = pipeline.schedule.updates_at_once();
    let of_updates = of_updates_at_once(cell, shape.tied).into_iter().filter(|_| at_once);
    let mut refused = of_stages(cell).into_iter().chain(of_updates);
    if let Some((keys, _, why, help)) = refused.find(|(_, broken, _, _)| *broken) {
        let mut keys = keys.to_vec();
        keys.push(SECTION);
        return Err(Rule::new(&keys, format!("{SECTION} does not go with {}: {why}", keys[0]), help));
    }
    pipeline.check(shape.layers)
}

/// `parts`: micro-batches of a pipeline.
fn micro_batches(train: &Train, parts: usize) -> Checked {
    Rule::refuse_if(
        !train.batch_size.is_multiple_of(parts),
        &["parallel.pipeline.micro_batches", SECTION, "train.batch_size"],
        format!("train.batch_size = {} cannot be divided into {parts} micro-batches", train.batch_size),
        format!("make it a multiple of {parts}: it is the batch of all micro-batches together"),
    )?;
    Rule::refuse_if(
        train.accumulation_steps > 1,
        &["train.accumulation_steps", SECTION],
        "a pipeline adds up the gradients of its micro-batches: train.accumulation_steps would mean the same",
        "remove it, and raise train.batch_size and parallel.pipeline.micro_batches",
    )
}

/// What no stage does.
fn of_stages(cell: &Cell) -> [Refusal; 5] {
    [
        (
            &["train.mode"],
            !cell.train.mode.trains(),
            "a forward alone has no backward to be scheduled",
            "remove one of the two",
        ),
        (
            &["data.sampler"],
            cell.data.sampler().sampler.keeps_samples(),
            "the last step of an epoch has fewer micro-batches",
            "use the sampler \"blocks\"",
        ),
        (
            if cell.offload.moves() { &["offload.strategy"] } else { &["offload.optimizer"] },
            cell.offload.moves() || cell.offload.optimizer == Memory::Host,
            "a stage keeps its blocks on the device",
            "remove one of the two",
        ),
        (
            &["eval"],
            cell.eval.is_some(),
            "held-out text is read by a whole network",
            "remove [eval], or use one process",
        ),
        (
            &["task"],
            cell.task.is_some(),
            "a task is answered by a whole network",
            "remove [task], or use one process",
        ),
    ]
}

/// What a schedule whose stages update as soon as they can does not do. `tied`: whether the head is the embedding.
fn of_updates_at_once(cell: &Cell, tied: bool) -> [Refusal; 4] {
    [
        (
            &["train.optimizer"],
            cell.train.optimizer.rule().is_none(),
            "PipeDream is an order of updates, and there are none",
            "set train.optimizer, or use schedule = \"1f1b\"",
        ),
        (
            &["train.clip_norm"],
            cell.train.clip_norm.is_some(),
            "PipeDream updates each stage by itself, before the norm over all stages is known",
            "remove train.clip_norm, or use schedule = \"1f1b\"",
        ),
        (
            &["precision.scaler"],
            cell.precision.scaler.is_some(),
            "PipeDream updates each stage by itself, before it is known whether another one overflows",
            "remove precision.scaler, or use schedule = \"1f1b\"",
        ),
        (
            &["model.tie_word_embeddings", "model"],
            tied,
            "PipeDream updates the first and the last stage by themselves, and a tied embedding is in both",
            "set model.tie_word_embeddings = false, or use schedule = \"1f1b\"",
        ),
    ]
}
