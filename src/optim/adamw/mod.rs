//! AdamW (Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization"), as
//! `torch.optim.AdamW`.

pub mod compact;
mod cpu;
pub mod cuda;
pub mod host;
pub mod kernels;

use burn::tensor::{Device, Tensor};

use super::host::{AdamWOnHost, HostRule};
use super::{Kept, Pending, Rule, State, StepSize, Visit, clipped, widened, zeros};
use crate::keys::key::DefaultValue::Number;
use crate::keys::section::section;
use crate::keys::values::{FRACTION, NON_NEGATIVE, POSITIVE};
use crate::keys::{Key, Section};
use crate::ops::backend::{cube, on_cuda, uncube};
use crate::ops::cost::Tensors;
use crate::ops::slices;
use crate::ops::{narrow, wide};
use crate::optim::adamw::cuda::{AdamWStep, Moments as Stored, TOGETHER};

section! {
    /// AdamW (Loshchilov and Hutter 2019), as `torch.optim.AdamW`; adamw8bit keeps its moments in 8 bits, adamw_bf16 in bf16.
    ///
    /// ```text
    /// p ← p (1 − lr · weight_decay)
    /// m ← beta_1 m + (1 − beta_1) g
    /// v ← beta_2 v + (1 − beta_2) g²
    /// p ← p − lr / (1 − beta_1ᵗ) · m / (√v / √(1 − beta_2ᵗ) + epsilon)
    /// ```
    ///
    /// The defaults are PyTorch's (Burn's differ: epsilon 1e-5, weight decay 1e-4).
    pub struct AdamW: Section::of("train.optimizer", "kind", &["adamw", "adamw8bit", "adamw_bf16"]), Default => {
        /// Learning rate.
        pub lr: f64 = Key::method(POSITIVE).default(Number(1e-3)),
        /// Decay of the mean of gradients.
        pub beta_1: f64 = Key::method(FRACTION).default(Number(0.9)),
        /// Decay of the mean of squared gradients.
        pub beta_2: f64 = Key::method(FRACTION).default(Number(0.999)),
        /// Added to the root of the mean square.
        pub epsilon: f64 = Key::method(POSITIVE).default(Number(1e-8)),
        /// Times the learning rate: the share of a parameter that a step takes off.
        pub weight_decay: f64 = Key::method(NON_NEGATIVE).default(Number(1e-2)),
        /// Whether bf16 parameters have 16 bits more beside them, which make them an fp32 master copy.
        ///
        /// Absent in rows where it says nothing new.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub store_param_remainders: bool = Key::flag(false),
    }
}

impl AdamW {
    /// 1 − β₁ᵗ and √(1 − β₂ᵗ): scalars, in f64 as PyTorch computes them; 1 where the host does not know t.
    fn corrections(&self, t: Option<i32>) -> (f64, f64) {
        t.map_or((1.0, 1.0), |t| (1.0 - self.beta_1.powi(t), (1.0 - self.beta_2.powi(t)).sqrt()))
    }

    /// What step t = 1, 2, … multiplies by; `rate`: the schedule's factor of the learning rate. Without t
    /// the device has the corrections, as [`Rule::share`] has made them.
    pub fn step(&self, t: Option<i32>, rate: f64) -> AdamWStep {
        let lr = self.lr * rate;
        let (correction_1, correction_2) = self.corrections(t);
        AdamWStep {
            decay: (1.0 - lr * self.weight_decay) as f32,
            beta1: self.beta_1 as f32,
            beta2: self.beta_2 as f32,
            rest1: (1.0 - self.beta_1) as f32,
            rest2: (1.0 - self.beta_2) as f32,
            eps: self.epsilon as f32,
            rate: (lr / correction_1) as f32,
            correction: correction_2 as f32,
        }
    }

    /// Parameters and moments on a CUDA device after step t along their gradients, from `[p, g, m, v]`. `moments`: how they are
    /// stored, and the tensor's number.
    pub(super) fn on_device(
        &self,
        t: i32,
        moments: (Stored, u32),
        tensors: [Tensor<1>; 4],
        size: &StepSize,
        pending: &mut Pending,
    ) -> [Tensor<1>; 3] {
        let step = self.step(size.applied.is_none().then_some(t), size.rate);
        let [clip, shared] = [&size.clip, &size.applied].map(|factor| factor.clone().map(cube));
        pending.step(moments, tensors.map(cube), clip.as_ref(), shared.as_ref(), step).map(uncube)
    }
}

/// First and second moment and the number of steps taken.
struct Moments {
    rule: AdamW,
    /// `None` only while an update writes over them.
    moments: Option<(Tensor<1>, Tensor<1>)>,
    steps: i32,
}

impl Rule for AdamW {
    /// Two moments in fp32.
    fn state_bytes(&self, tensors: Tensors) -> u64 {
        2 * 4 * tensors.elements
    }

    fn workspace_bytes(&self, elements: u64, stored: u64) -> u64 {
        4 * elements + widened(elements, stored)
    }

