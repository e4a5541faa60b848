//! Generation, against the network read anew for each token, for every family.

use burn::module::Module;
use burn::tensor::DType;

use super::*;
use crate::common::{Compute, DeviceId};
use crate::device::drawing;
use crate::model::language::{Computation, LmBatch};
use crate::model::{Model, Parts};
use crate::ops::dense::Arithmetic;
use crate::ops::{Checkpoint, Ops};
use crate::params::table::Tuning;
use crate::recipe::{Recipe, Source};
use crate::residence::{Offload, Placement, ResidentBlocks, Strategy};

/// Learned positions; rotary ones of neighbours in a part of each head, and a head with a bias; rotary ones with a key head
/// for each query head; and grouped queries with biases. No size is a power of two.
const GPT2: &str = "kind = \"gpt2\"\nhidden_size = 30\nnum_attention_heads = 5\n";
const GPTJ: &str = "kind = \"gptj\"\nhidden_size = 30\nnum_attention_heads = 3\nrotary_dim = 6\n";
const LLAMA: &str = "kind = \"llama\"\nhidden_size = 18\nintermediate_size = 26\nnum_attention_heads = 3\n\
                     num_key_value_heads = 3\n";
const QWEN2: &str = "kind = \"qwen2\"\nhidden_size = 36\nintermediate_size = 50\nnum_attention_heads = 6\n\
                     num_key_value_heads = 2\n";

/// Of 3 layers and a vocabulary of 101, with weights drawn at random.
fn network(model: &str) -> Decoder {
    network_with(model, Offload::default())
}

/// The same weights each time, where the offload says.
fn network_with(model: &str, offload: Offload) -> Decoder {
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\n{model}vocab_size = 101\nnum_hidden_layers = 3\n\
         max_position_embeddings = 40\n[train]\nbatch_size = 1\nseq_len = 8\n"
    );
    let model: Model =
        Recipe::parse(&Source { path: "r.toml".into(), text }).expect("a recipe").cells.remove(0).model;
    let model = model.language().expect("a language model");
    let _drawing = drawing();
    DeviceId::Cpu.burn().seed(5);
    let source = model.source(DeviceId::Cpu, DType::F32, &Tuning::default().frozen()).unwrap();
    let computation = Computation::new(Arithmetic::of(Compute::Fp32), Ops::default(), Checkpoint::default());
    let placement =
        Placement { offload, device: DeviceId::Cpu, accumulates: false, updates: false, recomputes: false };
    model.network(40, &source, computation, (Some(placement), None), Parts::Whole).valid()
}

fn prompts() -> Vec<Vec<u32>> {
    vec![vec![5, 17, 100], vec![9], vec![4, 8, 15, 16, 23, 42, 0], vec![77, 1]]
}

/// The logits of each prompt's last token.
fn last_logits(network: &Decoder, tokens: &Tokens, cache: Option<&mut Cache>) -> Vec<f32> {
    let last: Vec<i32> = (1..=tokens.batch).map(|b| (b * tokens.sequence - 1) as i32).collect();
    let hidden = network.hidden(tokens, cache).inner();
    let logits = network.logits(hidden.select(0, integers(last, &Device::flex())));
    logits.into_data().try_to_vec().unwrap()
}

/// Logits of a padded batch with a cache are those of each sequence alone without one, token after token.
fn cached_logits_are_those_of_whole_sequences(model: &str) {
    let (network, device) = (network(model), Device::flex());
    let mut sequences = prompts();
    let longest = sequences.iter().map(Vec::len).max().unwrap();
    let padding: Vec<usize> = sequences.iter().map(|sequence| longest - sequence.len()).collect();
    let mut cache = Cache::new(network.layers(), sequences.len(), longest + 6);
    let mut columns = 0..longest;
    for step in 0..6 {
        let together = tokens(&sequences, (&padding, 0), columns.clone(), &device);
        let together = last_logits(&network, &together, Some(&mut cache));
        for (b, sequence) in sequences.iter_mut().enumerate() {
            let alone = last_logits(&network, &Tokens::new(sequence, 1, &device), None);
            for (a, t) in alone.iter().zip(&together[b * 101..][..101]) {
                assert!((a - t).abs() < 1e-5, "{model}: sequence {b}, token {step}: {a} {t}");
            }
            sequence.push((7 * step + 31 * b as u32) % 101);
        }
        columns = columns.end..columns.end + 1;
    }
}

