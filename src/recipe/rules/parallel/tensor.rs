//! `parallel.tensor` with every other section.

use crate::keys::Rule;
use crate::model::Model;
use crate::ops::Operator;
use crate::recipe::Cell;
use crate::recipe::rules::{Checked, drops};
use crate::residence::Memory;

/// Refuses what cannot be divided among ranks, and what ranks with a part of each layer do not do.
pub(super) fn check(cell: &Cell) -> Checked {
    let ranks = cell.parallel.tensor;
    if ranks == 1 {
        return Ok(());
    }
    let uneven = sizes(cell).into_iter().find(|(_, size)| !size.is_multiple_of(ranks));
    if let Some((key, size)) = uneven {
        return Err(Rule::new(
            &["parallel.tensor", key],
            format!("{key} = {size} cannot be divided among {ranks} ranks"),
            format!("make it a multiple of {ranks}, or set parallel.tensor to a number that divides it"),
        ));
    }
    if let Some(reason) = cell.model.language().and_then(|model| model.architecture().undivided()) {
        return Err(Rule::new(
            &["parallel.tensor", "model.kind", "model"],
            format!("the layers of this model are not divided among ranks: {reason}"),
            "remove parallel.tensor, or use another model",
        ));
    }
    Rule::refuse_if(
        cell.ops.loss == Operator::Plain,
        &["ops.loss", "parallel.tensor"],
        "ops.loss = \"plain\" has the logits of the whole vocabulary, of which each rank has a part",
        "remove ops.loss, or parallel.tensor",
    )?;
    Rule::refuse_if(
        cell.train.optimizer.rule().is_some_and(|rule| rule.reads_matrices()),
        &["train.optimizer", "parallel.tensor"],
        "this optimizer reads the rows and columns of each matrix, of which each rank has a part",
        "remove parallel.tensor, or use train.optimizer = { kind = \"adamw\", lr = 1e-3 }",
    )?;
    let method: &str = (&cell.tuning).into();
    Rule::refuse_if(
        !["full", "lora", "bitfit"].contains(&method),
        &["tuning.method", "parallel.tensor"],
        format!("what tuning.method = \"{method}\" adds to a layer is not divided among ranks"),
        "use \"full\", \"lora\" or \"bitfit\", or remove parallel.tensor",
    )?;
    Rule::refuse_if(
        drops(cell),
        &["tuning.dropout", "parallel.tensor"],
        "an adapter's dropout draws a mask of a layer's whole input, of which each rank may have a part",
        "remove tuning.dropout, or parallel.tensor",
    )?;
    Rule::refuse_if(
        cell.settings().get("tuning.use_dora") == Some(&true.into()),
        &["tuning.use_dora", "parallel.tensor"],
        "tuning.use_dora takes the length of each row of a weight, of which each rank may have a part",
        "remove tuning.use_dora, or parallel.tensor",
    )?;
    Rule::refuse_if(
        cell.offload.moves() || cell.offload.optimizer == Memory::Host,
        &["parallel.tensor", "offload.strategy", "offload.optimizer"],
        "parallel.tensor does not go with [offload]: a block on the host is whole",
        "remove one of the two",
    )
}

/// What is divided among ranks, by its key.
fn sizes(cell: &Cell) -> Vec<(&'static str, usize)> {
    let Some(shape) = cell.model.decoder() else {
        let Model::Swiglu(stack) = &cell.model else { return Vec::new() };
        return vec![("model.intermediate_size", stack.intermediate_size)];
    };
    vec![
        ("model.num_attention_heads", shape.heads),
        ("model.num_key_value_heads", shape.kv_heads),
        ("model.intermediate_size", shape.intermediate_size),
        ("model.vocab_size", shape.vocab_size),
    ]
}
