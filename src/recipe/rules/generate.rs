//! Rules of `[generate]` with `[data]`, and within the section.

use super::Checked;
use crate::keys::Rule;
use crate::recipe::Cell;

pub(super) fn check(cell: &Cell) -> Checked {
    let Some(generate) = &cell.generate else { return Ok(()) };
    generate.check()?;
    Rule::refuse_if(
        cell.data.is_random(),
        &["generate", "data.corpus"],
        "[generate] continues text, and data.corpus = \"random\" has no tokenizer to read it",
        "write corpus = \"generated\" or a path under [data], or remove [generate]",
    )?;
    let (new, before) = (generate.max_new_tokens, 1 + cell.tuning().virtual_count());
    let positions = cell.model.decoder().map_or(usize::MAX, |shape| shape.max_positions);
    Rule::refuse_if(
        new.saturating_add(before) > positions,
        &["generate.max_new_tokens", "model.max_position_embeddings"],
        format!(
            "generate.max_new_tokens = {new} leaves no room for a prompt: the model has {positions} positions, virtual tokens \
             included"
        ),
        "lower generate.max_new_tokens",
    )?;
    Rule::refuse_if(
        !cell.parallel.is_alone(),
        &["generate", "parallel"],
        "[generate] continues text in one process, and this cell has several ranks",
        "remove [generate], or [parallel]; `runner generate` continues text with the weights that are saved",
    )?;
    Rule::refuse_if(
        cell.classes().is_some(),
        &["generate", "task.kind"],
        "[generate] continues text, and a classifier has taken the place of this model's head",
        "remove [generate], or the task",
    )
}
