//! Optimizers that keep less, against the CPU's.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use itertools::Itertools;
use runner::common::DeviceId;
use runner::optim::{
    Adafactor, AdamW, AdamW8bit, AdamWBf16, OptimizerConfig, Pending, Rule, State, StepSize,
};

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

/// The fp32 bits of all parameters: of bf16 ones with their remainders.
fn masters(trained: &mut Trained) -> Vec<Vec<u32>> {
    let master = |(p, state): &mut (Tensor<1>, Box<dyn State>)| {
        let data = p.to_data();
        if p.dtype() == DType::F32 {
            return bytemuck::cast_slice(data.as_bytes()).to_vec();
        }
        let kept = kept(&mut **state);
        let (_, low) = kept.iter().find(|(name, _)| name == "remainders").expect("a half of the master");
        let pairs = data.as_bytes().as_chunks::<2>().0.iter().zip(low.as_chunks::<2>().0);
        let join = |(high, low): (&[u8; 2], &[u8; 2])| {
            let [high, low] = [u16::from_le_bytes(*high), u16::from_le_bytes(*low)];
            (u32::from(high) << 16).wrapping_add(i32::from(low.cast_signed()).cast_unsigned())
        };
        pairs.map(join).collect()
    };
    trained.parameters.iter_mut().map(master).collect()
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

/// Bf16 parameters with remainders go the way of parameters in fp32 bit for bit, and the CPU's up to the order of its
/// arithmetic: more of them than a launch takes, of odd sizes, with clipping and with steps that are skipped.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn remainders_make_bf16_parameters_their_fp32_masters() {
    on_gpu(|_, checks| {
        let sizes: Vec<usize> = SIZES.into_iter().chain((0..90).map(|i| i * 97 % 9000 + 1)).collect();
        let rule = |store_param_remainders| AdamW {
            lr: 1e-3,
            weight_decay: 0.1,
            store_param_remainders,
            ..AdamW::default()
        };
        let configs = |rule: AdamW| {
            [
                ("adamw", OptimizerConfig::AdamW(rule.clone())),
                ("adamw8bit", OptimizerConfig::AdamW8bit(AdamW8bit(rule.clone()))),
                ("adamw_bf16", OptimizerConfig::AdamWBf16(AdamWBf16(rule))),
            ]
        };
        for ((name, split), (_, wide)) in configs(rule(true)).into_iter().zip(configs(rule(false))) {
            let [split, wide] = [split, wide].map(|config| config.rule().expect("an update"));
            for on_device in [false, true] {
                let [mut ours, mut expected] =
                    [CUDA, DeviceId::Cpu].map(|id| Trained::of(&*split, id, [DType::BF16; 2], &sizes));
                let mut whole = Trained::of(&*wide, CUDA, [DType::F32, DType::BF16], &sizes);
                for ((p, _), (start, _)) in whole.parameters.iter_mut().zip(&ours.parameters) {
                    *p = start.clone().cast(FloatDType::F32);
                }
                let (mut flags, mut equal) = (None, true);
                for step in 0..10 {
                    if on_device {
                        let applied = if step % 3 == 1 { 0.0 } else { 1.0 };
                        flags = Some(split.share(tensor(&ours.device, &[applied], DType::F32), flags));
                    }
                    let clip =
                        |device: &Device| (step % 2 == 0).then(|| tensor(device, &[0.625], DType::F32));
                    for side in [&mut ours, &mut whole] {
                        let size = StepSize {
                            clip: clip(&side.device),
                            applied: flags.clone(),
                            seed: step + 7,
                            ..StepSize::FULL
                        };
                        side.step(step, &size);
                    }
                    equal &= masters(&mut ours) == masters(&mut whole);
                    if !on_device {
                        let size =
                            StepSize { clip: clip(&expected.device), seed: step + 7, ..StepSize::FULL };
                        expected.step(step, &size);
                    }
                }
                let name = format!("{name}, steps on the device: {on_device}");
                checks.verdict(&format!("{name}: masters"), equal, "bit for bit those of fp32");
                let moved =
                    masters(&mut ours) != masters(&mut Trained::of(&*split, CUDA, [DType::BF16; 2], &sizes));
                checks.verdict(&format!("{name}: remainders"), moved, "steps change them");
                if !on_device {
                    let far = masters(&mut ours)
                        .into_iter()
                        .flatten()
                        .zip(masters(&mut expected).into_iter().flatten());
                    let far = far.map(|(a, b)| f64::from((f32::from_bits(a) - f32::from_bits(b)).abs()));
                    checks.below(&format!("{name}: the CPU's"), far.fold(0.0, f64::max), 2e-3);
                }
            }
        }
    });
}

/// Shapes that are multiples of nothing, with clipping, in fp32 and bf16. On the device every other step is skipped, with
/// gradients that are not finite, and changes nothing. Half of a parameter has no gradient where the square of
/// epsilon_1 is 0 in fp32.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn adafactor_equals_the_cpus() {
    on_gpu(|_, checks| {
        let rule = Adafactor { lr: 0.02, weight_decay: 0.1, threshold: 0.9, ..Adafactor::default() };
        let small = Adafactor { epsilon_1: Some(1e-30), ..rule.clone() };
        let shapes = [&[90, 70][..], &[6300], &[1, 130], &[7000, 3], &[300, 257], &[3, 5000], &[11]];
        for (shape, (rule, without)) in shapes.into_iter().cartesian_product([(&rule, 0.0), (&small, 0.5)]) {
            let elements: usize = shape.iter().product();
            let gradient = |step| {
                let mut g = values(elements, step, 1e-2);
                g[..(without * elements as f64) as usize].fill(0.0);
                g
            };
            let of = |id: DeviceId, dtype: DType, shared: bool| {
                let device = id.burn();
                let mut state = rule.state(shape, &device);
                let mut p = tensor(&device, &values(elements, 1, 1.0), dtype);
                let (mut flags, mut is_same) = (None, true);
                for step in 0..5 {
                    let mut update = |p: Tensor<1>, g: &[f32], flag: f32| {
                        if shared {
                            flags = Some(rule.share(tensor(&device, &[flag], DType::F32), flags.take()));
                        }
                        let clip = Some(tensor(&device, &[0.625], DType::F32));
                        let size = StepSize { applied: flags.clone(), clip, ..StepSize::FULL };
                        state.update(p, tensor(&device, g, dtype), &size, &mut Pending::default())
                    };
                    if shared {
                        let before = list(&p);
                        p = update(p, &vec![f32::INFINITY; elements], 0.0);
                        is_same &= before == list(&p);
                    }
                    p = update(p, &gradient(step), 1.0);
                }
                (list(&p), is_same)
            };
            for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::BF16, 2e-2)] {
                let (expected, _) = of(DeviceId::Cpu, dtype, false);
                for shared in [false, true] {
                    let (ours, is_same) = of(CUDA, dtype, shared);
                    let far = ours.iter().zip(&expected).map(|(a, b)| (a - b).abs());
                    let far = far.max_by(f64::total_cmp).unwrap_or(0.0);
                    let name =
                        format!("adafactor {shape:?} {dtype:?}, {without} without, on the device: {shared}");
                    checks.below(&name, far, tolerance);
                    checks.verdict(&format!("{name}: skipped"), is_same, "a skipped step changes parameters");
                }
            }
        }
    });
}
