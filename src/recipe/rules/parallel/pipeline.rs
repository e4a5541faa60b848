//! `parallel.pipeline` with every other section.

use crate::model::Model;
use crate::recipe::Cell;
use crate::recipe::rules::Checked;
use crate::residence::Memory;
use crate::words::Rule;

const SECTION: &str = "parallel.pipeline";

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
    let (train, parts) = (&cell.train, pipeline.micro_batches);
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
    )?;
    let keeps_samples = cell.data.sampler().sampler.keeps_samples();
    let at_once = pipeline.schedule.updates_at_once();
    let refused: [(&[&'static str], bool, &str, &str); 9] = [
        (
            &["train.mode"],
            !train.mode.trains(),
            "a forward alone has no backward to be scheduled",
            "remove one of the two",
        ),
        (
            &["data.sampler"],
            keeps_samples,
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
            "the answers to a task are those of a whole network",
            "remove [task], or use one process",
        ),
        (
            &["train.optimizer"],
            at_once && train.optimizer.rule().is_none(),
            "PipeDream is an order of updates, and there are none",
            "set train.optimizer, or use schedule = \"1f1b\"",
        ),
        (
            &["train.clip_norm"],
            at_once && train.clip_norm.is_some(),
            "PipeDream updates each stage by itself, before the norm over all stages is known",
            "remove train.clip_norm, or use schedule = \"1f1b\"",
        ),
        (
            &["precision.scaler"],
            at_once && cell.precision.scaler.is_some(),
            "PipeDream updates each stage by itself, before it is known whether another one overflows",
            "remove precision.scaler, or use schedule = \"1f1b\"",
        ),
        (
            &["model.tie_word_embeddings", "model"],
            at_once && shape.tied,
            "PipeDream updates the first and the last stage by themselves, and a tied embedding is in both",
            "set model.tie_word_embeddings = false, or use schedule = \"1f1b\"",
        ),
    ];
    if let Some((keys, _, why, help)) = refused.into_iter().find(|(_, broken, _, _)| *broken) {
        let mut keys = keys.to_vec();
        keys.push(SECTION);
        return Err(Rule::new(&keys, format!("{SECTION} does not go with {}: {why}", keys[0]), help));
    }
    pipeline.check(shape.layers)
}
