//! Rules of `data.shuffle_buffer`, with which training begins before all text is read.

use super::Checked;
use crate::data::{Data, Tokenize, TokenizerSource};
use crate::keys::Rule;
use crate::recipe::Cell;

pub(super) fn check(cell: &Cell) -> Checked {
    let Data::Text { shuffle_buffer: Some(_), reading, tokenizer, sampler, .. } = &cell.data else {
        return Ok(());
    };
    let trains = matches!(tokenizer, TokenizerSource::Train { .. });
    let holds_out = reading.held_out.is_some() && cell.eval.is_some();
    let refused = [
        (
            trains,
            "data.tokenizer",
            "a tokenizer is trained on all text",
            "name a tokenizer.json or its folder in data.tokenizer",
        ),
        (
            cell.measure.epochs.is_some(),
            "measure.epochs",
            "the steps of an epoch are known when all text is tokenised",
            "set measure.steps in its place",
        ),
        (
            holds_out,
            "data.held_out",
            "the records that are held out are found in all text",
            "put some records into a file of their own such as valid.jsonl, and remove data.held_out",
        ),
        (
            sampler.tokenize == Tokenize::EveryStep,
            "data.tokenize",
            "a buffer is tokenised when it is read",
            "remove data.tokenize",
        ),
        (
            sampler.num_workers > 1,
            "data.num_workers",
            "one thread makes the batches of a buffer",
            "set data.num_workers to 1 or 0",
        ),
    ];
    match refused.into_iter().find(|(is_refused, ..)| *is_refused) {
        None => Ok(()),
        Some((_, key, why, help)) => Err(Rule::new(
            &[key, "data.shuffle_buffer"],
            format!("data.shuffle_buffer reads text while training goes on, and {why}"),
            format!("{help}; or remove data.shuffle_buffer"),
        )),
    }
}
