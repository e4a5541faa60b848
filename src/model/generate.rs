//! Generation: continues prompts token by token, greedily or by sampling, with a cache of keys and
//! values; prompts of different lengths are padded on the left.

mod targets;

use burn::tensor::{Device, Tensor};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::language::{Cache, Decoder, Tokens};
use crate::device::integers;
use crate::ops::attention::Mask;
use crate::ops::embedding::Ids;
use crate::ops::largest;
use crate::ops::virtual_tokens::VirtualRows;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// The most probable one; the first of equals.
    Greedy,
    /// Drawn from softmax(logits / temperature) over the `top_k` most probable ones (0: all).
    Sample { temperature: f64, top_k: usize, seed: u64 },
}

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// New tokens at most.
    pub tokens: usize,
    pub choice: Choice,
    /// The tokens that end a sequence.
    pub ends: Vec<u32>,
}

/// The weights, or the numbers between them, are not finite: no token is more probable than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model's logits are not numbers")]
pub struct NotNumbers;

/// Every prompt with its continuation, which also ends where its new tokens are such that it `stops`. The device is the
/// network's, outside of autodiff.
///
/// # Errors
/// When the logits of the prompts are not numbers.
///
/// # Panics
/// When there is no prompt or an empty one.
pub fn generate(
    network: &Decoder,
    prompts: &[Vec<u32>],
    request: &Request,
    stops: &dyn Fn(&[u32]) -> bool,
    device: &Device,
) -> Result<Vec<Vec<u32>>, NotNumbers> {
    assert!(!prompts.is_empty() && prompts.iter().all(|p| !p.is_empty()), "a prompt needs a token");
    if let Some(start) = network.target_start() {
        return targets::generate(network, (prompts, start), request, stops, device);
    }
    let batch = prompts.len();
    // Virtual tokens are the first of each sequence, with ids of 0.
    let before = network.virtual_tokens();
    let mut results: Vec<Vec<u32>> =
        prompts.iter().map(|prompt| [&vec![0; before][..], prompt].concat()).collect();
    let longest = results.iter().map(Vec::len).max().unwrap_or(0);
    let padding: Vec<usize> = results.iter().map(|sequence| longest - sequence.len()).collect();
    // Of each sequence: its length, once it has ended.
    let mut ends: Vec<Option<usize>> = vec![None; batch];
    let mut chooser = Chooser::new(request.choice);
    let mut cache = Cache::new(network.layers(), batch, longest + request.tokens);
    // The columns that the network has not read yet.
    let mut columns = 0..longest;
    for _ in 0..request.tokens {
        // transformers reads a sequence anew where it becomes longer than those of short factors.
        if columns.start > 0 && network.switches_behind() == Some(columns.start) {
            (cache, columns) =
                (Cache::new(network.layers(), batch, longest + request.tokens), 0..columns.end);
        }
        let tokens = tokens(&results, (&padding, before), columns.clone(), device);
        let hidden = network.hidden(&tokens, Some(&mut cache));
        let last: Vec<i32> = (1..=batch).map(|b| (b * columns.len() - 1) as i32).collect();
        let logits = network.logits(hidden.inner().select(0, integers(last, device)));
        // A sum is finite if all of them are. Once is enough: weights do not change.
        if columns.end == longest && !logits.clone().sum().into_scalar::<f32>().is_finite() {
            return Err(NotNumbers);
        }
        for (b, next) in chooser.choose(logits).into_iter().enumerate() {
            // An ended sequence goes on as padding of the others' batch: what follows is cut off.
            results[b].push(next);
            let ended = ends[b].is_none()
                && (request.ends.contains(&next) || stops(&results[b][before + prompts[b].len()..]));
            if ended {
                ends[b] = Some(results[b].len());
            }
        }
        columns = columns.end..columns.end + 1;
        if ends.iter().all(Option::is_some) {
            break;
        }
    }
    for (result, end) in results.iter_mut().zip(ends) {
        result.truncate(end.unwrap_or(result.len()));
        result.drain(..before);
    }
    Ok(results)
}

/// The given columns of the padded sequences, each with so many virtual tokens `before` its own, and a mask over all
/// columns so far.
fn tokens(
    sequences: &[Vec<u32>],
    (padding, before): (&[usize], usize),
    columns: std::ops::Range<usize>,
    device: &Device,
) -> Tokens {
    let cells = |f: &dyn Fn(&[u32], usize, usize) -> i32, columns: std::ops::Range<usize>| {
        sequences
            .iter()
            .zip(padding)
            .flat_map(|(sequence, pad)| columns.clone().map(move |c| f(sequence, *pad, c)))
            .collect::<Vec<i32>>()
    };
    let batch = sequences.len();
    let starts = padding.iter().any(|pad| *pad > 0).then(|| {
        let mut starts = Vec::with_capacity(batch * columns.end);
        for pad in padding {
            starts.resize(starts.len() + pad, 0);
            starts.resize(starts.len() + columns.end - pad, *pad as i32);
        }
        integers(starts, device).reshape([batch, columns.end])
    });
    let virtual_rows = (before > 0 && columns.start == 0).then(|| {
        let first = |(b, pad): (usize, &usize)| (b * columns.len() + pad) as i32;
        let rows = padding.iter().enumerate().map(first).flat_map(|first| first..first + before as i32);
        VirtualRows::new(rows.collect(), batch * columns.len(), before, device)
    });
    Tokens {
        ids: Ids::new(
            cells(&|sequence, pad, c| if c < pad { 0 } else { sequence[c - pad] as i32 }, columns.clone()),
            device,
        ),
        positions: Ids::new(cells(&|_, pad, c| c.saturating_sub(pad) as i32, columns.clone()), device),
        source: None,
        batch,
        sequence: columns.len(),
        mask: Mask { starts, packing: None },
        virtual_rows,
    }
}

struct Chooser {
    choice: Choice,
    random: ChaCha8Rng,
}

impl Chooser {
    fn new(choice: Choice) -> Self {
        let seed = if let Choice::Sample { seed, .. } = choice { seed } else { 0 };
        Self { choice, random: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// The next token of every sequence, from logits [batch, vocabulary].
    fn choose(&mut self, logits: Tensor<2>) -> Vec<u32> {
        let Choice::Sample { temperature, top_k, .. } = self.choice else {
            // Its tokens alone come to the host: 4 bytes a sequence, not 4 a word of the vocabulary.
            return largest(logits).into_data().iter().collect();
        };
        let vocab = logits.dims()[1];
        let logits: Vec<f32> = logits.into_data().try_to_vec().expect("logits are fp32");
        logits.chunks(vocab).map(|row| self.sample(row, temperature, top_k)).collect()
    }

    fn sample(&mut self, logits: &[f32], temperature: f64, top_k: usize) -> u32 {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        if top_k > 0 {
            order.truncate(top_k);
        }
        let largest = f64::from(logits[order[0]]);
        let weights: Vec<f64> =
            order.iter().map(|i| ((f64::from(logits[*i]) - largest) / temperature).exp()).collect();
        let mut left = self.random.random::<f64>() * weights.iter().sum::<f64>();
        for (i, weight) in order.iter().zip(&weights) {
            left -= weight;
            if left <= 0.0 {
                return *i as u32;
            }
        }
        order[order.len() - 1] as u32
    }
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
