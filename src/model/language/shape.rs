//! [`Shape`]: the sizes of a decoder.

use crate::measure::{check_elements, elements};
use crate::ops::Operator;
use crate::recipe::{Cell, Train};
use crate::words::Rule;

/// The sizes that decide a decoder's memory and arithmetic.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layers: usize,
    /// Query and key heads, and the elements of one.
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Longest sequence, in tokens.
    pub max_positions: usize,
    /// SwiGLU (three matrices) or GELU (two).
    pub gated: bool,
    pub tied: bool,
    /// All parameters.
    pub parameters: u64,
}

impl Shape {
    /// Refuses sizes that are too large for the arithmetic below.
    pub(crate) fn check(&self, cell: &Cell) -> Result<(), Rule> {
        let Self { vocab_size, hidden_size, intermediate_size, layers, heads, head_dim, .. } = *self;
        let Train { batch_size, seq_len, accumulation_steps, .. } = cell.train;
        // Only composed attention holds the scores of all tokens.
        let squares = if cell.ops.attention == Operator::Plain { layers } else { 0 };
        let rows = if cell.data.is_packed() { batch_size } else { 1 };
        let elements = elements(&[
            &[self.parameters as usize],
            &[batch_size, seq_len, accumulation_steps],
            &[batch_size, seq_len, vocab_size],
            &[batch_size, seq_len, layers, hidden_size],
            &[batch_size, seq_len, layers, intermediate_size],
            &[batch_size, seq_len, layers, heads, head_dim],
            &[batch_size, seq_len, squares, heads, rows, seq_len],
        ]);
        let sizes = [
            ("model.vocab_size", vocab_size),
            ("model.hidden_size", hidden_size),
            ("model.intermediate_size", intermediate_size),
            ("model.num_hidden_layers", layers),
            ("model.num_attention_heads", heads),
            ("model.head_dim", head_dim),
            ("train.batch_size", batch_size),
            ("train.seq_len", seq_len),
            ("train.accumulation_steps", accumulation_steps),
        ];
        check_elements(elements, &sizes)
    }
}
