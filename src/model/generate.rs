//! Generation: continues prompts token by token, greedily or by sampling, with a cache of keys and
//! values; prompts of different lengths are padded on the left.

use burn::tensor::Device;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::families::Family;
use super::language::{Cache, Decoder, Tokens};
use crate::device::integers;
use crate::ops::attention::Mask;
use crate::ops::embedding::Ids;

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
    /// Ends a sequence, which then stays as it is.
    pub end: Option<u32>,
}

/// Every prompt with its continuation. The device is the network's, outside of autodiff.
///
/// # Panics
/// When there is no prompt or an empty one.
pub fn generate<F: Family>(
    network: &Decoder<F>,
    prompts: &[Vec<u32>],
    request: &Request,
    device: &Device,
) -> Vec<Vec<u32>> {
    assert!(!prompts.is_empty() && prompts.iter().all(|p| !p.is_empty()), "a prompt needs a token");
    let batch = prompts.len();
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let padding: Vec<usize> = prompts.iter().map(|prompt| longest - prompt.len()).collect();
    let mut results = prompts.to_vec();
    let mut ended = vec![false; batch];
    let mut chooser = Chooser::new(request.choice);
    let mut cache = Cache::new(network.layers(), batch);
    // The columns that the network has not read yet.
    let mut columns = 0..longest;
    for _ in 0..request.tokens {
        let tokens = tokens(&results, &padding, columns.clone(), device);
        let hidden = network.hidden(&tokens, Some(&mut cache));
        let last: Vec<i32> = (1..=batch).map(|b| (b * columns.len() - 1) as i32).collect();
        let logits = network.logits(hidden.inner().select(0, integers(last, device)));
        let vocab = logits.dims()[1];
        let logits: Vec<f32> = logits.into_data().try_to_vec().expect("logits are fp32");
        for (b, row) in logits.chunks(vocab).enumerate() {
            let next = chooser.choose(row);
            // An ended sequence goes on as padding of the others' batch: what follows is cut off.
            results[b].push(next);
            ended[b] |= Some(next) == request.end;
        }
        columns = columns.end..columns.end + 1;
        if ended.iter().all(|ended| *ended) {
            break;
        }
    }
    results.into_iter().zip(prompts).map(|(result, prompt)| cut(result, prompt.len(), request.end)).collect()
}

/// The sequence up to the first end after its prompt.
fn cut(mut sequence: Vec<u32>, prompt: usize, end: Option<u32>) -> Vec<u32> {
    if let Some(i) = sequence[prompt..].iter().position(|token| Some(*token) == end) {
        sequence.truncate(prompt + i + 1);
    }
    sequence
}

/// The given columns of the padded sequences, and a mask over all columns so far.
fn tokens(
    sequences: &[Vec<u32>],
    padding: &[usize],
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
        let start = cells(&|_, pad, c| if c < pad { 0 } else { pad as i32 }, 0..columns.end);
        integers(start, device).reshape([batch, columns.end])
    });
    Tokens {
        ids: Ids::new(
            cells(&|sequence, pad, c| if c < pad { 0 } else { sequence[c - pad] as i32 }, columns.clone()),
            device,
        ),
        positions: Ids::new(cells(&|_, pad, c| c.saturating_sub(pad) as i32, columns.clone()), device),
        batch,
        sequence: columns.len(),
        mask: Mask { starts, packing: None },
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

    fn choose(&mut self, logits: &[f32]) -> u32 {
        let Choice::Sample { temperature, top_k, .. } = self.choice else { return argmax(logits) };
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

fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = i;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use burn::tensor::DType;

    use super::*;
    use crate::device::DeviceId;
    use crate::model::config::from_hugging_face;
    use crate::model::families::Qwen2;
    use crate::model::language::Computation;
    use crate::ops::dense::Arithmetic;
    use crate::ops::{Checkpoint, Ops};
    use crate::params::table::Tuning;
    use crate::words::Compute;

    fn qwen2() -> Decoder<Qwen2> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen2");
        let model = from_hugging_face(&folder).unwrap();
        let model = model.language::<Qwen2>().expect("a qwen2");
        let source = model.source(DeviceId::Cpu, DType::F32, &Tuning::default()).unwrap();
        let arithmetic = Arithmetic::of(Compute::Fp32);
        model.network(64, &source, Computation::new(arithmetic, Ops::default(), Checkpoint::default()), None)
    }

    #[test]
    fn prompts_of_different_lengths_continue_as_each_alone() {
        let (network, device) = (qwen2(), Device::flex());
        let prompts = [vec![5, 17, 300], vec![9], vec![4, 8, 15, 16, 23, 42]];
        for choice in [Choice::Greedy, Choice::Sample { temperature: 1e-3, top_k: 3, seed: 1 }] {
            let request = Request { tokens: 12, choice, end: None };
            let together = generate(&network, &prompts, &request, &device);
            for (prompt, together) in prompts.iter().zip(together) {
                let alone = generate(&network, std::slice::from_ref(prompt), &request, &device).remove(0);
                assert_eq!(together, alone);
                assert_eq!(alone.len(), prompt.len() + 12);
            }
        }
    }

    /// The cache gives what reading everything again gives.
    #[test]
    fn each_token_is_the_most_probable_after_all_before_it() {
        let (network, device) = (qwen2(), Device::flex());
        let request = Request { tokens: 6, choice: Choice::Greedy, end: None };
        let sequence = generate(&network, &[vec![7, 70, 170]], &request, &device).remove(0);
        for known in 3..sequence.len() {
            let tokens = Tokens::new(&sequence[..known], 1, &device);
            let logits = network.logits(network.hidden(&tokens, None).inner().narrow(0, known - 1, 1));
            let logits: Vec<f32> = logits.into_data().try_to_vec().unwrap();
            assert_eq!(argmax(&logits), sequence[known]);
        }
    }

    #[test]
    fn a_seed_repeats_a_sample_and_an_end_cuts_it() {
        let (network, device) = (qwen2(), Device::flex());
        let sample = |seed, end| {
            let choice = Choice::Sample { temperature: 1.0, top_k: 0, seed };
            generate(&network, &[vec![7, 70]], &Request { tokens: 10, choice, end }, &device).remove(0)
        };
        assert_eq!(sample(3, None), sample(3, None));
        assert_ne!(sample(3, None), sample(4, None));
        let end = sample(3, None)[5];
        assert_eq!(sample(3, Some(end)), sample(3, None)[..6]);
    }
}
