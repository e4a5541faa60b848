//! Rules of `store_param_remainders`, and of clipping by the norm of the step before.

use burn::tensor::DType;

use super::Checked;
use crate::keys::Rule;
use crate::recipe::Cell;
use crate::residence::Memory;

const REMAINDERS: &str = "train.optimizer.store_param_remainders";

pub(super) fn check(cell: &Cell) -> Checked {
    let remainders = cell.train.optimizer.keeps_remainders();
    Rule::refuse_if(
        remainders && cell.precision.stored() != DType::BF16,
        &[REMAINDERS, "precision.compute"],
        "store_param_remainders has no effect on parameters that are not in bf16, to which it adds 16 bits",
        "remove it, or use compute = \"bf16\" without autocast",
    )?;
    Rule::refuse_if(
        remainders && cell.offload.optimizer == Memory::Host,
        &[REMAINDERS, "offload.optimizer"],
        "an optimizer on the host has master weights in fp32 already: store_param_remainders has no effect",
        "remove store_param_remainders, or offload.optimizer",
    )?;
    Rule::refuse_if(
        !cell.train.clip.is_own() && cell.precision.scaler.is_some(),
        &["train.clip", "precision.scaler"],
        "train.clip = \"previous_norm\" does not go with a gradient scaler: a step that is skipped has no norm",
        "remove train.clip, or precision.scaler",
    )
}
