//! RMSNorm and LayerNorm.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use runner::ops::norm::Terms;
use runner::ops::norm::cuda::{norm, norm_backward};

use super::bench;
use super::data::{Known, known, normal};

/// Rows and columns: rows of one plane and of several, with and without vectors.
const SHAPES: [[usize; 2]; 10] = [
    [1, 1],
    [1, 64],
    [7, 33],
    [300, 128],
    [4099, 80],
    [1537, 256],
    [70, 514],
    [33, 2047],
    [9, 4096],
    [3, 20000],
];
/// Types of x, weight, y and g.
const TYPES: [[DType; 4]; 4] = [
    [DType::F32, DType::F32, DType::F32, DType::F32],
    [DType::F32, DType::F32, DType::BF16, DType::BF16],
    [DType::BF16, DType::BF16, DType::BF16, DType::BF16],
    [DType::F16, DType::F32, DType::F16, DType::F16],
];
const EPS: f64 = 1e-5;

struct Case {
    name: String,
    x: Known,
    weight: Known,
    g: Known,
    /// What dx is added to, in every second case.
    earlier: Option<Known>,
    /// In every third case.
    plus_one: bool,
    out: DType,
}

impl Case {
    fn terms(&self) -> Terms {
        Terms { epsilon: EPS, plus_one: self.plus_one }
    }

    fn earlier(&self) -> Option<&CubeTensor> {
        self.earlier.as_ref().map(|earlier| &earlier.tensor)
    }
}

fn cases(kind: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for [tokens, width] in SHAPES {
        for [x, weight, out, g] in TYPES {
            // With a mean far from zero a one-pass variance cancels, and a two-pass one does not.
            let mut values = normal(&[tokens, width], DType::F32, 1).values;
            values.iter_mut().for_each(|value| *value = 0.5 * *value + 2.0);
            cases.push(Case {
                name: format!("{kind} [{tokens}, {width}] x {x:?} weight {weight:?} g {g:?}"),
                x: known(&values, &[tokens, width], x),
                weight: normal(&[width], weight, 2),
                g: normal(&[tokens, width], g, 3),
                earlier: (cases.len() % 2 == 1).then(|| normal(&[tokens, width], x, 5)),
                plus_one: cases.len() % 3 == 0,
                out,
            });
        }
    }
    cases
}

/// y, dx, dweight, dbias in f64, without a mean when there is no bias.
fn reference(case: &Case, bias: Option<&[f64]>) -> [Vec<f64>; 6] {
    let width = case.weight.values.len();
    let one = f64::from(u8::from(case.plus_one));
    let weight: Vec<f64> = case.weight.values.iter().map(|weight| weight + one).collect();
    let [mut y, mut dx, mut means, mut rstds] = std::array::from_fn(|_| Vec::new());
    let (mut dweight, mut dbias) = (vec![0.0; width], vec![0.0; width]);
    for (x, g) in case.x.values.chunks(width).zip(case.g.values.chunks(width)) {
        let n = width as f64;
        let mean = bias.map_or(0.0, |_| x.iter().sum::<f64>() / n);
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let rstd = 1.0 / (variance + EPS).sqrt();
        let normal: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
        let upstream: Vec<f64> = g.iter().zip(&weight).map(|(g, w)| g * w).collect();
        let along = normal.iter().zip(&upstream).map(|(a, b)| a * b).sum::<f64>() / n;
        let level = bias.map_or(0.0, |_| upstream.iter().sum::<f64>() / n);
        for i in 0..width {
            y.push(normal[i] * weight[i] + bias.map_or(0.0, |bias| bias[i]));
            dx.push(rstd * (upstream[i] - level - normal[i] * along));
            dweight[i] += g[i] * normal[i];
            dbias[i] += g[i];
        }
        means.push(mean);
        rstds.push(rstd);
    }
    if let Some(earlier) = &case.earlier {
        dx.iter_mut().zip(&earlier.values).for_each(|(dx, earlier)| *dx += earlier);
    }
    [y, dx, dweight, dbias, means, rstds]
}

/// dx is a difference of larger terms when a row is short, and rounded in x's type.
const GRADIENT: f64 = 1e-4;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn rms() {
    bench(|bench| {
        for case in cases("rms_norm") {
            let [y, dx, dweight, _, _, rstd] = reference(&case, None);
            let (got, _, got_rstd) = norm(&case.x.tensor, &case.weight.tensor, None, case.terms(), case.out);
            bench.compare(&format!("{} y", case.name), &got, &y);
            bench.compare(&format!("{} rstd", case.name), &got_rstd, &rstd);
            let (got, parts) = norm_backward(
                &case.x.tensor,
                (&case.weight.tensor, case.plus_one),
                (None, &got_rstd),
                &case.g.tensor,
                case.earlier(),
            );
            let allowed = super::tolerance(got.dtype).max(GRADIENT);
            if case.weight.values.len() > 1 {
                bench.compare_within(&format!("{} dx", case.name), &got, &dx, allowed);
            }
            bench.compare_within(&format!("{} dweight", case.name), &parts.sum(DType::F32).0, &dweight, 1e-5);
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn layer() {
    bench(|bench| {
        for case in cases("layer_norm") {
            let width = case.weight.values.len();
            let bias = normal(&[width], case.weight.tensor.dtype, 4);
            let [y, dx, dweight, dbias, mean, rstd] = reference(&case, Some(&bias.values));
            let (got, got_mean, got_rstd) =
                norm(&case.x.tensor, &case.weight.tensor, Some(&bias.tensor), case.terms(), case.out);
            let got_mean = got_mean.expect("a bias has a mean");
            let allowed = super::tolerance(got.dtype).max(1e-5);
            bench.compare_within(&format!("{} y", case.name), &got, &y, allowed);
            bench.compare(&format!("{} mean", case.name), &got_mean, &mean);
            bench.compare_within(&format!("{} rstd", case.name), &got_rstd, &rstd, 1e-5);
            let (got, parts) = norm_backward(
                &case.x.tensor,
                (&case.weight.tensor, case.plus_one),
                (Some(&got_mean), &got_rstd),
                &case.g.tensor,
                case.earlier(),
            );
            let allowed = super::tolerance(got.dtype).max(GRADIENT);
            if width > 1 {
                bench.compare_within(&format!("{} dx", case.name), &got, &dx, allowed);
            }
            let (got_weight, got_bias) = parts.sum(DType::F32);
            let got_bias = got_bias.expect("LayerNorm has a bias");
            bench.compare_within(&format!("{} dweight", case.name), &got_weight, &dweight, 1e-4);
            bench.compare_within(&format!("{} dbias", case.name), &got_bias, &dbias, 1e-5);
        }
    });
}
