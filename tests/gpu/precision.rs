//! Mixed precision on the device: regions, the scaler's states, updates that are skipped, and that the
//! host waits for none of it.

use std::time::Instant;

use burn::module::{Module, Param, ParamId};
use burn::tensor::{DType, Device, Tensor};
use runner::common::{Compute, DeviceId};
use runner::ops::autocast::autocast;
use runner::ops::dense::{Arithmetic, WeightLayout, dense};
use runner::optim::{AdamW, GradientSet, Optimizer, OptimizerConfig, Sgd, StepSize};
use runner::precision::{DynamicGradScaler, GradScaler, ScalerConfig};

use crate::on_gpu;
use crate::reference::{error, host, on, random, tolerance};

const DEVICE: DeviceId = DeviceId::Cuda(0);

fn number(value: f32) -> Tensor<1> {
    Tensor::from_floats([value], &DEVICE.burn())
}

fn list(tensor: Tensor<1>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Types and values of a linear layer in regions one inside the other.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn autocast_regions() {
    on_gpu(|_, checks| {
        let (x, w) = (random([64, 256], 1), random([256, 128], 2));
        let of = |device: &Device| [&x, &w].map(|data| on(device, data.clone(), Compute::Fp32));
        let [x, w] = of(&DEVICE.burn());
        let [x_host, w_host] = of(&Device::flex());
        let expected = host(x_host.matmul(w_host));
        let mut check = |name: &str, compute: Compute| {
            let y = dense(x.clone(), w.clone(), None, WeightLayout::InOut, Arithmetic::of(Compute::Fp32));
            let dtype = runner::device::dtype(compute);
            checks.verdict(&format!("type {name}"), y.dtype() == dtype, &format!("{:?}", y.dtype()));
            checks.below(&format!("values {name}"), error(&host(y), &expected), 4.0 * tolerance(compute));
        };
        {
            let _outer = autocast(Some(DType::BF16));
            check("in a bf16 region", Compute::Bf16);
            {
                let _off = autocast(None);
                check("where autocast is off", Compute::Fp32);
                let _inner = autocast(Some(DType::F16));
                check("in an fp16 region inside", Compute::Fp16);
            }
            check("back in the bf16 region", Compute::Bf16);
        }
        check("outside", Compute::Fp32);
    });
}

/// PyTorch's scale after every step of tests/fixtures/grad_scaler.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn golden_scales() {
    on_gpu(|_, checks| {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../fixtures/grad_scaler/golden.json")).expect("JSON");
        let value = |key: &str| golden[key].as_f64().expect("a number");
        let config = DynamicGradScaler {
            init_scale: value("init_scale"),
            growth_factor: value("growth_factor"),
            backoff_factor: value("backoff_factor"),
            growth_interval: value("growth_interval") as usize,
        };
        let mut scaler = GradScaler::new(ScalerConfig::Dynamic(config), &DEVICE.burn());
        let (overflow, scales) = (golden["overflow"].as_array(), golden["scale_after"].as_array());
        let steps = overflow.expect("a list").iter().zip(scales.expect("a list"));
        let equal = steps.map(|(overflow, scale)| {
            let lost = overflow.as_bool() == Some(true);
            let unscaled = scaler.unscale(number(if lost { f32::INFINITY } else { 4e-6 }), Some(1.0));
            list(scaler.update(unscaled.applied))
                == [f64::from(u8::from(!lost)), scale.as_f64().expect("a scale")]
        });
        let equal: Vec<bool> = equal.collect();
        let right = equal.iter().filter(|equal| **equal).count();
        checks.verdict("golden scales", right == equal.len(), &format!("{right} of {} steps", equal.len()));
    });
}

#[derive(Module, Debug)]
struct One {
    weight: Param<Tensor<1>>,
}

fn module(elements: usize) -> One {
    let weight = Tensor::<1>::ones([elements], &DEVICE.burn().autodiff()).require_grad();
    One { weight: Param::initialized(ParamId::new(), weight) }
}

/// One step with this gradient everywhere.
fn stepped(optimizer: &mut Optimizer, module: One, gradient: f32, applied: Tensor<1>) -> One {
    let mut gradients = GradientSet::default();
    gradients.add(&module, (module.weight.val() * gradient).sum().backward());
    optimizer.step(module, gradients, &StepSize { applied: Some(applied), ..StepSize::FULL })
}

/// Steps with overflows between them, on the device and on the CPU, where they are left out.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn skipped_steps() {
    on_gpu(|_, checks| {
        let sgd = Sgd { lr: 0.1, momentum: 0.9, weight_decay: 0.1 };
        for (name, config) in
            [("adamw", OptimizerConfig::AdamW(AdamW::default())), ("sgd", OptimizerConfig::Sgd(sgd))]
        {
            let run = |steps: &[(f32, f32)]| {
                let (mut optimizer, mut module) = (Optimizer::new(&config, None), module(1000));
                for (gradient, applied) in steps {
                    module = stepped(&mut optimizer, module, *gradient, number(*applied));
                }
                list(module.weight.val().inner())
            };
            let lost = (f32::INFINITY, 0.0);
            let all = run(&[(0.5, 1.0), (-2.0, 1.0), (3.0, 1.0)]);
            let skipping = run(&[lost, (0.5, 1.0), lost, lost, (-2.0, 1.0), (3.0, 1.0), lost]);
            checks.verdict(&format!("{name} with skipped steps"), all == skipping, "equal to the last bit");
            checks.verdict(
                &format!("{name} only skipped"),
                run(&[lost, lost]) == [1.0; 1000],
                "nothing changed",
            );
        }
    });
}

/// The host issues a step's unscaling, update and skipping while the device still multiplies.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn nothing_waits() {
    on_gpu(|gpu, checks| {
        let device = DEVICE.burn();
        let a = Tensor::<2>::ones([8192, 8192], (&device, DType::BF16));
        let mut scaler =
            GradScaler::new(ScalerConfig::Dynamic(DynamicGradScaler::SECTION.defaults()), &device);
        let config = OptimizerConfig::AdamW(AdamW::default());
        let (mut optimizer, mut module) = (Optimizer::new(&config, None), module(1 << 16));
        let multiply = || {
            let arithmetic = Arithmetic::of(Compute::Bf16);
            dense(a.clone(), a.clone(), None, WeightLayout::InOut, arithmetic)
        };
        let (mut issued, mut done) = (0.0, 0.0);
        // The first time everything is compiled.
        for _ in 0..2 {
            gpu.synchronize();
            let start = Instant::now();
            let products: Vec<Tensor<2>> = (0..100).map(|_| multiply()).collect();
            let unscaled = scaler.unscale(number(4.0), Some(1.0));
            module = stepped(&mut optimizer, module, 0.5, unscaled.applied.clone());
            let stats = scaler.update(unscaled.applied);
            issued = start.elapsed().as_secs_f64();
            gpu.synchronize();
            done = start.elapsed().as_secs_f64();
            drop((products, stats));
        }
        let figures = format!("issued after {:.1} ms, done after {:.1} ms", issued * 1e3, done * 1e3);
        checks.verdict("no step waits for the host", issued < 0.5 * done, &figures);
    });
}
