//! The chunked language-model loss at a real vocabulary: its memory, its time, and the error of its
//! gradients against float64.

use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use runner::common::Compute;
use runner::device::cuda::{Event, Gpu, PeakObservation, Usage};
use runner::ops::Operator;
use runner::ops::cross_entropy::{HeadArithmetic, Logits, linear_cross_entropy};
use runner::ops::dense::Arithmetic;

use crate::reference::{median, random};
use crate::{Checks, on_gpu};

/// Tokens, vocabulary, hidden size; the values of Qwen2.5-0.5B.
const LARGE: [usize; 3] = [4096, 151_936, 896];
/// Small enough for float64 on the host. In bf16 one chunk of tokens has all; in fp32 chunks of the vocabulary have unequal
/// widths.
const SMALL: [usize; 3] = [500, 20_000, 896];
/// More tokens than a chunk of tokens has, of a vocabulary whose rows are padded.
const LONG: [usize; 3] = [3000, 5003, 64];
/// Vocabularies whose logits of a token are shared by two and by eight blocks.
const WIDE: [[usize; 3]; 2] = [[300, 33_001, 72], [70, 151_936, 64]];

fn labels(tokens: usize, vocab: usize, device: &Device) -> Tensor<1, Int> {
    // Every ninth token is not counted.
    let label = |t: usize| if t % 9 == 4 { -100 } else { (t * 7919 % vocab) as i32 };
    let values: Vec<i32> = (0..tokens).map(label).collect();
    Tensor::from_data(TensorData::new(values, [tokens]), (device, DType::I32))
}

/// h, W and the labels of one size; h is scaled so that logits have a standard deviation of about 2.
fn inputs([tokens, vocab, hidden]: [usize; 3], device: &Device, dtype: DType) -> (Tensor<2>, Tensor<2>) {
    let of = |shape: [usize; 2], seed: u64, scale: f64| {
        let tensor = Tensor::<2>::from_data(random(shape, seed), (device, DType::F32)) * scale;
        // Rounded once: float64 starts from the same values.
        tensor.cast(FloatDType::BF16).cast(FloatDType::from(dtype))
    };
    (of([tokens, hidden], 1, 2.0 / (hidden as f64).sqrt()), of([vocab, hidden], 2, 1.0))
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn memory_and_time() {
    on_gpu(|gpu, checks| {
        let device = gpu.burn().autodiff();
        let [tokens, vocab, _] = LARGE;
        let (h, w) = inputs(LARGE, &device, DType::BF16);
        let (h, w) = (h.require_grad(), w.require_grad());
        let labels = labels(tokens, vocab, &gpu.burn());
        let arithmetic = Arithmetic::of(Compute::Bf16);
        let step = || {
            let loss = linear_cross_entropy(
                h.clone(),
                w.clone(),
                &labels,
                tokens as f64,
                arithmetic,
                Operator::Custom,
                false,
            );
            loss.backward()
        };
        drop(step());
        gpu.synchronize();
        let before = Usage::now(gpu).live;
        let observation = PeakObservation::start(gpu);
        let gradients = step();
        gpu.synchronize();
        let (peak, _) = observation.take_peaks();
        drop(observation);
        let held = Usage::now(gpu).live - before;
        let above = peak - before - held;
        println!(
            "loss of {tokens} x {vocab} bf16: {:.3} GB above its inputs and gradients ({:.3} GB)",
            above as f64 / 1e9,
            held as f64 / 1e9
        );
        checks.below("loss peak above inputs and gradients, GB", above as f64 / 1e9, 0.6);
        drop(gradients);
        let times = (0..7).map(|_| {
            let start = Event::record(gpu);
            drop(step());
            Event::record(gpu).seconds_since(&start) * 1e3
        });
        println!("loss of {tokens} x {vocab} bf16: forward + backward {:.2} ms", median(times.collect()));
    });
}

/// Relative errors of the loss, dh and dW of bf16 operands against float64 on the host.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gradients_against_f64() {
    on_gpu(|gpu, checks| {
        for size in [SMALL, LONG, WIDE[0], WIDE[1]] {
            for soft_cap in [None, Some(3.0)] {
                let scale = if soft_cap.is_some() { 0.75 } else { 1.0 };
                against_f64(gpu, size, Logits { scale, soft_cap }, checks);
            }
        }
    });
}

fn against_f64(gpu: &Gpu, size: [usize; 3], logits: Logits, checks: &mut Checks) {
    let [tokens, vocab, _] = size;
    let run = |device: Device, arithmetic: Arithmetic, dtype: DType, operator: Operator| {
        let (h, w) = inputs(size, &device.clone().autodiff(), dtype);
        let (h, w) = (h.require_grad(), w.require_grad());
        let labels = labels(tokens, vocab, &device);
        let (total, head) = (tokens as f64, HeadArithmetic { arithmetic, logits });
        let loss = linear_cross_entropy(h.clone(), w.clone(), &labels, total, head, operator, true);
        let value: Vec<f64> = loss.clone().inner().into_data().iter::<f64>().collect();
        let gradients = loss.backward();
        let of = |t: &Tensor<2>| -> Vec<f64> {
            t.grad(&gradients).expect("a gradient").into_data().iter::<f64>().collect()
        };
        [value, of(&h), of(&w)]
    };
    let exact = Arithmetic { dtype: DType::F64, ..Arithmetic::of(Compute::Fp32) };
    let expected = run(Device::flex(), exact, DType::F64, Operator::Custom);
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    for (name, compute, dtype, operator, limits) in [
        ("fp32", Compute::Fp32, DType::F32, Operator::Custom, [1e-6, 1e-5, 1e-5]),
        ("bf16", Compute::Bf16, DType::BF16, Operator::Custom, [1e-5, 5e-3, 5e-3]),
        // Gradients in fp16 would vanish without a scale.
        ("fp16 of fp32", Compute::Fp16, DType::F32, Operator::Custom, [1e-4, 1e-3, 1e-3]),
        ("bf16, whole logits by Burn", Compute::Bf16, DType::BF16, Operator::Plain, [1e-2, 2e-2, 2e-2]),
    ] {
        let got = run(gpu.burn(), Arithmetic::of(compute), dtype, operator);
        for ((what, limit), (got, expected)) in
            ["loss", "dh", "dW"].into_iter().zip(limits).zip(got.iter().zip(&expected))
        {
            let difference: Vec<f64> = got.iter().zip(expected).map(|(a, b)| a - b).collect();
            let error = norm(&difference) / norm(expected);
            checks.below(
                &format!("loss of {size:?} {name} {logits:?}: {what} against float64"),
                error,
                limit,
            );
        }
    }
}
