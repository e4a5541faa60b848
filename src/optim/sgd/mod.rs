//! Stochastic gradient descent, as `torch.optim.SGD`.

mod cpu;
pub mod cuda;

use burn::tensor::{Device, Tensor};

use super::{Kept, Pending, Rule, State, StepSize, Visit, clipped, widened, zeros};
use crate::keys::key::DefaultValue::Number;
use crate::keys::section::section;
use crate::keys::values::{FRACTION, NON_NEGATIVE, POSITIVE};
use crate::keys::{Key, Section};
use crate::ops::backend::{cube, on_cuda, uncube};
use crate::ops::cost::Tensors;
use crate::ops::slices;
use crate::ops::{narrow, wide};
use crate::optim::sgd::cuda::{SgdStep, sgd};

section! {
    /// Stochastic gradient descent, as `torch.optim.SGD`.
    ///
    /// ```text
    /// g ← g + weight_decay · p
    /// m ← momentum · m + g          (m = 0 before the first step; without momentum m = g)
    /// p ← p − lr · m
    /// ```
    pub struct Sgd: Section::of("train.optimizer", "kind", &["sgd"]), Default => {
        /// Learning rate.
        pub lr: f64 = Key::method(POSITIVE).default(Number(1e-3)),
        /// Decay of the sum of gradients; 0: none is kept.
        pub momentum: f64 = Key::method(FRACTION).default(Number(0.0)),
        /// Times the parameter, added to its gradient.
        pub weight_decay: f64 = Key::method(NON_NEGATIVE).default(Number(0.0)),
    }
}

/// Without momentum nothing is kept.
struct Momentum {
    rule: Sgd,
    m: Option<Tensor<1>>,
}

impl Rule for Sgd {
    fn state_bytes(&self, tensors: Tensors) -> u64 {
        if self.momentum > 0.0 { 4 * tensors.elements } else { 0 }
    }

    /// In place.
    fn workspace_bytes(&self, elements: u64, stored: u64) -> u64 {
        widened(elements, stored)
    }

    /// A kernel each.
    fn launches(&self, tensors: u64) -> u64 {
        tensors
    }

    fn has_kernel(&self) -> bool {
        true
    }

    fn state(&self, shape: &[usize], device: &Device) -> Box<dyn State> {
        let m = (self.momentum > 0.0).then(|| zeros(shape.iter().product(), device));
        Box::new(Momentum { rule: self.clone(), m })
    }
}

impl State for Momentum {
    fn update(&mut self, p: Tensor<1>, g: Tensor<1>, size: &StepSize, _: &mut Pending) -> Tensor<1> {
        let Self { rule: Sgd { lr, momentum, weight_decay }, m } = self;
        let lr = *lr * size.rate;
        if on_cuda(&p) {
            let step =
                SgdStep { lr: lr as f32, momentum: *momentum as f32, weight_decay: *weight_decay as f32 };
            let (clip, applied) = (size.clip.clone().map(cube), size.applied.clone().map(cube));
            let before = m.take().map(cube);
            let (p, after) = sgd(cube(p), &cube(g), before, clip.as_ref(), applied.as_ref(), step);
            *m = after.map(uncube);
            return uncube(p);
        }
        if slices::takes(&p) && slices::takes(&g) {
            let [lr, momentum, weight_decay] = [lr, *momentum, *weight_decay].map(|x| x as f32);
            let clip = size.clip_on_host();
            let step = cpu_kernels::sgd::SgdStep { lr, momentum, weight_decay, clip };
            let (p, after) = cpu::sgd(p, g, m.take(), step);
            *m = after;
            return p;
        }
        let (dtype, p, g) = (p.dtype(), wide(p), clipped(g, size));
        let g = if *weight_decay > 0.0 { g + p.clone() * *weight_decay } else { g };
        let Some(before) = m.take() else { return narrow(p - g * lr, dtype) };
        let after = before * *momentum + g;
        *m = Some(after.clone());
        narrow(p - after * lr, dtype)
    }

    fn visit(&mut self, visit: &mut Visit) {
        self.m.iter_mut().for_each(|m| visit("m", Kept::Tensor(m)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: p0 = 1, g = 0.5 each step, lr 0.1, momentum 0.9, weight decay 0.1.
    /// step 1: m = 0.5 + 0.1·1 = 0.6, p = 1 − 0.06 = 0.94
    /// step 2: m = 0.54 + 0.5 + 0.094 = 1.134, p = 0.94 − 0.1134 = 0.8266
    #[test]
    fn momentum_and_weight_decay_follow_torch() {
        let sgd = Sgd { lr: 0.1, momentum: 0.9, weight_decay: 0.1 };
        let device = Device::flex();
        let mut state = sgd.state(&[1], &device);
        let mut p = Tensor::<1>::ones([1], &device);
        for expected in [0.94, 0.8266] {
            p = state.update(p, Tensor::full([1], 0.5, &device), &StepSize::FULL, &mut Pending::default());
            let value: f32 = p.clone().into_scalar();
            assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
        }
    }
}
