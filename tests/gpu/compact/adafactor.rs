//! Adafactor on CUDA, against the CPU's.

use burn::tensor::{DType, Tensor};
use itertools::Itertools;
use runner::common::DeviceId;
use runner::optim::{Adafactor, Pending, Rule, StepSize};

use super::{CUDA, list, tensor, values};
use crate::on_gpu;

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
