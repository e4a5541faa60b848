//! Rules over `[tuning]` and `[save]`: what can be trained, and what can be saved of it.

use super::Checked;
use crate::keys::Rule;
use crate::ops::cost::{Operators, Setting};
use crate::ops::{Level, Operator};
use crate::params::table::Tuning;
use crate::recipe::Folders;
use crate::recipe::cell::{Cell, own_parameters};

/// `[tuning]` with `[model]`, `[checkpoint]` and `[ops]`.
pub(super) fn check(cell: &Cell) -> Checked {
    if cell.tuning.is_full() {
        return Ok(());
    }
    cell.tuning.check(&cell.model.linear_layers(), &|| own_parameters(&cell.model))?;
    let (method, tuning): (&str, _) = ((&cell.tuning).into(), cell.tuning());
    Rule::refuse_if(
        cell.tuning.needs_classes() && tuning.classes.is_none(),
        &["tuning.method"],
        format!("tuning.method = \"{method}\" trains the classifier of a task, and this cell has none"),
        "use another method, or a task with classes: corpus = \"task\" under [data], and [task] with kind = \"topics\"",
    )?;
    let steps = cell.measure.steps.zip(cell.tuning.probe_steps()).filter(|(steps, probe)| probe >= steps);
    if let Some((steps, probe)) = steps {
        return Err(Rule::new(
            &["tuning.probe_steps"],
            format!("tuning.probe_steps = {probe} leaves none of the {steps} steps for full tuning"),
            "make tuning.probe_steps smaller or measure.steps larger, or use tuning.method = \"linear_probe\"",
        ));
    }
    Rule::refuse_if(
        tuning.opens_swiglu() && (cell.checkpoint.level != Level::Keep || cell.ops.swiglu == Operator::Plain),
        &["checkpoint.level", "ops.swiglu"],
        "checkpoint.level and ops.swiglu are choices of the SwiGLU operator; an MLP with adapters, or with weights in 4 \
         bits, runs its linear layers and their gate instead",
        "remove them, or use tuning.method = \"lora\" and leave gate_proj, up_proj and down_proj without adapters; \
         checkpoint.blocks works with both",
    )?;
    let of_classifier =
        cell.model.decoder().map_or(0, |shape| shape.hidden_size * tuning.classes.unwrap_or(0));
    Rule::refuse_if(
        cell.train.mode.trains()
            && counted(cell, &tuning).trained() == of_classifier as u64
            && !cell.tuning.needs_classes(),
        &["tuning.method"],
        format!("tuning.method = \"{method}\" trains no parameter of this model"),
        "use another method, or a model with biases",
    )
}

/// The operators of one process with a tuning, to count their parameters: those do not depend on how many tokens there are.
pub(super) fn counted(cell: &Cell, tuning: &Tuning) -> Operators {
    let setting = Setting {
        device: cell.device_id(),
        capability: cell.capability,
        batch: 1,
        sequence: 1,
        squares: 1.0,
        compute: cell.precision.compute,
        stored: cell.precision.stored_bytes(),
        keeps_casts: false,
        ops: cell.ops,
        level: cell.checkpoint.level,
        ample: cell.checkpoint.keeps_all(),
        trained: cell.tuning.trained(),
        packs: cell.tuning.packs(),
        tensor: 1,
    };
    cell.model.operators(&setting, tuning)
}

/// `[save]` with `[model]`, `[tuning]` and the keys that its folders are named by.
pub(super) fn saving(cell: &Cell) -> Checked {
    let Some(save) = &cell.save else { return Ok(()) };
    save.check()?;
    let (folders, method) = (Folders::of(cell)?, <&str>::from(&cell.tuning));
    Rule::refuse_if(
        folders.adapter.is_some() && cell.tuning.peft_type().is_none(),
        &["save.adapter"],
        format!("tuning.method = \"{method}\" has no adapter that PEFT could read"),
        "remove save.adapter, or use tuning.method = \"lora\", \"prompt\" or \"prefix\"",
    )?;
    let model = [("save.weights", &folders.weights), ("save.adapter", &folders.adapter)];
    if let Some((key, _)) = model.into_iter().find(|(_, folder)| cell.classes().is_some() && folder.is_some())
    {
        return Err(Rule::new(
            &[key],
            "a model whose head is the classifier of a task is no language model that another program could read",
            format!("remove {key}; save.state keeps all parameters"),
        ));
    }
    Rule::refuse_if(
        folders.weights.is_some() && !cell.tuning.merges(),
        &["save.weights"],
        format!("what tuning.method = \"{method}\" adds cannot be merged into the model's own weights"),
        "remove save.weights; save.state keeps all parameters",
    )?;
    let of_hugging_face = cell.model.decoder().is_none_or(|shape| shape.portable);
    Rule::refuse_if(
        folders.weights.is_some() && !of_hugging_face,
        &["save.weights", "model.positions"],
        "Hugging Face's GPT-2 has learned positions, and this model sinusoidal ones: no other program could \
         read its weights",
        "remove save.weights, or model.positions",
    )
}