    fn launches(&self, tensors: u64) -> u64 {
        tensors.div_ceil(TOGETHER)
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn state(&self, shape: &[usize], device: &Device) -> Box<dyn State> {
        let elements = shape.iter().product();
        let moments = Some((zeros(elements, device), zeros(elements, device)));
        Box::new(Moments { rule: self.clone(), moments, steps: 0 })
    }

    fn on_host(&self) -> Option<HostRule> {
        let rule = self.clone();
        Some(Box::new(move |elements, room| Ok(Box::new(AdamWOnHost::new(rule.clone(), elements, room)?))))
    }

    /// The flag, 1 − beta_1ᵗ and 1 − beta_2ᵗ for t applied steps, [3]: c ← c + applied (1 − beta) (1 − c)
    /// is the moments' own average, of ones, and loses no digits where t is small.
    fn share(&self, applied: Tensor<1>, before: Option<Tensor<1>>) -> Tensor<1> {
        let device = applied.device();
        let weights = Tensor::<1>::from_floats([1.0 - self.beta_1, 1.0 - self.beta_2], &device);
        let corrections = match before {
            Some(before) => before.narrow(0, 1, 2),
            None => weights.zeros_like(),
        };
        let missing = corrections.clone().neg() + 1.0;
        let corrections = corrections + missing * weights * applied.clone();
        Tensor::cat(vec![applied, corrections], 0)
    }
}

impl State for Moments {
    fn update(&mut self, p: Tensor<1>, g: Tensor<1>, size: &StepSize, pending: &mut Pending) -> Tensor<1> {
        self.steps += 1;
        let Self { rule, moments, steps } = self;
        let (m, v) = moments.take().expect("between updates");
        if on_cuda(&p) {
            let [p, m, v] = rule.on_device(*steps, (Stored::Fp32, 0), [p, g, m, v], size, pending);
            *moments = Some((m, v));
            return p;
        }
        if slices::takes(&p) && slices::takes(&g) {
            let clip = size.clip_on_host();
            let [p, m, v] = cpu::adamw([p, g, m, v], rule.step(Some(*steps), size.rate), clip);
            *moments = Some((m, v));
            return p;
        }
        let lr = rule.lr * size.rate;
        let (correction_1, correction_2) = rule.corrections(Some(*steps));
        let (dtype, p, g) = (p.dtype(), wide(p), clipped(g, size));
        let m = m * rule.beta_1 + g.clone() * (1.0 - rule.beta_1);
        let v = v * rule.beta_2 + g.square() * (1.0 - rule.beta_2);
        *moments = Some((m.clone(), v.clone()));
        let denominator = v.sqrt() / correction_2 + rule.epsilon;
        narrow(p * (1.0 - lr * rule.weight_decay) - m / denominator * (lr / correction_1), dtype)
    }

    fn visit(&mut self, visit: &mut Visit) {
        let (m, v) = self.moments.as_mut().expect("between updates");
        visit("m", Kept::Tensor(m));
        visit("v", Kept::Tensor(v));
        visit("steps", Kept::Bytes(bytemuck::bytes_of_mut(&mut self.steps)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recurrence in f64, written out separately from the tensor code.
    #[test]
    fn five_steps_equal_the_recurrence_in_f64() {
        let adamw = AdamW { lr: 0.01, ..AdamW::default() };
        let device = Device::flex();
        let gradients = [0.5, -0.25, 1e-4, 3.0, -0.7];
        let (mut p, mut m, mut v) = (1.0f64, 0.0, 0.0);
        let mut tensor = Tensor::<1>::ones([1], &device);
        let mut state = adamw.state(&[1], &device);
        for (i, g) in gradients.into_iter().enumerate() {
            let t = i as i32 + 1;
            p *= 1.0 - 0.01 * 0.01;
            m = 0.9 * m + 0.1 * g;
            v = 0.999 * v + 0.001 * g * g;
            p -= 0.01 * (m / (1.0 - 0.9f64.powi(t))) / ((v / (1.0 - 0.999f64.powi(t))).sqrt() + 1e-8);
            tensor =
                state.update(tensor, Tensor::full([1], g, &device), &StepSize::FULL, &mut Pending::default());
            let got: f32 = tensor.clone().into_scalar();
            assert!((f64::from(got) - p).abs() < 1e-6, "step {t}: {got} is not {p}");
        }
    }

    /// Every third step is skipped: the corrections are those of the steps that were not.
    #[test]
    fn shared_corrections_count_applied_steps() {
        let adamw = AdamW::default();
        let (mut shared, mut t) = (None, 0);
        for step in 1..=3000 {
            let applied = step % 3 != 0;
            t += i32::from(applied);
            let flag = Tensor::from_floats([f32::from(u8::from(applied))], &Device::flex());
            let now = adamw.share(flag, shared.take());
            let values: Vec<f64> = now.clone().into_data().iter::<f64>().collect();
            let expected = [f64::from(u8::from(applied)), 1.0 - 0.9f64.powi(t), 1.0 - 0.999f64.powi(t)];
            for (value, expected) in values.iter().zip(expected) {
                assert!((value - expected).abs() <= 1e-5 * expected, "step {step}: {values:?} {expected}");
            }
            shared = Some(now);
        }
    }
}
