//! Against AdamW in fp32, the host against the device, and bytes against those that are kept.

use burn::tensor::Distribution;

use super::*;
use crate::device::Loan;
use crate::device::drawing;
use crate::measure::alloc::Room;
use crate::optim::host::{HostParameters, Work, Worker};
use crate::optim::{DeviceOptimizer, OptimizerConfig};

/// More than two chunks of threads, and no whole number of blocks.
const ELEMENTS: usize = 20_001;

fn list(tensor: &Tensor<1>) -> Vec<f32> {
    crate::ops::wide(tensor.clone()).to_data().try_to_vec().expect("fp32")
}

fn random(elements: usize, deviation: f64, dtype: DType) -> Tensor<1> {
    Tensor::random([elements], Distribution::Normal(0.0, deviation), (&Device::flex(), dtype))
}

fn compact(rule: &AdamW) -> [Box<dyn Rule>; 2] {
    [Box::new(AdamW8bit(rule.clone())), Box::new(AdamWBf16(rule.clone()))]
}

fn size(step: u64) -> StepSize {
    let clip = Tensor::<1>::from_floats([0.5], &Device::flex());
    StepSize { clip: step.is_multiple_of(2).then_some(clip), seed: step, ..StepSize::FULL }
}

/// Of parameters that a gradient pulls to a place of their own: the way after 100 steps is fp32's up to a few of its steps.
#[test]
fn a_hundred_steps_go_the_way_of_fp32() {
    let _drawing = drawing();
    Device::flex().seed(3);
    let rule = AdamW { lr: 1e-2, ..AdamW::default() };
    for (dtype, allowed) in [(DType::F32, 0.03), (DType::BF16, 0.05)] {
        let aims = random(ELEMENTS, 1.0, DType::F32);
        let run = |rule: &dyn Rule| {
            let mut p = Tensor::<1>::zeros([ELEMENTS], (&Device::flex(), dtype));
            let mut state = rule.state(&[ELEMENTS], &Device::flex());
            for step in 0..100 {
                let g = (crate::ops::wide(p.clone()) - aims.clone()).cast(dtype);
                p = state.update(p, g, &size(step), &mut Pending::default());
            }
            assert_eq!(p.dtype(), dtype);
            list(&p)
        };
        let wide = run(&rule);
        for compact in compact(&rule) {
            let ours = run(&*compact);
            let distance = |a: &[f32], b: &[f32]| {
                let sum: f32 = a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum();
                sum / a.len() as f32
            };
            let far = distance(&ours, &wide);
            assert!(far > 0.0 && far < allowed * distance(&wide, &vec![0.0; ELEMENTS]), "{dtype:?}: {far}");
        }
    }
}

/// The same bits: both compute in fp32 and round in the same places.
#[test]
fn the_host_takes_the_steps_of_the_device() {
    let _drawing = drawing();
    Device::flex().seed(4);
    let rule = AdamW { lr: 1e-2, weight_decay: 0.1, ..AdamW::default() };
    for (compact, elements) in compact(&rule).into_iter().zip([ELEMENTS, 100]) {
        let mut p = random(elements, 0.5, DType::F32);
        let mut buffer = crate::measure::alloc::Uncounted::new(4 * elements).expect("memory");
        let mut host = HostParameters::new(
            &compact.on_host().expect("it runs there"),
            elements,
            DType::F32,
            &Room::Memory,
        )
        .expect("memory");
        buffer.copy_from_slice(bytemuck::cast_slice(&list(&p)));
        host.apply(Work::Adopt { elements, dtype: DType::F32 }, &mut buffer);
        let mut state = compact.state(&[elements], &Device::flex());
        for step in 0..5 {
            let g = random(elements, 1e-2, DType::F32);
            buffer.copy_from_slice(bytemuck::cast_slice(&list(&g)));
            host.apply(Work::step(&size(step)).expect("applied"), &mut buffer);
            p = state.update(p, g, &size(step), &mut Pending::default());
        }
        assert_eq!(bytemuck::cast_slice::<u8, f32>(&buffer), list(&p));
    }
}