/// What other families have: windows in some layers, caps, scales, norms of queries and keys, layers without positions, fused
/// projections, and norms in other places.
const OTHERS: [&str; 7] = [
    "kind = \"gemma2\"\nhidden_size = 18\nintermediate_size = 26\nnum_attention_heads = 4\nnum_key_value_heads = 2\n\
     head_dim = 6\nsliding_window = 4\nattn_logit_softcapping = 2.0\nfinal_logit_softcapping = 3.0\n",
    "kind = \"gemma3_text\"\nhidden_size = 18\nintermediate_size = 26\nnum_attention_heads = 3\nhead_dim = 8\n\
     num_key_value_heads = 1\nsliding_window = 3\nlayer_types = '[\"sliding_attention\", \"full_attention\", \
     \"sliding_attention\"]'\n",
    "kind = \"smollm3\"\nhidden_size = 24\nintermediate_size = 26\nnum_attention_heads = 4\nno_rope_layers = \"[1, 0, 1]\"\n",
    "kind = \"olmo2\"\nhidden_size = 18\nintermediate_size = 26\nnum_attention_heads = 3\n",
    "kind = \"phi3\"\nhidden_size = 24\nintermediate_size = 26\nnum_attention_heads = 4\nnum_key_value_heads = 2\n\
     sliding_window = 5\n",
    "kind = \"gpt_neox\"\nhidden_size = 24\nintermediate_size = 26\nnum_attention_heads = 3\n",
    "kind = \"opt\"\nhidden_size = 30\nintermediate_size = 26\nnum_attention_heads = 5\n",
];

#[test]
fn a_cache_and_padding_change_no_logit_of_other_families() {
    OTHERS.iter().for_each(|model| cached_logits_are_those_of_whole_sequences(model));
}

#[test]
fn a_cache_and_padding_change_no_logit() {
    cached_logits_are_those_of_whole_sequences(GPT2);
    cached_logits_are_those_of_whole_sequences(GPTJ);
    cached_logits_are_those_of_whole_sequences(LLAMA);
    cached_logits_are_those_of_whole_sequences(QWEN2);
}

/// The losses of rows that are filled up are −log softmax, in float64, of the logits of each prefix alone.
#[test]
fn token_losses_are_those_of_each_sequence_alone() {
    let device = Device::flex();
    for model in [GPT2, QWEN2, OTHERS[0]] {
        let network = network(model);
        let rows = [[5u32, 17, 100, 9, 33, 2], [4, 8, 15, 0, 0, 0]];
        // Of the first row the last three tokens are predicted, of the second the third.
        let labels = [[-100, -100, 9, 33, 2, -100], [-100, 15, -100, -100, -100, -100]];
        let labels_of = integers(labels.concat(), &device);
        let batch =
            LmBatch { tokens: Tokens::new(&rows.concat(), 2, &device), labels: labels_of, total: 4.0 };
        let losses = network.token_losses(&batch);
        for (place, loss) in losses.iter().enumerate() {
            let (row, column) = (place / 6, place % 6);
            let expected = match usize::try_from(labels[row][column]) {
                Err(_) => 0.0,
                Ok(label) => {
                    let logits = last_logits(&network, &Tokens::new(&rows[row][..=column], 1, &device), None);
                    let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
                    sum.ln() - f64::from(logits[label])
                }
            };
            assert!((f64::from(*loss) - expected).abs() < 1e-5, "{model}: {place}: {loss} {expected}");
        }
    }
}

