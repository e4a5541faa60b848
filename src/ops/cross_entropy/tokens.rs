//! The loss in chunks of tokens on CUDA, as Liger's kernels take it (Hsu et al. 2024, "Liger Kernel: Efficient Triton
//! Kernels for LLM Training"): forward has a token's logits whole, so it makes their gradient at once and computes
//! nothing twice.
//!
//! dh = dlogits · W is whole for each token. dW = Σ dlogitsᵀ · h is a sum over chunks, which goes through memory in
//! fp32 once for each: a chunk of t tokens takes 6 t vocab hidden operations and moves 8 vocab hidden bytes, so on an
//! H200 (790 TFLOP/s, 4.1 TB/s) that costs 257/t of the chunk's products, and computing logits twice a third of them.
//! Where one chunk has all tokens there is no sum, and dW is made at once in the weight's type. Gradients are made for an
//! upstream gradient of 1, and multiplied by the true one in backward.

use std::ops::Range;

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;

use super::Logits;
use crate::device::cuda::{Operand, Output, View, matmul};
use crate::ops::cross_entropy::loss::{Part, losses_and_gradients};
use crate::ops::kernels::elementwise::padded_rows;
use crate::ops::kernels::launch::{empty, sizes};
use crate::ops::product::Fp32Math;

/// Bytes of fp32 logits at a time.
const LOGITS: usize = 160 << 20;
/// Bytes of logits and their gradients at a time for all tokens, and for each token: some hundredths of what the
/// blocks of a network keep of it, and more where they keep all.
const LEAST: usize = 288 << 20;
const FOR_A_TOKEN: usize = 56 << 10;
const FOR_A_TOKEN_OF_ALL: usize = 96 << 10;
/// Tokens of a chunk: with fewer computing logits twice costs less, and more gain little.
const FEWEST: usize = 1024;
const MOST: usize = 2048;
/// The vocabulary is rounded up to a multiple of this many entries: with GPT-2's 50257, which is odd, cuBLASLt has
/// products that take five times as long.
const ALIGNMENT: usize = 64;

/// How tokens divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Tokens whose gradients are multiplied at once.
    pub gradients: usize,
    /// How many of these tokens have fp32 logits at once.
    pub logits: usize,
    /// Whether one chunk has all tokens and its dW is made in the weight's type.
    pub at_once: bool,
}

/// What dW allows, where it is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// A product can write it in the weight's type.
    pub narrow: bool,
    /// All results of products that backward needs stay in memory, so that the loss is a small part of them.
    pub ample: bool,
}

impl Chunks {
    /// `None` where chunks that fit are so small that chunks of the vocabulary cost less.
    pub fn of(tokens: usize, [vocab, hidden]: [usize; 2], dweight: Sums) -> Option<Self> {
        let row = padded(vocab);
        let fits = (LOGITS / (4 * row)).max(1);
        let logits = (1 << fits.ilog2()).min(tokens.next_power_of_two()).min(MOST);
        let for_a_token = if dweight.ample { FOR_A_TOKEN_OF_ALL } else { FOR_A_TOKEN };
        let room = LEAST.max(for_a_token * tokens);
        // At once dW is not there yet while logits are, and has no sum in fp32. The other ways would have at least dW itself.
        let all = tokens.next_multiple_of(logits);
        let (of_all, dlogits) = (row * (4 * logits + 2 * all), row * 2 * all);
        let fits = match dweight.ample {
            true => of_all <= room + 4 * row * hidden,
            false => of_all <= room + 2 * row * hidden && dlogits <= room,
        };
        if dweight.narrow && all <= MOST && fits {
            return Some(Self { gradients: all, logits, at_once: true });
        }
        let left = room.saturating_sub(4 * row * logits);
        let most = (left / (2 * row)).min(MOST) / logits * logits;
        if most == 0 || most < FEWEST.min(tokens) {
            return None;
        }
        // As even as can be.
        let gradients = tokens.div_ceil(tokens.div_ceil(most)).next_multiple_of(logits);
        Some(Self { gradients, logits, at_once: false })
    }

    /// Bytes of logits, and of their gradients in `element` bytes with a padded copy of the weight.
    pub fn bytes(self, [vocab, hidden]: [usize; 2], element: usize) -> [usize; 2] {
        let row = padded(vocab);
        let copy = if row == vocab { 0 } else { row * hidden * element };
        [4 * row * self.logits, element * row * self.gradients + copy]
    }
}

/// Columns of logits.
fn padded(vocab: usize) -> usize {
    vocab.next_multiple_of(ALIGNMENT)
}

/// What gradients by logits are multiplied by in a type, for a loss that is divided by `total`. A softmax over 10⁵ entries
/// has values that fp16, whose smallest normal number is 6e-5, would round to few bits. Other types have the true
/// gradients, so that a dW which is made at once needs no further rounding.
pub fn gain(dtype: DType, total: f64) -> f32 {
    if dtype == DType::F16 { 4096.0 } else { (1.0 / total) as f32 }
}

/// What forward makes.
pub struct Made {
    /// Each token's loss, [tokens] in fp32; 0 for tokens that are not counted.
    pub losses: CubeTensor,
    /// `gain` times the gradients of the sum of the losses, where they are wanted, in fp32.
    pub dh: Option<CubeTensor>,
    /// Of the padded weight, in its type where it was made at once.
    pub dweight: Option<CubeTensor>,
}

