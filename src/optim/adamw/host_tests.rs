//! The arithmetic against the device's optimizer, and its own speed.

use super::*;
use crate::device::drawing;
use crate::optim::host::state::{HostParameters, Work};
use crate::optim::{Pending, Rule, StepSize};
use burn::tensor::{Device, Distribution, Tensor};

fn buffer(bytes: &[u8]) -> Uncounted {
    let mut buffer = Uncounted::new(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

fn list(tensor: &Tensor<1>) -> Vec<f32> {
    tensor.to_data().try_to_vec().unwrap()
}

/// More than a chunk, and no whole number of pieces.
const ELEMENTS: usize = CHUNK + 1500;

/// The optimizer of the device and the host's, fed the same gradients, after 50 steps.
#[test]
fn fifty_steps_equal_the_device_optimizer() {
    let device = Device::flex();
    let _drawing = drawing();
    device.seed(7);
    let random = |deviation| Tensor::<1>::random([ELEMENTS], Distribution::Normal(0.0, deviation), &device);
    let rule = AdamW { lr: 1e-2, weight_decay: 0.1, ..AdamW::default() };
    let mut p = random(0.5);
    let mut ours = buffer(bytemuck::cast_slice(&list(&p)));
    let mut host =
        HostParameters::new(&rule.on_host().unwrap(), ELEMENTS, DType::F32, &Room::Memory).unwrap();
    host.apply(Work::Adopt { elements: ELEMENTS, dtype: DType::F32 }, &mut ours);
    let before = list(&p);
    let mut theirs = rule.state(&[ELEMENTS], &device);
    for step in 0..50 {
        let g = random(1e-3 * f64::from(1 + step % 7));
        let rate = 1.0 - f64::from(step) / 100.0;
        let clip = Tensor::<1>::from_floats([0.5], &device);
        let size = StepSize { rate, clip: (step % 2 == 0).then_some(clip), ..StepSize::FULL };
        ours.copy_from_slice(bytemuck::cast_slice(&list(&g)));
        host.apply(Work::step(&size).expect("applied"), &mut ours);
        p = theirs.update(p, g, &size, &mut Pending::default());
    }
    let ours: &[f32] = bytemuck::cast_slice(&ours);
    let largest = |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!(largest(ours, &list(&p)) < 1e-6, "{}", largest(ours, &list(&p)));
    assert!(largest(ours, &before) > 0.1, "the steps go somewhere");
}

/// Steps smaller than the weights' last bit add up in the master weights.
#[test]
fn half_precision_weights_follow_their_masters() {
    for dtype in [DType::BF16, DType::F16] {
        let mut bytes = vec![0; 2 * 3];
        round(dtype, &[1.0, -2.0, 0.5], &mut bytes);
        let mut buffer = buffer(&bytes);
        let rule = AdamW { lr: 1e-4, weight_decay: 0.0, ..AdamW::default() };
        let mut state = HostParameters::new(&rule.on_host().unwrap(), 3, dtype, &Room::Memory).unwrap();
        state.apply(Work::Adopt { elements: 3, dtype }, &mut buffer);
        for _ in 0..100 {
            round(dtype, &[0.1, -0.1, 0.0], &mut buffer);
            state.apply(Work::Step(HostStep::FULL), &mut buffer);
        }
        let mut weights = [0.0; 3];
        widen(dtype, &buffer, &mut weights);
        // A hundred steps of 1e-4 against the gradient's sign, rounded to 8 bits.
        for (ours, exact) in weights.iter().zip([0.99, -1.99, 0.5]) {
            assert!((ours - exact).abs() < 0.004, "{dtype:?}: {weights:?}");
        }
        buffer.fill(0);
        state.apply(Work::Restore, &mut buffer);
        let mut restored = [0.0; 3];
        widen(dtype, &buffer, &mut restored);
        assert_eq!(restored, weights);
    }
}

/// [buffer, master, first and second moment] after a step, by `way`.
fn stepped(dtype: DType, n: usize, way: Way) -> [Vec<u8>; 4] {
    let numbers = |seed: usize| (0..n).map(move |i| ((i * 37 + seed * 11) % 1009) as f32 / 504.0 - 1.0);
    let mut buffer = vec![0; n * dtype.size()];
    round(dtype, &numbers(1).collect::<Vec<_>>(), &mut buffer);
    let [mut p, mut m] = [2, 3].map(|seed| numbers(seed).collect::<Vec<f32>>());
    let mut v: Vec<f32> = numbers(4).map(f32::abs).collect();
    way(dtype, &mut buffer, [&mut p, &mut m, &mut v], AdamW::default().step(Some(3), 1.0), 0.7);
    let bytes = |values: Vec<f32>| bytemuck::cast_slice(&values).to_vec();
    [buffer, bytes(p), bytes(m), bytes(v)]
}

type Way = fn(DType, &mut [u8], [&mut [f32]; 3], AdamWStep, f32);

#[test]
fn vectors_of_any_width_give_the_same_bits() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        assert_eq!(stepped(dtype, 5000, chunk), stepped(dtype, 5000, pass), "{dtype:?}");
    }
}