/// Two equal tensors with equal gradients: their parameters stay equal, and their moments do not round alike. Whoever has
/// the same id has the same numbers, on the host too.
#[test]
fn random_rounding_differs_from_tensor_to_tensor_and_not_from_run_to_run() {
    let _drawing = drawing();
    Device::flex().seed(6);
    let rule = AdamWBf16(AdamW { lr: 1e-2, ..AdamW::default() });
    let (p, g) = (random(5000, 0.5, DType::F32), random(5000, 1e-2, DType::F32));
    let ids = ["first", "second", "first"].map(crate::params::table::id);
    let mut optimizers = [0, 1].map(|_| DeviceOptimizer::new(Box::new(rule.clone())));
    let moments = |run: usize, id, size: &StepSize| {
        let optimizer: &mut DeviceOptimizer = &mut optimizers[run];
        let after = optimizer.update(id, p.clone(), g.clone(), size);
        let mut bits = Vec::new();
        optimizer.visit(id, &mut |name, kept| {
            if name != "steps" {
                bits.extend_from_slice(&kept.bytes());
            }
        });
        (list(&after), bits)
    };
    let mut moments = moments;
    let [one, other, again] =
        [(0, ids[0]), (0, ids[1]), (1, ids[2])].map(|(run, id)| moments(run, id, &size(3)));
    assert!(one.0 == other.0 && one.1 != other.1);
    assert_eq!(one, again);
    // Other ranks' parts have numbers of their own, the first rank's are those of the step.
    assert_eq!([0, 1].map(|rank| size(3).on_rank(rank).seed == 3), [true, false]);

    let worker = Worker::new(rule.on_host().expect("it runs there"), Room::Memory);
    let on_host = |values: &Tensor<1>, work| {
        let mut memory = crate::measure::alloc::Uncounted::new(4 * 5000).expect("memory");
        memory.copy_from_slice(bytemuck::cast_slice(&list(values)));
        let loan = Loan { memory: Box::new(memory), arrival: Box::new(|| Ok(())) };
        worker.submit(ids[0], loan, work).wait();
    };
    on_host(&p, Work::Adopt { elements: 5000, dtype: DType::F32 });
    on_host(&g, Work::step(&size(3)).expect("applied"));
    let mut bits = Vec::new();
    worker.visit(ids[0], &mut |name, kept| {
        if name.ends_with("bf16") {
            bits.extend_from_slice(&kept.bytes());
        }
    });
    assert_eq!(bits, one.1);
}

#[test]
fn the_estimate_of_the_state_is_what_is_kept() {
    let configs = [
        OptimizerConfig::AdamW8bit(AdamW8bit::default()),
        OptimizerConfig::AdamWBf16(AdamWBf16::default()),
        OptimizerConfig::AdamW(AdamW { store_param_remainders: true, ..AdamW::default() }),
        OptimizerConfig::AdamW8bit(AdamW8bit(AdamW { store_param_remainders: true, ..AdamW::default() })),
        OptimizerConfig::Adafactor(crate::optim::Adafactor::default()),
    ];
    let shapes: [&[usize]; 4] = [&[96, 512], &[4096], &[64, 63], &[7]];
    for config in configs {
        let rule = config.rule().expect("it updates");
        let mut kept = 0;
        for shape in shapes {
            rule.state(shape, &Device::flex()).visit(&mut |name, value| {
                kept += if name == "steps" { 0 } else { value.bytes().len() as u64 };
            });
        }
        let tensors = Tensors::matrices(1, [96, 512])
            + Tensors::vectors(1, 4096)
            + Tensors::matrices(1, [64, 63])
            + Tensors::vectors(1, 7);
        assert_eq!(config.state_bytes(tensors), kept, "{config:?}");
    }
}