/// From h [tokens, hidden] and the weight [vocab, hidden] in one type of two bytes, and the labels [tokens].
pub fn forward(
    [h, weight]: [&CubeTensor; 2],
    labels: &CubeTensor,
    form: Logits,
    (chunks, gain): (Chunks, f32),
    [want_h, want_weight]: [bool; 2],
) -> Made {
    let ([tokens, hidden], [vocab, _]) = (sizes(h, "h"), sizes(weight, "the head's weight"));
    let product = |lhs, rhs, output| matmul(lhs, rhs, output, Fp32Math::Exact);
    let row = padded(vocab);
    // Entries behind the vocabulary have logits of 0, which do not count, and gradients of 0.
    let weight = if row == vocab { weight.clone() } else { padded_rows(weight, row) };
    let losses = empty(h, [tokens], DType::F32);
    let dlogits = empty(h, [chunks.gradients, row], h.dtype);
    let mut dh = want_h.then(|| empty(h, [tokens, hidden], DType::F32));
    let mut dweight = None;
    for chunk in parts(0..tokens, chunks.gradients) {
        let mut logits = empty(h, [chunks.logits, row], DType::F32);
        for part in parts(chunk.clone(), chunks.logits) {
            let output =
                Output::Into { tensor: logits, rows: 0..part.len(), columns: None, accumulate: false };
            logits = product(plain(h).rows(part.clone()), transpose(&weight), output);
            let part = Part {
                tokens: part.len(),
                first_token: part.start,
                first_row: part.start - chunk.start,
                gain,
            };
            losses_and_gradients(&logits, labels, (&losses, &dlogits), vocab, form, part);
        }
        drop(logits);
        let own = |side: View| side.rows(0..chunk.len());
        dh = dh.map(|dh| {
            let output = Output::Into { tensor: dh, rows: chunk.clone(), columns: None, accumulate: false };
            product(own(plain(&dlogits)), plain(&weight), output)
        });
        if want_weight {
            let dtype = if chunks.at_once { weight.dtype } else { DType::F32 };
            let output = dweight.map_or(Output::New(dtype), Output::AddTo);
            dweight = Some(product(own(transpose(&dlogits)), plain(h).rows(chunk), output));
        }
    }
    Made { losses, dh, dweight }
}

/// The first rows of a gradient of the padded weight.
pub fn unpadded(dweight: CubeTensor, vocab: usize) -> CubeTensor {
    let [_, hidden] = sizes(&dweight, "dW");
    let CubeTensor { client, device, handle, dtype, .. } = dweight;
    CubeTensor::new_contiguous(client, device, Shape::from([vocab, hidden]), handle, dtype)
}

/// Divides tokens, or entries of the vocabulary, into parts of at most `size`.
pub fn parts(all: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = all.end;
    all.step_by(size).map(move |first| first..end.min(first.saturating_add(size)))
}

fn plain(tensor: &CubeTensor) -> View {
    Operand { tensor: tensor.clone(), transposed: false }.into()
}

fn transpose(tensor: &CubeTensor) -> View {
    Operand { tensor: tensor.clone(), transposed: true }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_divide_by_what_fits() {
        let of = |tokens, vocab, ample| {
            let dweight = Sums { narrow: true, ample };
            Chunks::of(tokens, [vocab, 896], dweight).map(|c| (c.gradients, c.logits, c.at_once))
        };
        // GPT-2: 512 rows of 201 KB are 103 MB; 1978 of 101 KB fit with them in 302 MB, and more in 805 MB.
        assert_eq!(of(8192, 50_257, true), Some((2048, 512, false)));
        assert_eq!(of(2560, 50_257, true), Some((1536, 512, false)));
        // Qwen2.5: 256 rows of 608 KB are 156 MB; of 304 KB 482 fit with them for 2048 tokens, and 2136 for 8192.
        assert_eq!(of(2048, 151_936, false), None);
        assert_eq!(of(8192, 151_936, false), Some((1024, 256, false)));
        assert_eq!(of(8192, 151_936, true), Some((2048, 256, false)));
        assert_eq!(of(16384, 151_936, false), Some((2048, 256, false)));
        // 768 rows of 304 KB with them are 389 MB, and dW has 272 MB; 2048 are 778 MB, and a sum in fp32 has 545 MB.
        assert_eq!(of(768, 151_936, false), Some((768, 256, true)));
        assert_eq!(of(1024, 151_936, false), None);
        assert_eq!(of(2048, 50_257, false), Some((2048, 512, true)));
        assert_eq!(of(2048, 151_936, true), Some((2048, 256, true)));
        assert_eq!(of(2000, 151_936, true), Some((2048, 256, true)));
        assert_eq!(of(2100, 151_936, true), None);
        assert_eq!(of(40, 512, false), Some((64, 64, true)));
        assert_eq!(Chunks::of(40, [512, 64], Sums::default()).map(|c| c.at_once), Some(false));
        assert_eq!(of(40, 512, true), Some((64, 64, true)));
        assert_eq!(of(3000, 512, true), Some((2048, 2048, false)));
        let chunks = Chunks { gradients: 2048, logits: 512, at_once: false };
        let copy = 50_304 * 768 * 2;
        assert_eq!(chunks.bytes([50_257, 768], 2), [50_304 * 2048, 50_304 * 4096 + copy]);
        assert_eq!(parts(3..10, 4).collect::<Vec<_>>(), [3..7, 7..10]);
    }
}
