//! Adafactor (Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost"), as
//! `torch.optim.Adafactor`: the mean square of a matrix's gradient is the product of those of its rows and columns.

use burn::tensor::{DType, Device, Tensor};

use super::{Kept, Pending, Rule, State, StepSize, Visit, clipped, widened, zeros};
use crate::ops::cost::Tensors;
use crate::ops::{narrow, wide};
use crate::words::key::DefaultValue::{Nothing, Number};
use crate::words::section::section;
use crate::words::values::{NON_NEGATIVE, POSITIVE};
use crate::words::{Key, Section};

section! {
    /// Adafactor (Shazeer and Stern 2018), as `torch.optim.Adafactor`.
    ///
    /// ```text
    /// w ← t^−beta_2_decay,  r ← r + w (mean_columns g² − r),  c ← c + w (mean_rows g² − c)
    /// v ← r c / max(mean r, epsilon_1)                  (of a vector v ← v + w (g² − v))
    /// u ← g / √max(v, epsilon_1²)
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
        pub epsilon_1: Option<f64> = Key::method(POSITIVE).default(Nothing).without("epsilon 1 of the type"),
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

    /// Mean squares and the update, and on the CPU, where a product is no parameter's memory, the parameter.
    fn workspace_bytes(&self, elements: u64, stored: u64) -> u64 {
        2 * 4 * elements + 2 * widened(elements, stored)
    }

    /// As [`State::update`] composes a matrix's, some of whose operators have two.
    fn launches(&self, tensors: u64) -> u64 {
        40 * tensors
    }

    fn reads_matrices(&self) -> bool {
        true
    }

    fn state(&self, shape: &[usize], device: &Device) -> Box<dyn State> {
        let (rows, columns) = match *shape {
            [rows, columns] => (rows, Some(zeros(columns, device))),
            _ => (shape.iter().product(), None),
        };
        Box::new(Factored { rule: self.clone(), rows: zeros(rows, device), columns, steps: 0 })
    }

    /// The flag, and the number of applied steps.
    fn share(&self, applied: Tensor<1>, before: Option<Tensor<1>>) -> Tensor<1> {
        let steps = before.map_or_else(|| applied.zeros_like(), |before| before.narrow(0, 1, 1));
        Tensor::cat(vec![applied.clone(), steps + applied], 0)
    }
}

struct Factored {
    rule: Adafactor,
    /// Mean squares of the gradient in the rows of a matrix, or of each element of a vector.
    rows: Tensor<1>,
    /// In the columns of a matrix.
    columns: Option<Tensor<1>>,
    /// Taken so far.
    steps: i32,
}

/// A number that the host knows, or [1] in fp32 on the device.
enum Factor {
    Known(f64),
    OnDevice(Box<Tensor<1>>),
}

impl Factor {
    fn times<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Known(factor) => x * *factor,
            Self::OnDevice(factor) => x * Tensor::clone(factor).reshape([1; D]),
        }
    }
}

/// Old numbers, or new ones where the step is applied.
struct Applied(Option<Tensor<1>>);

impl Applied {
    fn choose(&self, old: Tensor<1>, new: Tensor<1>) -> Tensor<1> {
        match &self.0 {
            None => new,
            Some(applied) => {
                let is_applied = applied.clone().equal_elem(1.0).expand(old.dims());
                old.mask_where(is_applied, new)
            }
        }
    }

    /// old + weight (new − old)
    fn average(&self, old: &mut Tensor<1>, new: Tensor<1>, weight: &Factor) {
        let mean = old.clone() + weight.times(new - old.clone());
        *old = self.choose(old.clone(), mean);
    }
}

