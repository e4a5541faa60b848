//! Rules of `[offload]` with `[model]`, `[checkpoint]` and `train.optimizer`.

use super::Checked;
use crate::keys::Rule;
use crate::model::Model;
use crate::recipe::Cell;
use crate::residence::{Memory, ResidentBlocks};

pub(super) fn check(cell: &Cell) -> Checked {
    Rule::refuse_if(
        cell.offload.moves() && cell.model.decoder().is_none(),
        &["offload.strategy"],
        "offload moves the transformer blocks of a language model; the swiglu network has none",
        format!("remove the section, or set model.kind to one of: {}", Model::LANGUAGE.join(", ")),
    )?;
    let (blocks, strategy) = (cell.checkpoint.blocks, cell.offload.strategy);
    Rule::refuse_if(
        cell.offload.moves() && blocks > 1,
        &["checkpoint.blocks", "offload.strategy"],
        format!(
            "checkpoint.blocks = {blocks} does not go with offload.strategy = \"{strategy}\": offload computes \
             each block again by itself, while its weights are on the device"
        ),
        "remove checkpoint.blocks, or use offload.strategy = \"none\"",
    )?;
    let layers = cell.model.decoder().map_or(0, |shape| shape.layers);
    if let ResidentBlocks::Count(count) = cell.offload.resident_blocks {
        Rule::refuse_if(
            count > layers,
            &["offload.resident_blocks"],
            format!("offload.resident_blocks = {count}, and the network has {layers} blocks"),
            format!("use {layers} or fewer, or \"auto\" for as many as the device has room for"),
        )?;
    }
    let on_host = || cell.train.optimizer.rule().is_some_and(|rule| rule.on_host().is_some());
    Rule::refuse_if(
        cell.offload.optimizer == Memory::Host && !on_host(),
        &["offload.optimizer", "train.optimizer"],
        "offload.optimizer = \"host\" runs AdamW on the host, and this cell has another optimizer or none",
        "remove offload.optimizer, or use train.optimizer = { kind = \"adamw\", lr = 1e-3 }, \"adamw8bit\" or \
         \"adamw_bf16\"",
    )?;
    Rule::refuse_if(
        cell.offload.moves() && cell.train.optimizer.rule().is_some_and(|rule| rule.reads_matrices()),
        &["train.optimizer", "offload.strategy"],
        "this optimizer reads the rows and columns of each matrix, and offload updates a block as one vector",
        "use offload.strategy = \"none\", or train.optimizer = { kind = \"adamw8bit\", lr = 1e-3 }",
    )
}
