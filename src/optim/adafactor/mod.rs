//! Adafactor (Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost"), as
//! `torch.optim.Adafactor`: the mean square of a matrix's gradient is the product of those of its rows and columns.

pub mod cuda;

use burn::tensor::{DType, Device, Tensor};

use super::{Kept, Pending, Rule, State, StepSize, Visit, clipped, widened, zeros};
use crate::keys::key::DefaultValue::{Nothing, Number};
use crate::keys::section::section;
use crate::keys::values::{NON_NEGATIVE, POSITIVE};
use crate::keys::{Key, Section};
use crate::ops::backend::{cube, on_cuda, uncube};
use crate::ops::cost::Tensors;
use crate::ops::{narrow, wide};
use crate::optim::adafactor::cuda as adafactor;
use crate::optim::adafactor::cuda::{AdafactorStep, MeanSquares, adafactor};

section! {
    /// Adafactor (Shazeer and Stern 2018), as `torch.optim.Adafactor`.
    ///
    /// ```text
    /// w ← t^−beta_2_decay,  r ← r + w (mean_columns g² − r),  c ← c + w (mean_rows g² − c)
    /// v ← r c / max(mean r, epsilon_1)                  (of a vector v ← v + w (g² − v))
    /// u ← g / √max(v, epsilon_1²)                       (at least 2⁻¹²⁶)
    /// a ← max(epsilon_2, rms p) · min(lr, 1 / √t)
    /// p ← p (1 − lr · weight_decay) − a / max(1, rms u / threshold) · u
    /// ```
    ///
    /// The defaults are PyTorch's.
    pub struct Adafactor: Section::of("train.optimizer", "kind", &["adafactor"]), Default => {
        /// Largest learning rate, relative to the size of a parameter.
        pub lr: f64 = Key::method(POSITIVE).default(Number(1e-2)),
        /// Step t forgets the share t to the power of minus this of the mean squares.
        pub beta_2_decay: f64 = Key::method(POSITIVE).default(Number(0.8)),
        /// Least mean square of the rows; else the distance from 1 to the next number of the parameter's type.
        pub epsilon_1: Option<f64> = Key::method(POSITIVE).default(Nothing),
        /// Least size of a parameter that the learning rate is relative to.
        pub epsilon_2: f64 = Key::method(POSITIVE).default(Number(1e-3)),
        /// Root mean square of an update that is not scaled down.
        pub threshold: f64 = Key::method(POSITIVE).default(Number(1.0)),
        /// Times the learning rate: the share of a parameter that a step takes off.
        pub weight_decay: f64 = Key::method(NON_NEGATIVE).default(Number(0.0)),
    }
}

impl Rule for Adafactor {
    fn state_bytes(&self, tensors: Tensors) -> u64 {
        4 * tensors.sides
    }

    /// Mean squares and the update, and the parameter, since a product is not in its memory.
    fn workspace_bytes(&self, elements: u64, stored: u64) -> u64 {
        2 * 4 * elements + 2 * widened(elements, stored)
    }