/// Whole sequences and the tokens after them, with blocks wherever they live.
fn logits_are_the_same_wherever_blocks_live(model: &str) {
    let device = Device::flex();
    let request = Request { tokens: 8, choice: Choice::Greedy, ends: Vec::new() };
    let computed = |offload: Offload| {
        let network = network_with(model, offload);
        let whole = |_| last_logits(&network, &Tokens::new(&prompts()[2], 1, &device), None);
        // Forward after forward: the slots hold blocks of the one before.
        let whole: Vec<f32> = (0..3).flat_map(whole).collect();
        let mut cache = Cache::new(network.layers(), 1, 7);
        let cached = [0..5, 5..6, 6..7].into_iter().flat_map(|columns| {
            let part = tokens(&prompts()[2..3], (&[0], 0), columns, &device);
            last_logits(&network, &part, Some(&mut cache))
        });
        let logits: Vec<f32> = cached.chain(whole).collect();
        (logits, generate(&network, &prompts(), &request, &|_| false, &device).unwrap())
    };
    let (logits, texts) = computed(Offload::default());
    for strategy in Strategy::all().filter(|strategy| strategy.movement().is_some()) {
        for resident_blocks in [0, 1, 3].map(ResidentBlocks::Count) {
            let offload = Offload { resident_blocks, ..Offload::of(strategy) };
            let (ours, written) = computed(offload);
            let furthest = ours.iter().zip(&logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(ours.len() == logits.len() && furthest <= 1e-5, "{model} {offload:?}: {furthest}");
            assert_eq!(written, texts, "{model} {offload:?}");
        }
    }
}

#[test]
fn offload_changes_no_logit_and_no_text() {
    OTHERS.iter().for_each(|model| logits_are_the_same_wherever_blocks_live(model));
    logits_are_the_same_wherever_blocks_live(GPT2);
    logits_are_the_same_wherever_blocks_live(LLAMA);
    logits_are_the_same_wherever_blocks_live(QWEN2);
}

fn prompts_continue_as_each_alone(model: &str) {
    let (network, device) = (network(model), Device::flex());
    for choice in [Choice::Greedy, Choice::Sample { temperature: 1e-7, top_k: 3, seed: 1 }] {
        let request = Request { tokens: 12, choice, ends: Vec::new() };
        let together = generate(&network, &prompts(), &request, &|_| false, &device).unwrap();
        for (prompt, together) in prompts().iter().zip(together) {
            let alone = generate(&network, std::slice::from_ref(prompt), &request, &|_| false, &device)
                .unwrap()
                .remove(0);
            assert_eq!(together, alone);
            assert_eq!(alone.len(), prompt.len() + 12);
        }
    }
}

#[test]
fn prompts_of_different_lengths_continue_as_each_alone() {
    prompts_continue_as_each_alone(GPT2);
    prompts_continue_as_each_alone(GPTJ);
    prompts_continue_as_each_alone(LLAMA);
    prompts_continue_as_each_alone(QWEN2);
}

#[test]
fn each_token_is_the_most_probable_after_all_before_it() {
    let (network, device) = (network(QWEN2), Device::flex());
    let request = Request { tokens: 6, choice: Choice::Greedy, ends: Vec::new() };
    let sequence = generate(&network, &[vec![7, 70, 17]], &request, &|_| false, &device).unwrap().remove(0);
    for known in 3..sequence.len() {
        let logits = last_logits(&network, &Tokens::new(&sequence[..known], 1, &device), None);
        let largest = logits.iter().copied().fold(f32::MIN, f32::max);
        let first = logits.iter().position(|logit| *logit == largest);
        assert_eq!(first, Some(sequence[known] as usize));
    }
}

#[test]
fn a_seed_repeats_a_sample_and_an_end_cuts_it() {
    let (network, device) = (network(QWEN2), Device::flex());
    let sample = |seed, ends: &[u32]| {
        let ends = ends.to_vec();
        let choice = Choice::Sample { temperature: 1.0, top_k: 0, seed };
        generate(&network, &[vec![7, 70]], &Request { tokens: 10, choice, ends }, &|_| false, &device)
            .unwrap()
            .remove(0)
    };
    assert_eq!(sample(3, &[]), sample(3, &[]));
    assert_ne!(sample(3, &[]), sample(4, &[]));
    let end = sample(3, &[])[5];
    let first = sample(3, &[])[2..].iter().position(|token| *token == end).unwrap();
    assert_eq!(sample(3, &[u32::MAX, end]), sample(3, &[])[..2 + first + 1]);
}

/// Each sequence ends by its own rule, and the others go on as before.
#[test]
fn a_rule_stops_a_sequence_and_leaves_the_others_alone() {
    let (network, device) = (network(LLAMA), Device::flex());
    let request = Request { tokens: 9, choice: Choice::Greedy, ends: Vec::new() };
    let whole = generate(&network, &prompts(), &request, &|_| false, &device).unwrap();
    // A sum of new tokens that one sequence reaches before another.
    let stops = |new: &[u32]| new.iter().sum::<u32>() >= 200;
    let stopped = generate(&network, &prompts(), &request, &stops, &device).unwrap();
    let mut lengths = Vec::new();
    for ((stopped, whole), prompt) in stopped.iter().zip(&whole).zip(prompts()) {
        let new = &whole[prompt.len()..];
        let length = (1..=new.len()).find(|n| stops(&new[..*n])).unwrap_or(new.len());
        assert_eq!(stopped, &whole[..prompt.len() + length]);
        lengths.push(length);
    }
    assert!(
        lengths.iter().any(|length| *length < 9) && lengths.iter().any(|length| *length != lengths[0]),
        "{lengths:?}"
    );
}
