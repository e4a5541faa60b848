//! Optimizers that keep less, against the CPU's.

mod adafactor;
mod remainders;

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use runner::common::DeviceId;
use runner::optim::{AdamW, AdamW8bit, AdamWBf16, Pending, Rule, State, StepSize};

use crate::{Checks, on_gpu};

const CUDA: DeviceId = DeviceId::Cuda(0);

/// Multiples of four, so that no bytes of codes are left over: whole blocks and a part of one, more than a launch's block.
const SIZES: [usize; 4] = [4096, 5004, 40_004, 300_000];

/// Values of both signs over six decades, without a pattern.
fn values(count: usize, seed: u64, scale: f32) -> Vec<f32> {
    let value = |i: u64| {
        let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (seed << 32)).rotate_left(23);
        let uniform = (mixed >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        scale * uniform * 10f32.powi(-((mixed & 7) as i32))
    };
    (0..count as u64).map(value).collect()
}

fn tensor(device: &Device, values: &[f32], dtype: DType) -> Tensor<1> {
    let wide = Tensor::<1>::from_data(TensorData::new(values.to_vec(), [values.len()]), (device, DType::F32));
    if dtype == DType::F32 { wide } else { wide.cast(FloatDType::from(dtype)) }
}

fn list(tensor: &Tensor<1>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}

/// All that a state keeps, byte by byte, without the count of its steps.
fn kept(state: &mut dyn State) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    state.visit(&mut |name, value| {
        if name != "steps" {
            all.push((name.to_string(), value.bytes().to_vec()));
        }
    });
    all
}

/// Parameters of these sizes on a device, each with its state.
struct Trained {
    device: Device,
    parameters: Vec<(Tensor<1>, Box<dyn State>)>,
    g_type: DType,
}

impl Trained {
    fn new(rule: &dyn Rule, id: DeviceId, types: [DType; 2]) -> Self {
        Self::of(rule, id, types, &SIZES)
    }

    fn of(rule: &dyn Rule, id: DeviceId, [p_type, g_type]: [DType; 2], sizes: &[usize]) -> Self {
        let device = id.burn();
        let parameter = |(i, size): (usize, &usize)| {
            let p = tensor(&device, &values(*size, i as u64, 1.0), p_type);
            let mut state = rule.state(&[*size], &device);
            state.set_number(i as u32);
            (p, state)
        };
        let parameters = sizes.iter().enumerate().map(parameter).collect();
        Self { device, parameters, g_type }
    }

    /// One step of all, in as few launches as there are.
    fn step(&mut self, step: u64, size: &StepSize) {
        let mut pending = Pending::default();
        for (i, (p, state)) in self.parameters.iter_mut().enumerate() {
            let g = values(p.dims()[0], 100 * step + i as u64, 1e-2);
            let g = tensor(&self.device, &g, self.g_type);
            *p = state.update(std::mem::replace(p, Tensor::zeros([1], &self.device)), g, size, &mut pending);
        }
    }
}

fn largest_difference(ours: &Trained, expected: &Trained) -> f64 {
    let pairs = ours.parameters.iter().zip(&expected.parameters);
    let far = |(a, b): (&Tensor<1>, &Tensor<1>)| {
        list(a).iter().zip(list(b)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    pairs.map(|((a, _), (b, _))| far((a, b))).fold(0.0, f64::max)
}

fn share_of_equal_bytes(ours: &mut Trained, expected: &mut Trained) -> f64 {
    let pairs = ours.parameters.iter_mut().zip(&mut expected.parameters);
    let (mut equal, mut all) = (0, 0);
    for ((_, ours), (_, expected)) in pairs {
        for ((_, ours), (_, expected)) in kept(&mut **ours).iter().zip(kept(&mut **expected)) {
            assert_eq!(ours.len(), expected.len());
            equal += ours.iter().zip(&expected).filter(|(a, b)| a == b).count();
            all += ours.len();
        }
    }
    equal as f64 / f64::from(u32::try_from(all).expect("few"))
}

fn compare(checks: &mut Checks, name: &str, rule: &dyn Rule, types: [DType; 2]) {
    let [mut ours, mut expected] = [CUDA, DeviceId::Cpu].map(|id| Trained::new(rule, id, types));
    for step in 0..10 {
        let clip = |device: &Device| Some(tensor(device, &[0.625], DType::F32)).filter(|_| step % 2 == 0);
        for side in [&mut ours, &mut expected] {
            let size = StepSize { clip: clip(&side.device), seed: step + 7, ..StepSize::FULL };
            side.step(step, &size);
        }
        if step == 0 {
            // Nothing is added that a fused multiplication could round another way.
            let share = share_of_equal_bytes(&mut ours, &mut expected);
            checks.verdict(
                &format!("{name}: state after a step"),
                share == 1.0,
                &format!("{share} of the bytes are equal"),
            );
        }
    }
    let share = share_of_equal_bytes(&mut ours, &mut expected);
    checks.verdict(
        &format!("{name}: state after ten"),
        share > 0.97,
        &format!("{share} of the bytes are equal"),
    );
    let allowed = if types[0] == DType::F32 { 2e-3 } else { 2e-2 };
    checks.below(&format!("{name}: parameters"), largest_difference(&ours, &expected), allowed);
    // A step that is not applied.
    let before: Vec<_> = ours.parameters.iter_mut().map(|(p, state)| (list(p), kept(&mut **state))).collect();
    let shared = rule.share(tensor(&ours.device, &[0.0], DType::F32), None);
    ours.g_type = DType::F32;
    ours.step(
        11,
        &StepSize {
            applied: Some(shared),
            clip: Some(tensor(&ours.device, &[f32::INFINITY], DType::F32)),
            ..StepSize::FULL
        },
    );
    let after: Vec<_> = ours.parameters.iter_mut().map(|(p, state)| (list(p), kept(&mut **state))).collect();
    checks.verdict(&format!("{name}: skipped"), before == after, "parameters and state");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn moments_of_few_bits_equal_the_cpus() {
    on_gpu(|_, checks| {
        let rule = AdamW { lr: 1e-3, weight_decay: 0.1, ..AdamW::default() };
        for types in [[DType::F32, DType::F32], [DType::F32, DType::BF16], [DType::BF16, DType::BF16]] {
            compare(checks, &format!("adamw8bit {types:?}"), &AdamW8bit(rule.clone()), types);
            compare(checks, &format!("adamw_bf16 {types:?}"), &AdamWBf16(rule.clone()), types);
        }
    });
}
