//! Cross entropy in chunks, sums, and the mean square difference.

use burn::tensor::DType;
use runner::ops::cross_entropy::Logits;
use runner::ops::cross_entropy::cuda::{
    LossState, chunk_gradient, logits as shaped, observe_chunk, token_losses,
};
use runner::ops::cross_entropy::loss::{Part, losses_and_gradients};
use runner::ops::kernels::sum::{
    mean_square_difference, mean_square_difference_backward, sum, sum_of_squares,
};

use super::bench;
use super::data::{download, integers, known, normal, scalar};

const SIZES: [usize; 7] = [1, 7, 256, 1000, 4097, 300_000, 3_000_001];

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn sums() {
    bench(|bench| {
        for n in SIZES {
            let x = normal(&[n], DType::F32, 10);
            let shifted: Vec<f64> = x.values.iter().map(|x| x + 1.0).collect();
            let x = known(&shifted, &[n], DType::F32);
            bench.compare(&format!("sum of {n}"), &sum(&x.tensor), &[x.values.iter().sum()]);
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let x = normal(&[n], dtype, 11);
                let expected: f64 = x.values.iter().map(|x| x * x).sum();
                bench.compare(
                    &format!("sum_of_squares of {n} {dtype:?}"),
                    &sum_of_squares(std::slice::from_ref(&x.tensor)),
                    &[expected],
                );
            }
        }
        // More of a type than one launch takes, some of them not aligned to vectors.
        let all: Vec<_> = [DType::F32, DType::BF16, DType::F16]
            .into_iter()
            .flat_map(|dtype| (0..120).map(move |i| normal(&[SIZES[i % SIZES.len()] + i], dtype, 12)))
            .collect();
        let expected: f64 = all.iter().flat_map(|x| &x.values).map(|x| x * x).sum();
        let tensors: Vec<_> = all.iter().map(|x| x.tensor.clone()).collect();
        bench.compare("sum_of_squares of many tensors", &sum_of_squares(&tensors), &[expected]);
        for (value, name) in [(f64::INFINITY, "infinity"), (f64::NAN, "NaN")] {
            let mut values = vec![1.0; 5000];
            values[4321] = value;
            let x = known(&values, &[5000], DType::BF16);
            for count in [1, 2] {
                let got = download(&sum_of_squares(&vec![x.tensor.clone(); count]))[0];
                bench.holds(&format!("sum_of_squares carries {name} over, {count}"), !got.is_finite());
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn mean_square() {
    bench(|bench| {
        for n in SIZES {
            for (y, target) in
                [(DType::F32, DType::F32), (DType::BF16, DType::F32), (DType::BF16, DType::BF16)]
            {
                let name = format!("mean_square_difference of {n} {y:?} {target:?}");
                let (y, target) = (normal(&[n], y, 12), normal(&[n], target, 13));
                let differences: Vec<f64> = y.values.iter().zip(&target.values).map(|(a, b)| a - b).collect();
                let loss = differences.iter().map(|d| d * d).sum::<f64>() / n as f64;
                bench.compare(&name, &mean_square_difference(&y.tensor, &target.tensor), &[loss]);
                let expected: Vec<f64> = differences.iter().map(|d| 2.0 * d / n as f64 * 3.0).collect();
                let got = mean_square_difference_backward(&y.tensor, &target.tensor, &scalar(3.0));
                bench.compare(&format!("{name} backward"), &got, &expected);
            }
        }
    });
}

const FORMS: [Logits; 4] = [
    Logits { scale: 1.0, soft_cap: None },
    Logits { scale: 0.125, soft_cap: None },
    Logits { scale: 1.0, soft_cap: Some(30.0) },
    Logits { scale: 0.7, soft_cap: Some(15.0) },
];

/// The logits of products, and their derivatives.
fn logits_at(products: &[f64], Logits { scale, soft_cap }: Logits) -> (Vec<f64>, Vec<f64>) {
    let at = |z: &f64| match soft_cap {
        None => (scale * z, scale),
        Some(cap) => {
            let tanh = (scale * z / cap).tanh();
            (cap * tanh, scale * (1.0 - tanh * tanh))
        }
    };
    products.iter().map(at).unzip()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn logits_of_products() {
    bench(|bench| {
        for (n, form) in SIZES.into_iter().flat_map(|n| FORMS.map(|form| (n, form))) {
            let z = normal(&[n], DType::F32, 21);
            let z = known(
                &z.values.iter().map(|z| f64::from((z * 30.0) as f32)).collect::<Vec<_>>(),
                &[n],
                DType::F32,
            );
            let expected = logits_at(&z.values, form).0;
            bench.compare(&format!("{n} logits, {form:?}"), &shaped(z.tensor.clone(), form), &expected);
            bench.compare(&format!("{n} logits in place, {form:?}"), &shaped(z.tensor, form), &expected);
        }
    });
}

/// Rows that one block holds, that 4 and 8 share, and that none holds; padded, and with a second part of the tokens.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn losses_and_their_gradients() {
    bench(|bench| {
        // One comes again after smaller ones: one process may have several vocabularies.
        let sizes = [(5003, 40), (70, 9), (1, 3), (5003, 2), (50_257, 7), (151_936, 5), (500_003, 3)];
        for ((vocab, tokens), form) in sizes.into_iter().flat_map(|size| FORMS.map(|form| (size, form))) {
            let row = usize::next_multiple_of(vocab, 64);
            let logits = normal(&[tokens, row], DType::F32, 14);
            let values: Vec<f64> = logits.values.iter().map(|x| f64::from((x * 4.0 - 20.0) as f32)).collect();
            let logits = known(&values, &[tokens, row], DType::F32);
            // The last tokens of a batch, of which one does not count.
            let (before, all) = (2, tokens + 2);
            let labels: Vec<i32> =
                (0..all).map(|t| if t == 3 { -100 } else { (t * 7919 % vocab) as i32 }).collect();
            let on_device = integers(&labels, &[all]);
            for dtype in [DType::BF16, DType::F16, DType::F32] {
                let losses = known(&vec![-1.0; all], &[all], DType::F32).tensor;
                let dlogits = known(&vec![-1.0; (tokens + 1) * row], &[tokens + 1, row], dtype).tensor;
                let part = Part { tokens, first_token: before, first_row: 1, gain: 4.0 };
                losses_and_gradients(&logits.tensor, &on_device, (&losses, &dlogits), vocab, form, part);
                let (mut expected_losses, mut expected) = (vec![-1.0; before], vec![-1.0; row]);
                for (products, label) in values.chunks(row).zip(&labels[before..]) {
                    let (values, slopes) = logits_at(products, form);
                    let lse = log_sum_exp(&values[..vocab]);
                    expected_losses.push(if *label < 0 { 0.0 } else { lse - values[*label as usize] });
                    for (entry, x) in values.iter().enumerate() {
                        let hit = f64::from(u8::from(*label == entry as i32));
                        let counts = *label >= 0 && entry < vocab;
                        expected.push(if counts {
                            4.0 * ((x - lse).exp() - hit) * slopes[entry]
                        } else {
                            0.0
                        });
                    }
                }
                let name = format!("{vocab} entries as {dtype:?}, {form:?}");
                bench.compare_within(&format!("losses of {name}"), &losses, &expected_losses, 1e-5);
                bench.compare_within(
                    &format!("gradients of {name}"),
                    &dlogits,
                    &expected,
                    super::tolerance(dtype).max(2e-5),
                );
            }
        }
    });
}

/// The edges of the chunks, entries between them, and ignored tokens.
fn labels(tokens: usize, vocab: usize, chunk: usize) -> Vec<i32> {
    let label = |t: usize| match t % 5 {
        0 => (vocab - 1) as i32,
        1 => (chunk.min(vocab) - 1) as i32,
        2 => -100,
        3 => (chunk % vocab) as i32,
        _ => (t * 37 % vocab) as i32,
    };
    (0..tokens).map(label).collect()
}

fn log_sum_exp(row: &[f64]) -> f64 {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    top + row.iter().map(|x| (x - top).exp()).sum::<f64>().ln()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cross_entropy() {
    bench(|bench| {
        let sizes =
            [(1, 1, 1), (5, 10, 4), (3, 33, 33), (40, 1000, 256), (17, 5000, 1023), (6, 20_001, 8192)];
        for ((tokens, vocab, chunk), form) in
            sizes.into_iter().flat_map(|size| FORMS.map(|form| (size, form)))
        {
            let name = format!("cross entropy of {tokens} tokens, {vocab} entries by {chunk}, {form:?}");
            let logits = normal(&[tokens, vocab], DType::F32, 14);
            let products: Vec<f64> =
                logits.values.iter().map(|x| f64::from((x * 5.0 - 40.0) as f32)).collect();
            let (values, slopes) = logits_at(&products, form);
            let labels = labels(tokens, vocab, chunk);
            let on_device = integers(&labels, &[tokens]);
            let part = |first: usize, last: usize| {
                let columns: Vec<f64> = (0..tokens)
                    .flat_map(|t| products[t * vocab + first..t * vocab + last].to_vec())
                    .collect();
                known(&columns, &[tokens, last - first], DType::F32).tensor
            };
            let starts: Vec<usize> = (0..vocab).step_by(chunk).collect();
            let mut state = LossState::new(&on_device, tokens);
            for first in &starts {
                let part = part(*first, (first + chunk).min(vocab));
                observe_chunk(&part, &on_device, *first, form, &mut state);
            }
            let (losses, lse) = token_losses(&state, &on_device);
            let expected_lse: Vec<f64> = values.chunks(vocab).map(log_sum_exp).collect();
            let target = |t: usize| values[t * vocab + labels[t] as usize];
            let expected: Vec<f64> =
                (0..tokens).map(|t| if labels[t] < 0 { 0.0 } else { expected_lse[t] - target(t) }).collect();
            bench.compare_within(&format!("{name}, lse"), &lse, &expected_lse, 1e-5);
            bench.compare_within(&format!("{name}, losses"), &losses, &expected, 1e-5);
            let scale = scalar(0.25);
            for first in starts {
                let last = (first + chunk).min(vocab);
                let mut expected = Vec::new();
                for t in 0..tokens {
                    for entry in first..last {
                        let hit = f64::from(u8::from(labels[t] == entry as i32));
                        let p = (values[t * vocab + entry] - expected_lse[t]).exp();
                        let slope = slopes[t * vocab + entry];
                        expected.push(if labels[t] < 0 { 0.0 } else { (p - hit) * 0.25 * slope });
                    }
                }
                for out in [DType::F32, DType::BF16] {
                    let got = chunk_gradient(part(first, last), &lse, (&on_device, first), form, &scale, out);
                    let allowed = super::tolerance(out).max(2e-5);
                    bench.compare_within(&format!("{name}, gradient from {first}"), &got, &expected, allowed);
                }
            }
        }
    });
}
