//! Sizes that are too large for the arithmetic of estimates.

use super::Checked;
use crate::measure::{check_elements, elements};
use crate::model::Model;
use crate::ops::Operator;
use crate::recipe::{Cell, Train};

/// `[model]` with `[train]`.
pub fn check(cell: &Cell) -> Checked {
    let Train { batch_size, seq_len, accumulation_steps, .. } = cell.train;
    let virtual_tokens = cell.tuning().virtual_count();
    let train = [
        ("train.batch_size", batch_size),
        ("train.seq_len", seq_len),
        ("train.accumulation_steps", accumulation_steps),
        ("tuning.num_virtual_tokens", virtual_tokens),
    ];
    let seq_len = seq_len + virtual_tokens;
    let (tensors, model) = match (&cell.model, cell.model.decoder()) {
        (Model::Swiglu(network), _) => {
            let (hidden, inner, layers) =
                (network.hidden_size, network.intermediate_size, network.num_hidden_layers);
            let tensors = elements(&[
                &[layers, hidden, inner],
                &[batch_size, seq_len, accumulation_steps, hidden],
                &[batch_size, seq_len, layers, hidden],
                &[batch_size, seq_len, layers, inner],
            ]);
            let sizes = [
                ("model.hidden_size", hidden),
                ("model.intermediate_size", inner),
                ("model.num_hidden_layers", layers),
            ];
            (tensors, sizes.to_vec())
        }
        (_, Some(shape)) => {
            let packed = cell.data.is_packed();
            // Only composed attention holds the scores of all tokens.
            let squares = if cell.ops.attention == Operator::Plain { shape.layers } else { 0 };
            let rows = if packed { batch_size } else { 1 };
            let tensors = elements(&[
                &[shape.parameters as usize],
                &[batch_size, seq_len, accumulation_steps],
                &[batch_size, seq_len, shape.vocab_size],
                &[batch_size, seq_len, shape.layers, shape.hidden_size],
                &[batch_size, seq_len, shape.layers, shape.intermediate_size],
                &[batch_size, seq_len, shape.layers, shape.heads, shape.head_dim],
                &[batch_size, seq_len, squares, shape.heads, rows, seq_len],
                &[cell.positions(), shape.hidden_size.max(shape.head_dim)],
            ]);
            let sizes = [
                ("model.vocab_size", shape.vocab_size),
                ("model.hidden_size", shape.hidden_size),
                ("model.intermediate_size", shape.intermediate_size),
                ("model.num_hidden_layers", shape.layers),
                ("model.num_attention_heads", shape.heads),
                ("model.head_dim", shape.head_dim),
            ];
            (tensors, sizes.to_vec())
        }
        (_, None) => unreachable!("every other model is a decoder"),
    };
    check_elements(tensors, &[model, train.to_vec()].concat())
}
