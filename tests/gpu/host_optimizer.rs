//! AdamW on the host against AdamW on the GPU, and language models with everything on the host against
//! their references.

use std::path::Path;

use burn::module::{Module, Param, ParamId};
use burn::tensor::{Device, Distribution, Tensor};
use runner::common::DeviceId;
use runner::measure::alloc::Room;
use runner::optim::{AdamW, GradientSet, Optimizer, OptimizerConfig, StepSize};
use runner::verify::{self, Check};

use crate::on_gpu;

const DEVICE: DeviceId = DeviceId::Cuda(0);
const ELEMENTS: usize = (1 << 20) + 3;

#[derive(Module, Debug)]
struct One {
    weight: Param<Tensor<1>>,
}

impl One {
    fn new(weight: Tensor<1>) -> Self {
        Self { weight: Param::initialized(ParamId::new(), weight.autodiff().require_grad()) }
    }

    /// The gradient of Σ w g is g.
    fn step(self, optimizer: &mut Optimizer, g: &Tensor<1>, size: &StepSize) -> Self {
        let gradients = (self.weight.val() * g.clone()).sum().backward();
        let mut set = GradientSet::default();
        set.add(&self, gradients);
        optimizer.step(self, set, size)
    }

    fn values(&self) -> Vec<f32> {
        self.weight.val().inner().into_data().try_to_vec().expect("fp32")
    }
}

/// Both fed the same gradients, with and without clipping, for 50 steps.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn fifty_steps() {
    on_gpu(|_, checks| {
        let device: Device = DEVICE.burn();
        device.seed(11);
        let random =
            |deviation| Tensor::<1>::random([ELEMENTS], Distribution::Normal(0.0, deviation), &device);
        let rule = OptimizerConfig::AdamW(AdamW { lr: 1e-2, weight_decay: 0.1, ..AdamW::default() });
        let start = random(0.5);
        let mut networks = [None, Some(DEVICE)].map(|host| {
            // Each in memory of its own: an update on the host is written over the parameter.
            let network = One::new(start.clone() * 1.0);
            let mut optimizer = Optimizer::new(&rule, host.map(|device| (device, Room::Memory)));
            optimizer.adopt(&network);
            Some((network, optimizer))
        });
        let before = start.into_data().try_to_vec::<f32>().expect("fp32");
        for step in 0..50 {
            let g = random(1e-3 * f64::from(1 + step % 7));
            let clip = (step % 2 == 0).then(|| Tensor::<1>::from_floats([0.5], &device));
            let size = StepSize { rate: 1.0 - f64::from(step) / 100.0, clip, ..StepSize::FULL };
            for place in &mut networks {
                let (network, mut optimizer) = place.take().expect("between steps");
                *place = Some((network.step(&mut optimizer, &g, &size), optimizer));
            }
        }
        let [on_device, on_host] = networks.map(|place| place.expect("between steps").0.values());
        let largest =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        checks.below("50 steps of AdamW on the host and on the device", largest(&on_device, &on_host), 1e-5);
        let moved = largest(&before, &on_host);
        checks.verdict("they change the parameters", moved > 0.1, &format!("{moved:.2e}"));
    });
}

/// Runs where the repository's fixtures are.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn against_references() {
    on_gpu(|_, checks| {
        for offload in [
            "optimizer=\"host\"",
            "strategy=\"checkpointed\", optimizer=\"host\"",
            "strategy=\"naive\", activations=\"host\"",
            "strategy=\"overlap\", optimizer=\"host\"",
            "strategy=\"overlap\", optimizer=\"host\", activations=\"host\"",
            "strategy=\"overlap\", resident_blocks=2",
            "strategy=\"overlap\", resident_blocks=1, optimizer=\"host\"",
            "strategy=\"function\", resident_blocks=1, optimizer=\"host\", activations=\"host\"",
            "strategy=\"naive\", resident_blocks=\"auto\", optimizer=\"host\"",
        ] {
            for model in ["qwen2", "gpt2", "gptj"] {
                let settings = ["device=cuda:0".to_string(), format!("offload={{{offload}}}")];
                let settings = settings.map(|setting| setting.parse().expect("a setting"));
                let options = verify::Options { settings: settings.to_vec(), atol: None };
                let compared = verify::verify(Path::new("tests/fixtures").join(model).as_path(), &options);
                let (holds, figures) = match compared {
                    Ok(compared) => {
                        let failed: Vec<Check> = compared.iter().filter(|c| !c.passes()).cloned().collect();
                        let figures = format!("{} quantities\n{}", compared.len(), verify::table(&failed));
                        (verify::passes(&compared), figures)
                    }
                    Err(error) => (false, format!("{error:?}")),
                };
                let name = format!("{model}, {offload}");
                checks.verdict(&name, holds, figures.lines().next().unwrap_or(""));
                if !holds {
                    println!("{figures}");
                }
            }
        }
    });
}
