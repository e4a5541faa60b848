//! The optimizers' steps.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use runner::ops::kernels::elementwise::{Sums, cast_all, scaled};
use runner::optim::AdamW;
use runner::optim::adamw::cuda::{AdamWStep, Moments, Pending};
use runner::optim::sgd::cuda::{SgdStep, sgd};

use super::bench;
use super::data::{Known, download, known, normal, scalar, tolerance};

const SIZES: [usize; 4] = [1, 7, 4096, 5001];
/// Types of the parameter and the gradient.
const TYPES: [(DType, DType); 4] = [
    (DType::F32, DType::F32),
    (DType::F32, DType::BF16),
    (DType::BF16, DType::BF16),
    (DType::F16, DType::F32),
];
/// A factor of the gradient that f32 holds exactly.
const CLIP: f64 = 0.625;

/// One parameter's step by itself.
fn adamw(
    tensors: [CubeTensor; 4],
    clip: Option<&CubeTensor>,
    shared: Option<&CubeTensor>,
    step: AdamWStep,
) -> [CubeTensor; 3] {
    Pending::default().step((Moments::Fp32, 0), tensors, clip, shared, step)
}

fn widen(x: f32) -> f64 {
    f64::from(x)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn adamw_steps() {
    bench(|bench| {
        for n in SIZES {
            for (p_type, g_type) in TYPES {
                let name = format!("adamw {n} {p_type:?} {g_type:?}");
                let (p, g) = (normal(&[n], p_type, 21), normal(&[n], g_type, 22));
                let m = normal(&[n], DType::F32, 23);
                let squares: Vec<f64> = m.values.iter().map(|x| 0.5 + x * x).collect();
                let v = known(&squares, &[n], DType::F32);
                let rule = AdamW { lr: 0.01, beta_2: 0.95, weight_decay: 0.1, ..AdamW::default() };
                let step = rule.step(Some(3), 1.0);
                let [b1, b2, rest1, rest2] = [step.beta1, step.beta2, step.rest1, step.rest2].map(widen);
                let [mut new_p, mut new_m, mut new_v] = std::array::from_fn(|_| Vec::new());
                for i in 0..n {
                    let g = CLIP * g.values[i];
                    let (m, v) = (b1 * m.values[i] + rest1 * g, b2 * v.values[i] + rest2 * g * g);
                    let divisor = v.sqrt() / widen(step.correction) + widen(step.eps);
                    new_p.push(p.values[i] * widen(step.decay) - widen(step.rate) * m / divisor);
                    new_m.push(m);
                    new_v.push(v);
                }
                let clip = scalar(CLIP);
                let kept = p.tensor.clone();
                let tensors = [p.tensor, g.tensor.clone(), m.tensor.clone(), v.tensor.clone()];
                let [got_p, got_m, got_v] = adamw(tensors, Some(&clip), None, step);
                bench.compare(&format!("{name} p"), &got_p, &new_p);
                bench.compare(&format!("{name} m"), &got_m, &new_m);
                bench.compare(&format!("{name} v"), &got_v, &new_v);
                bench.compare_within(&format!("{name}, the old p is kept"), &kept, &p.values, 0.0);
                drop(got_p);
                let tensors = [kept, g.tensor, m.tensor, v.tensor];
                let [got_p, ..] = adamw(tensors, Some(&clip), None, step);
                bench.compare(&format!("{name} in place"), &got_p, &new_p);
            }
        }
    });
}

/// Parameters of two types, more than one launch takes, some of them not aligned to vectors.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn many_adamw_steps_in_few_launches() {
    bench(|bench| {
        let step = AdamW { lr: 0.01, ..AdamW::default() }.step(Some(2), 1.0);
        let parameter = |i: usize| {
            let (p_type, g_type) = TYPES[i % 2];
            let n = [3, 20_000, 768, 8192][i % 4] + i;
            let v = known(&vec![0.5; n], &[n], DType::F32);
            [normal(&[n], p_type, 31), normal(&[n], g_type, 32), normal(&[n], DType::F32, 33), v]
        };
        let all: Vec<_> = (0..250).map(parameter).collect();
        let tensors = |parameter: &[Known; 4]| parameter.each_ref().map(|known| known.tensor.copy());
        let mut pending = Pending::default();
        let together: Vec<_> = all
            .iter()
            .map(|parameter| pending.step((Moments::Fp32, 0), tensors(parameter), None, None, step))
            .collect();
        drop(pending);
        for (i, (together, parameter)) in together.iter().zip(&all).enumerate() {
            let alone = adamw(tensors(parameter), None, None, step);
            for ((together, alone), name) in together.iter().zip(&alone).zip(["p", "m", "v"]) {
                let name = format!("parameter {i} of many, {name}");
                bench.compare_within(&name, together, &download(alone), 0.0);
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn many_casts_in_few_launches() {
    bench(|bench| {
        for dtype in [DType::BF16, DType::F16] {
            let all: Vec<_> = (0..150).map(|i| normal(&[i * 97 % 9000 + 1], DType::F32, 34)).collect();
            let casts = cast_all(&all.iter().map(|known| known.tensor.clone()).collect::<Vec<_>>(), dtype);
            for (i, (cast, known)) in casts.iter().zip(&all).enumerate() {
                bench.compare(&format!("cast {i} of many to {dtype:?}"), cast, &known.values);
            }
        }
        let x = normal(&[5001], DType::F32, 35);
        let expected: Vec<f64> = x.values.iter().map(|x| x * 0.375).collect();
        for dtype in [DType::F32, DType::BF16] {
            let got = scaled(x.tensor.clone(), &scalar(0.375), dtype);
            bench.compare(&format!("scaled as {dtype:?}"), &got, &expected);
        }
    });
}

/// Sums in the memory of the first tensor, and a new one where somebody else holds it.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn many_sums_in_few_launches() {
    bench(|bench| {
        for (a_type, b_type) in
            [(DType::F32, DType::F32), (DType::BF16, DType::BF16), (DType::F32, DType::BF16)]
        {
            let of = |i: usize, dtype, seed| normal(&[i * 97 % 9000 + 1], dtype, seed);
            let all: Vec<_> = (0..150).map(|i| (of(i, a_type, 36), of(i, b_type, 37))).collect();
            let mut sums = Sums::default();
            let added: Vec<_> = all.iter().map(|(a, b)| sums.add(a.tensor.copy(), &b.tensor)).collect();
            let held = sums.add(all[7].0.tensor.clone(), &all[7].1.tensor);
            drop(sums);
            for (i, (sum, (a, b))) in added.iter().zip(&all).enumerate() {
                let expected: Vec<f64> = a.values.iter().zip(&b.values).map(|(a, b)| a + b).collect();
                bench.compare(&format!("sum {i} of many, {a_type:?} and {b_type:?}"), sum, &expected);
            }
            bench.compare_within("a sum of what is held", &held, &download(&added[7]), 0.0);
            bench.compare_within("what is held", &all[7].0.tensor, &all[7].0.values, 0.0);
        }
    });
}

/// The same steps where whether they are applied, and AdamW's corrections, are numbers on the device.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn guarded_steps() {
    bench(|bench| {
        let rule = AdamW { lr: 0.01, beta_2: 0.95, weight_decay: 0.1, ..AdamW::default() };
        let (host_knows, device_knows) = (rule.step(Some(3), 1.0), rule.step(None, 1.0));
        let (c1, c2) = (1.0 - 0.9f64.powi(3), 1.0 - 0.95f64.powi(3));
        let clip = scalar(CLIP);
        for n in SIZES {
            for (p_type, g_type) in TYPES {
                let name = format!("guarded {n} {p_type:?} {g_type:?}");
                let (p, g) = (normal(&[n], p_type, 27), normal(&[n], g_type, 28));
                let lost = known(&vec![f64::INFINITY; n], &[n], g_type);
                let m = normal(&[n], DType::F32, 29);
                let squares: Vec<f64> = m.values.iter().map(|x| 0.5 + x * x).collect();
                let v = known(&squares, &[n], DType::F32);
                let fresh = || [&p.tensor, &m.tensor, &v.tensor].map(CubeTensor::copy);

                let [a, b, c] = fresh();
                let plain = adamw([a, g.tensor.clone(), b, c], Some(&clip), None, host_knows);
                let [a, b, c] = fresh();
                let shared = known(&[1.0, c1, c2], &[3], DType::F32).tensor;
                let same = adamw([a, g.tensor.clone(), b, c], Some(&clip), Some(&shared), device_knows);
                for (part, got, expected) in
                    ["p", "m", "v"].into_iter().zip(same).zip(plain).map(|((part, a), b)| (part, a, b))
                {
                    bench.compare(&format!("{name} adamw applied {part}"), &got, &download(&expected));
                }
                let [a, b, c] = fresh();
                let shared = known(&[0.0, 0.0, 0.0], &[3], DType::F32).tensor;
                let [a, b, c] =
                    adamw([a, lost.tensor.clone(), b, c], Some(&clip), Some(&shared), device_knows);
                for (part, got, before) in [("p", a, &p), ("m", b, &m), ("v", c, &v)] {
                    bench.compare_within(&format!("{name} adamw skipped {part}"), &got, &before.values, 0.0);
                }

                let rule = SgdStep { lr: 0.125, momentum: 0.9, weight_decay: 0.0625 };
                let run = |g: &CubeTensor, applied: Option<f64>| {
                    let [p, m, _] = fresh();
                    let applied = applied.map(scalar);
                    let (p, m) = sgd(p, g, Some(m), Some(&clip), applied.as_ref(), rule);
                    (p, m.expect("there is momentum"))
                };
                let (plain, same) = (run(&g.tensor, None), run(&g.tensor, Some(1.0)));
                bench.compare_within(&format!("{name} sgd applied p"), &same.0, &download(&plain.0), 0.0);
                bench.compare_within(&format!("{name} sgd applied m"), &same.1, &download(&plain.1), 0.0);
                let (got_p, got_m) = run(&lost.tensor, Some(0.0));
                bench.compare_within(&format!("{name} sgd skipped p"), &got_p, &p.values, 0.0);
                bench.compare_within(&format!("{name} sgd skipped m"), &got_m, &m.values, 0.0);
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn sgd_steps() {
    bench(|bench| {
        let step = SgdStep { lr: 0.125, momentum: 0.9, weight_decay: 0.0625 };
        for n in SIZES {
            for (p_type, g_type) in TYPES {
                let name = format!("sgd {n} {p_type:?} {g_type:?}");
                let (p, g) = (normal(&[n], p_type, 24), normal(&[n], g_type, 25));
                let m = normal(&[n], DType::F32, 26);
                let direction = |old: Option<&Known>| -> Vec<f64> {
                    let new = |i: usize| {
                        let old = old.map_or(0.0, |m| widen(step.momentum) * m.values[i]);
                        old + CLIP * g.values[i] + 0.0625 * p.values[i]
                    };
                    (0..n).map(new).collect()
                };
                let moved =
                    |m: &[f64]| -> Vec<f64> { p.values.iter().zip(m).map(|(p, m)| p - 0.125 * m).collect() };
                let mut check = |what: &str, buffer: Option<CubeTensor>, expected: Vec<f64>| {
                    let (got_p, got_m) =
                        sgd(p.tensor.clone(), &g.tensor, buffer, Some(&scalar(CLIP)), None, step);
                    bench.compare_within(
                        &format!("{name} {what} p"),
                        &got_p,
                        &moved(&expected),
                        tolerance(got_p.dtype),
                    );
                    if let Some(got_m) = got_m {
                        bench.compare(&format!("{name} {what} m"), &got_m, &expected);
                    }
                };
                check("without momentum", None, direction(None));
                let zeros = known(&vec![0.0; n], &[n], DType::F32);
                check("first step", Some(zeros.tensor), direction(None));
                check("next step", Some(m.tensor.clone()), direction(Some(&m)));
            }
        }
    });
}
