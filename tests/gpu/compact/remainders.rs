//! Bf16 parameters with the other halves of their fp32 masters.

use burn::tensor::{DType, Device, FloatDType, Tensor};
use runner::common::DeviceId;
use runner::optim::{AdamW, AdamW8bit, AdamWBf16, OptimizerConfig, Rule, State, StepSize};

use super::{CUDA, SIZES, Trained, kept, tensor};
use crate::on_gpu;

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

/// Trains on both sides with clipping and, where `on_device`, with steps that are skipped; whether all fp32 bits of the two
/// are equal after each step. `expected`, on the CPU, follows where no step is skipped.
fn train_together(split: &dyn Rule, on_device: bool, [ours, whole, expected]: [&mut Trained; 3]) -> bool {
    let (mut flags, mut equal) = (None, true);
    for step in 0..10 {
        if on_device {
            let applied = if step % 3 == 1 { 0.0 } else { 1.0 };
            flags = Some(split.share(tensor(&ours.device, &[applied], DType::F32), flags));
        }
        let clip = |device: &Device| (step % 2 == 0).then(|| tensor(device, &[0.625], DType::F32));
        for side in [&mut *ours, &mut *whole] {
            let clip = clip(&side.device);
            let size = StepSize { clip, applied: flags.clone(), seed: step + 7, ..StepSize::FULL };
            side.step(step, &size);
        }
        equal &= masters(ours) == masters(whole);
        if !on_device {
            let size = StepSize { clip: clip(&expected.device), seed: step + 7, ..StepSize::FULL };
            expected.step(step, &size);
        }
    }
    equal
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
                let sides = [&mut ours, &mut whole, &mut expected];
                let equal = train_together(&*split, on_device, sides);
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