    fn launches(&self, tensors: u64) -> u64 {
        adafactor::LAUNCHES * tensors
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn kernel_workspace_bytes(&self, elements: u64) -> u64 {
        adafactor::workspace_bytes(elements)
    }

    fn reads_matrices(&self) -> bool {
        true
    }

    fn state(&self, shape: &[usize], device: &Device) -> Box<dyn State> {
        let (rows, columns) = match *shape {
            [rows, columns] => (rows, Some(zeros(columns, device))),
            _ => (shape.iter().product(), None),
        };
        let means = Some(Means { rows: zeros(rows, device), columns });
        Box::new(Factored { rule: self.clone(), means, steps: 0 })
    }

    /// The flag, and the number of applied steps.
    fn share(&self, applied: Tensor<1>, before: Option<Tensor<1>>) -> Tensor<1> {
        let steps = before.map_or_else(|| applied.zeros_like(), |before| before.narrow(0, 1, 1));
        Tensor::cat(vec![applied.clone(), steps + applied], 0)
    }
}

struct Factored {
    rule: Adafactor,
    /// `None` only while an update writes over them.
    means: Option<Means>,
    /// Taken so far.
    steps: i32,
}

/// Mean squares of the gradient.
struct Means {
    /// In the rows of a matrix, or of each element of a vector.
    rows: Tensor<1>,
    /// In the columns of a matrix.
    columns: Option<Tensor<1>>,
}

/// The least number of fp32 that has all its bits. A mean square is at least as large, so that 0 / 0 is 0.
const LEAST: f64 = f32::MIN_POSITIVE as f64;

/// old + weight (new − old)
fn average(old: &mut Tensor<1>, new: Tensor<1>, weight: f64) {
    *old = old.clone() + (new - old.clone()) * weight;
}

impl Adafactor {
    /// The distance from 1 to the next number of the type, where the recipe has no number. It is not 0 in fp32.
    fn epsilon_1_of(&self, dtype: DType) -> f64 {
        let epsilon = self.epsilon_1.unwrap_or(match dtype {
            DType::BF16 => 2f64.powi(-7),
            DType::F16 => 2f64.powi(-10),
            _ => f64::from(f32::EPSILON),
        });
        epsilon.max(LEAST)
    }
}

impl Factored {
    /// The flat parameter after a step by kernels.
    fn on_device(&mut self, p: Tensor<1>, g: Tensor<1>, epsilon_1: f64, size: &StepSize) -> Tensor<1> {
        let Self { rule, means, steps } = self;
        let (lr, t) = (rule.lr * size.rate, f64::from(*steps));
        let step = AdafactorStep {
            weight: t.powf(-rule.beta_2_decay) as f32,
            rate: lr.min(t.sqrt().recip()) as f32,
            beta_2_decay: rule.beta_2_decay as f32,
            lr: lr as f32,
            decay: (1.0 - lr * rule.weight_decay) as f32,
            epsilon_1: epsilon_1 as f32,
            epsilon_2: rule.epsilon_2 as f32,
            threshold: rule.threshold as f32,
        };
        let [clip, shared] = [&size.clip, &size.applied].map(|factor| factor.clone().map(cube));
        let Means { rows, columns } = means.take().expect("between updates");
        let before = MeanSquares { rows: cube(rows), columns: columns.map(cube) };
        let (p, after) = adafactor([cube(p), cube(g)], before, clip.as_ref(), shared.as_ref(), step);
        *means = Some(Means { rows: uncube(after.rows), columns: after.columns.map(uncube) });
        uncube(p)
    }
}

impl State for Factored {
    fn update(&mut self, p: Tensor<1>, g: Tensor<1>, size: &StepSize, _: &mut Pending) -> Tensor<1> {
        self.steps += 1;
        let epsilon = self.rule.epsilon_1_of(p.dtype());
        if on_cuda(&p) {
            return self.on_device(p, g, epsilon, size);
        }
        let Self { rule, means, steps } = self;
        let Means { rows, columns } = means.as_mut().expect("between updates");
        let (lr, t) = (rule.lr * size.rate, f64::from(*steps));
        let (weight, rate) = (t.powf(-rule.beta_2_decay), lr.min(t.sqrt().recip()));
        let dtype = p.dtype();
        let g = clipped(g, size);
        let square = g.clone().square();
        let mean_square = match columns {
            None => {
                average(rows, square, weight);
                rows.clone()
            }
            Some(columns) => {
                let [r, c] = [rows.dims()[0], columns.dims()[0]];
                let square = square.reshape([r, c]);
                average(rows, square.clone().mean_dim(1).reshape([r]), weight);
                average(columns, square.mean_dim(0).reshape([c]), weight);
                let scale = rows.clone().mean().clamp_min(epsilon).recip();
                let rows = (rows.clone() * scale).reshape([r, 1]);
                (rows * columns.clone().reshape([1, c])).reshape([r * c])
            }
        };
        let u = mean_square.clamp_min((epsilon * epsilon).max(LEAST)).sqrt().recip() * g;
        let before = wide(p.clone());
        let root_mean_square = |x: Tensor<1>| x.square().mean().sqrt();
        let rate = root_mean_square(before.clone()).clamp_min(rule.epsilon_2) * rate;
        let rate = rate / (root_mean_square(u.clone()) / rule.threshold).clamp_min(1.0);
        narrow(before * (1.0 - lr * rule.weight_decay) - u * rate, dtype)
    }