impl State for Factored {
    fn update(&mut self, p: Tensor<1>, g: Tensor<1>, size: &StepSize, _: &mut Pending) -> Tensor<1> {
        self.steps += 1;
        let Self { rule, rows, columns, steps } = self;
        let lr = rule.lr * size.rate;
        let (applied, weight, rate) = match &size.applied {
            None => {
                let t = f64::from(*steps);
                (
                    Applied(None),
                    Factor::Known(t.powf(-rule.beta_2_decay)),
                    Factor::Known(lr.min(t.sqrt().recip())),
                )
            }
            Some(shared) => {
                let t = shared.clone().narrow(0, 1, 1).clamp_min(1.0);
                let weight = t.clone().powf_scalar(-rule.beta_2_decay);
                let rate = t.sqrt().recip().clamp_max(lr);
                let applied = Applied(Some(shared.clone().narrow(0, 0, 1)));
                (applied, Factor::OnDevice(weight.into()), Factor::OnDevice(rate.into()))
            }
        };
        let dtype = p.dtype();
        let epsilon = rule.epsilon_1.unwrap_or(match dtype {
            DType::BF16 => 2f64.powi(-7),
            DType::F16 => 2f64.powi(-10),
            _ => f64::from(f32::EPSILON),
        });
        let g = clipped(g, size);
        let square = g.clone().square();
        let mean_square = match columns {
            None => {
                applied.average(rows, square, &weight);
                rows.clone()
            }
            Some(columns) => {
                let [r, c] = [rows.dims()[0], columns.dims()[0]];
                let square = square.reshape([r, c]);
                applied.average(rows, square.clone().mean_dim(1).reshape([r]), &weight);
                applied.average(columns, square.mean_dim(0).reshape([c]), &weight);
                let scale = rows.clone().mean().clamp_min(epsilon).recip();
                let rows = (rows.clone() * scale).reshape([r, 1]);
                (rows * columns.clone().reshape([1, c])).reshape([r * c])
            }
        };
        let u = mean_square.clamp_min(epsilon * epsilon).sqrt().recip() * g;
        let before = wide(p.clone());
        let root_mean_square = |x: Tensor<1>| x.square().mean().sqrt();
        let rate = rate.times(root_mean_square(before.clone()).clamp_min(rule.epsilon_2));
        let rate = rate / (root_mean_square(u.clone()) / rule.threshold).clamp_min(1.0);
        let after = before * (1.0 - lr * rule.weight_decay) - u * rate;
        applied.choose(p, narrow(after, dtype))
    }

    fn visit(&mut self, visit: &mut Visit) {
        visit("rows", Kept::Tensor(&mut self.rows));
        if let Some(columns) = &mut self.columns {
            visit("columns", Kept::Tensor(columns));
        }
        visit("steps", Kept::Bytes(bytemuck::bytes_of_mut(&mut self.steps)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix and a vector after steps, and their distances from the recurrence in f64; on CUDA the number of steps is a
    /// number on the device, which it is here too with `shared`.
    fn distance(shape: &[usize], shared: bool, rule: &Adafactor) -> f64 {
        let device = Device::flex();
        let n: usize = shape.iter().product();
        let [rows, columns] = if let [rows, columns] = *shape { [rows, columns] } else { [1, n] };
        let mut state = rule.state(shape, &device);
        let mut p: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7).sin()).collect();
        let mut tensor = Tensor::<1>::from_data(p.as_slice(), (&device, DType::F32));
        let (mut r, mut c, mut v) = (vec![0.0; rows], vec![0.0; columns], vec![0.0; n]);
        let mut flags = None;
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
            let step =
                |tensor, flag: f64, flags: &mut Option<Tensor<1>>, state: &mut Box<dyn State>, g: &[f64]| {
                    if shared {
                        let flag = Tensor::from_floats([flag], &device);
                        *flags = Some(rule.share(flag, flags.take()));
                    }
                    let size = StepSize { applied: flags.clone(), ..StepSize::FULL };
                    let g = Tensor::from_data(g, (&device, DType::F32));
                    state.update(tensor, g, &size, &mut Pending::default())
                };
            if shared {
                tensor = step(tensor, 0.0, &mut flags, &mut state, &vec![f64::INFINITY; n]);
            }
            tensor = step(tensor, 1.0, &mut flags, &mut state, &g);
        }
        let ours: Vec<f32> = tensor.into_data().try_to_vec().expect("fp32");
        ours.iter().zip(&p).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn steps_equal_the_recurrence_in_f64_and_skipped_ones_change_nothing() {
        let rule = Adafactor { lr: 0.6, weight_decay: 0.1, threshold: 0.9, ..Adafactor::default() };
        for shape in [&[5, 7][..], &[11]] {
            for shared in [false, true] {
                let far = distance(shape, shared, &rule);
                assert!(far < 2e-6, "{shape:?} {shared}: {far}");
            }
        }
    }
}
