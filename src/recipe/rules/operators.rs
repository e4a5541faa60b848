//! Rules of `[ops]` and `[checkpoint]` with `[model]`.

use super::Checked;
use crate::keys::Rule;
use crate::ops::{Level, Operator};
use crate::recipe::Cell;

/// `[ops]` and `[checkpoint]` with `[model]` and `[offload]`.
pub(super) fn check(cell: &Cell) -> Checked {
    let has = cell.model.operator_names();
    let unused = |(name, way): &(&str, Operator)| *way == Operator::Plain && !has.contains(name);
    if let Some((name, _)) = cell.ops.all().into_iter().find(unused) {
        const KEYS: [&str; 6] =
            ["ops.swiglu", "ops.attention", "ops.loss", "ops.norm", "ops.rope", "ops.gelu"];
        let key = KEYS.into_iter().find(|key| key.ends_with(name)).unwrap_or("ops");
        return Err(Rule::new(
            &[key],
            format!("ops.{name} = \"plain\" has no effect: this network does not have that operator"),
            format!("remove ops.{name}"),
        ));
    }
    let level = cell.checkpoint.level;
    Rule::refuse_if(
        cell.ops.swiglu == Operator::Plain && level != Level::Keep,
        &["checkpoint.level", "ops.swiglu"],
        format!("checkpoint.level = {level} has no effect with ops.swiglu = \"plain\""),
        "plain autodiff decides by itself what it keeps: use level 0 with it, or ops.swiglu = \"custom\"",
    )?;
    Rule::refuse_if(
        !has.contains(&"swiglu") && level != Level::Keep,
        &["checkpoint.level"],
        "checkpoint.level is a choice of the SwiGLU operator, which this network does not have",
        "remove checkpoint.level, or use kind = \"qwen2\" or \"llama\"",
    )
}