    fn visit(&mut self, visit: &mut Visit) {
        let Means { rows, columns } = self.means.as_mut().expect("between updates");
        visit("rows", Kept::Tensor(rows));
        if let Some(columns) = columns {
            visit("columns", Kept::Tensor(columns));
        }
        visit("steps", Kept::Bytes(bytemuck::bytes_of_mut(&mut self.steps)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix or a vector after steps: its distance from the recurrence in f64.
    fn distance(shape: &[usize], rule: &Adafactor) -> f64 {
        let device = Device::flex();
        let n: usize = shape.iter().product();
        let [rows, columns] = if let [rows, columns] = *shape { [rows, columns] } else { [1, n] };
        let mut state = rule.state(shape, &device);
        let mut p: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7).sin()).collect();
        let mut tensor = Tensor::<1>::from_data(p.as_slice(), (&device, DType::F32));
        let (mut r, mut c, mut v) = (vec![0.0; rows], vec![0.0; columns], vec![0.0; n]);
        for t in 1..=4 {
            let g: Vec<f64> = (0..n).map(|i| 0.3 * (i as f64 * 1.3 + f64::from(t)).cos()).collect();
            let rms = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
            let w = f64::from(t).powf(-rule.beta_2_decay);
            let at = |i: usize, j: usize| g[i * columns + j].powi(2);
            for (i, r) in r.iter_mut().enumerate() {
                *r += w * ((0..columns).map(|j| at(i, j)).sum::<f64>() / columns as f64 - *r);
            }
            for (j, c) in c.iter_mut().enumerate() {
                *c += w * ((0..rows).map(|i| at(i, j)).sum::<f64>() / rows as f64 - *c);
            }
            let mean = r.iter().sum::<f64>() / rows as f64;
            for (i, v) in v.iter_mut().enumerate() {
                let all = *v + w * (g[i] * g[i] - *v);
                *v = if shape.len() == 2 { r[i / columns] * c[i % columns] / mean } else { all };
            }
            let u: Vec<f64> = g.iter().zip(&v).map(|(g, v)| g / v.sqrt()).collect();
            let a = rms(&p).max(rule.epsilon_2) * rule.lr.min(1.0 / f64::from(t).sqrt());
            let a = a / (rms(&u) / rule.threshold).max(1.0);
            p.iter_mut().zip(&u).for_each(|(p, u)| *p = *p * (1.0 - rule.lr * rule.weight_decay) - a * u);
            let g = Tensor::from_data(g.as_slice(), (&device, DType::F32));
            tensor = state.update(tensor, g, &StepSize::FULL, &mut Pending::default());
        }
        let ours: Vec<f32> = tensor.into_data().try_to_vec().expect("fp32");
        ours.iter().zip(&p).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn steps_equal_the_recurrence_in_f64() {
        let rule = Adafactor { lr: 0.6, weight_decay: 0.1, threshold: 0.9, ..Adafactor::default() };
        for shape in [&[5, 7][..], &[11]] {
            let far = distance(shape, &rule);
            assert!(far < 2e-6, "{shape:?}: {far}");
        }
    }

    /// As an embedding has them, of tokens that no batch held. The square of 1e-30 is 0 in fp32.
    #[test]
    fn what_has_no_gradient_stays() {
        let device = Device::flex();
        let rule = Adafactor { epsilon_1: Some(1e-30), ..Adafactor::default() };
        for (shape, g) in [(&[2, 3][..], [0.0, 0.0, 0.0, 0.1, -0.2, 0.3]), (&[6], [0.0; 6])] {
            let mut state = rule.state(shape, &device);
            let before = Tensor::<1>::from_floats([1.0, -2.0, 3.0, 4.0, -5.0, 6.0], &device);
            let g = Tensor::<1>::from_floats(g, &device);
            let after = state.update(before.clone(), g.clone(), &StepSize::FULL, &mut Pending::default());
            let moved: Vec<f32> = (after - before).into_data().try_to_vec().expect("fp32");
            let g: Vec<f32> = g.into_data().try_to_vec().expect("fp32");
            assert!(
                moved.iter().zip(&g).all(|(moved, g)| (*moved == 0.0) == (*g == 0.0) && moved.is_finite())
            );
        }
    }

    /// Every third step is skipped.
    #[test]
    fn the_device_counts_the_steps_that_are_applied() {
        let (rule, mut shared, mut applied) = (Adafactor::default(), None, 0);
        for step in 1..=30 {
            let flag = u8::from(step % 3 != 0);
            applied += i32::from(flag);
            let now = rule.share(Tensor::from_floats([f32::from(flag)], &Device::flex()), shared.take());
            let values: Vec<f64> = now.clone().into_data().iter::<f64>().collect();
            assert_eq!(values, [f64::from(flag), f64::from(applied)], "step {step}");
            shared = Some(now);
        }
    }
}
