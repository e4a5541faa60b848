//! Attention by its definition in f64, and results of a device to compare with it.

use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use runner::common::Compute;
use runner::ops::attention::{Heads, Mask, Way, attention, attention_packed};
use runner::ops::dense::Arithmetic;

use crate::Checks;
use crate::reference::{float, random};

const NAMES: [&str; 4] = ["o", "dq", "dk", "dv"];

/// Of a token in a sequence: segments of these lengths by turns.
pub fn starts(heads: Heads, lengths: &[usize]) -> Vec<i32> {
    let sequence = |batch: usize| {
        let mut starts = Vec::new();
        for length in lengths.iter().cycle().skip(batch) {
            let length = (*length).min(heads.sequence - starts.len());
            starts.extend(vec![starts.len() as i32; length]);
            if starts.len() == heads.sequence {
                break;
            }
        }
        starts
    };
    (0..heads.batch).flat_map(sequence).collect()
}

pub fn mask(starts: &[i32], heads: Heads, device: &Device) -> Mask {
    let starts =
        Tensor::<1, Int>::from_data(TensorData::new(starts.to_vec(), [starts.len()]), (device, DType::I32));
    Mask { starts: Some(starts.reshape([heads.batch, heads.sequence])), packing: None }
}

/// q, k, v and the gradient of the result, rounded to the compute type.
pub fn data(heads: Heads, compute: Compute) -> [Vec<f32>; 4] {
    let (queries, keys) = (heads.columns(), heads.of_keys().columns());
    let mut seed = 0;
    [queries, keys, keys, queries].map(|columns| {
        seed += 1;
        let x =
            Tensor::<2>::from_data(random([heads.tokens(), columns], seed), (&Device::flex(), DType::F32));
        x.cast(float(compute)).cast(FloatDType::F32).into_data().try_to_vec().expect("floats")
    })
}

/// o and the gradients of q, k and v, these side by side in one tensor or in three.
pub fn results(
    device: &Device,
    heads: Heads,
    mask: &Mask,
    compute: Compute,
    way: Way,
    together: bool,
) -> [Vec<f64>; 4] {
    let device = device.clone().autodiff();
    let tensor = |values: Vec<f32>| {
        let columns = values.len() / heads.tokens();
        Tensor::<2>::from_data(TensorData::new(values, [heads.tokens(), columns]), (&device, DType::F32))
    };
    let [q, k, v, g] = data(heads, compute).map(tensor);
    let [q, k, v] = [q, k, v].map(Tensor::require_grad);
    let arithmetic = Arithmetic::of(compute);
    let o = match together {
        true => {
            let qkv = Tensor::cat(vec![q.clone(), k.clone(), v.clone()], 1).cast(float(compute));
            attention_packed(qkv, heads, mask, arithmetic, way)
        }
        false => attention(q.clone(), k.clone(), v.clone(), heads, mask, arithmetic, way),
    };
    let list = |t: Tensor<2>| t.into_data().iter::<f64>().collect::<Vec<f64>>();
    let values = list(o.clone().inner());
    let mut gradients = (o.cast(FloatDType::F32) * g).sum().backward();
    let mut gradient = |t: &Tensor<2>| list(t.grad_remove(&mut gradients).expect("a gradient"));
    [values, gradient(&q), gradient(&k), gradient(&v)]
}

/// The same by its definition.
pub fn by_definition(heads: Heads, starts: Option<&[i32]>, compute: Compute) -> [Vec<f64>; 4] {
    let Heads { batch, sequence, kv_heads, group, head_dim, scores } = heads;
    let [q, k, v, g] = data(heads, compute).map(|x| x.into_iter().map(f64::from).collect::<Vec<f64>>());
    let [mut o, mut dq, mut dk, mut dv] = [&q, &q, &k, &v].map(|x| vec![0.0; x.len()]);
    let scale = heads.scale();
    // A score and its slope.
    let score = |product: f64| match scores.soft_cap {
        None => (scale * product, scale),
        Some(cap) => {
            let tanh = (scale * product / cap).tanh();
            (cap * tanh, scale * (1.0 - tanh * tanh))
        }
    };
    for (b, h, i) in (0..batch)
        .flat_map(|b| (0..kv_heads * group).flat_map(move |h| (0..sequence).map(move |i| (b, h, i))))
    {
        let of_query = ((b * sequence + i) * kv_heads * group + h) * head_dim;
        let of_key = |j: usize| ((b * sequence + j) * kv_heads + h / group) * head_dim;
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let begin = starts.map_or(0, |starts| starts[b * sequence + i] as usize);
        let begin = begin.max(scores.window.map_or(0, |window| (i + 1).saturating_sub(window)));
        let z: Vec<(f64, f64)> = (begin..=i)
            .map(|j| score(dot(&q[of_query..][..head_dim], &k[of_key(j)..][..head_dim])))
            .collect();
        let exps: Vec<f64> = z.iter().map(|(z, _)| z.exp()).collect();
        let sum: f64 = exps.iter().sum();
        let g = &g[of_query..][..head_dim];
        for (j, e) in (begin..=i).zip(&exps) {
            for d in 0..head_dim {
                o[of_query + d] += e / sum * v[of_key(j) + d];
            }
        }
        let delta = dot(g, &o[of_query..][..head_dim]);
        for ((j, e), (_, slope)) in (begin..=i).zip(&exps).zip(&z) {
            let p = e / sum;
            let ds = slope * p * (dot(g, &v[of_key(j)..][..head_dim]) - delta);
            for d in 0..head_dim {
                dv[of_key(j) + d] += p * g[d];
                dq[of_query + d] += ds * k[of_key(j) + d];
                dk[of_key(j) + d] += ds * q[of_query + d];
            }
        }
    }
    [o, dq, dk, dv]
}

/// ‖got − expected‖ / ‖expected‖ of each.
pub fn compare(
    checks: &mut Checks,
    name: &str,
    got: &[Vec<f64>; 4],
    expected: &[Vec<f64>; 4],
    tolerance: f64,
) {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    for ((part, got), expected) in NAMES.into_iter().zip(got).zip(expected) {
        let off = norm(&mut got.iter().zip(expected).map(|(a, b)| a - b));
        checks.below(&format!("{name}, {part}"), off / norm(&mut expected.iter().copied()), tolerance);
    }
}
