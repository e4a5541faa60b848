//! Rules of a model with an encoder and a decoder: it learns targets from sources.

use super::Checked;
use crate::data::Rows;
use crate::keys::Rule;
use crate::recipe::Cell;

pub(super) fn check(cell: &Cell) -> Checked {
    if !cell.model.has_encoder() {
        return Ok(());
    }
    Rule::refuse_if(
        cell.data.sampler().sampler.rows() == Rows::Packed,
        &["data.sampler", "model.kind"],
        "data.sampler = \"packed\" puts samples behind one another, and a model with an encoder has a source and a target of each",
        "set data.sampler to \"padded\", \"standard\" or \"balanced\"",
    )?;
    Rule::refuse_if(
        cell.tuning().virtual_tokens.is_some(),
        &["tuning.method", "model.kind"],
        "virtual tokens stand before the samples of a decoder alone, and this model has an encoder",
        "use another tuning.method",
    )?;
    Rule::refuse_if(
        cell.classes().is_some(),
        &["task.kind", "model.kind"],
        "a classifier reads the last token of a decoder alone, and this model has an encoder",
        "use a decoder, or a task without classes",
    )?;
    Rule::refuse_if(
        cell.parallel.tensor > 1,
        &["parallel.tensor", "model.kind"],
        "parallel.tensor divides the layers of a decoder alone, and this model has an encoder",
        "remove parallel.tensor; parallel.data with parallel.shard divides the parameters too",
    )?;
    Rule::refuse_if(
        cell.parallel.pipeline.is_some(),
        &["parallel.pipeline", "model.kind"],
        "a pipeline has the blocks of a decoder alone, and this model has an encoder",
        "remove parallel.pipeline; parallel.data with parallel.shard divides the parameters too",
    )
}
