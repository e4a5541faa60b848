//! A step that is skipped, for every optimizer.

use burn::module::Param;

use super::*;

#[derive(Module, Debug)]
struct One {
    weight: Param<Tensor<1>>,
}

/// The parameter after each step; a step marked `false` is not applied.
fn trained(config: &OptimizerConfig, steps: &[(f32, bool)]) -> Vec<Vec<f32>> {
    let device = Device::flex().autodiff();
    let weight = Tensor::<1>::from_floats([1.0, -2.0, 0.5], &device).require_grad();
    let mut module = One { weight: Param::initialized(crate::params::table::id("weight"), weight) };
    let mut optimizer = Optimizer::new(config, None);
    let step = |(gradient, applied): &(f32, bool)| {
        let mut gradients = GradientSet::default();
        gradients.add(&module, (module.weight.val() * *gradient).sum().backward());
        let flag = Tensor::from_floats([f32::from(u8::from(*applied))], &Device::flex());
        let size = StepSize { applied: Some(flag), ..StepSize::FULL };
        module = optimizer.step(module.clone(), gradients, &size);
        module.weight.val().into_data().try_to_vec().unwrap()
    };
    steps.iter().map(step).collect()
}

#[test]
fn a_step_that_is_not_applied_leaves_everything_as_it_was() {
    let sgd = Sgd { lr: 0.1, momentum: 0.9, weight_decay: 0.1 };
    let adamw = AdamW::default();
    for config in [
        OptimizerConfig::Sgd(sgd),
        OptimizerConfig::AdamW(adamw.clone()),
        OptimizerConfig::AdamW8bit(AdamW8bit(adamw.clone())),
        OptimizerConfig::AdamWBf16(AdamWBf16(adamw)),
        OptimizerConfig::Adafactor(Adafactor::default()),
    ] {
        let all = trained(&config, &[(0.5, true), (-2.0, true), (3.0, true)]);
        let lost = f32::INFINITY;
        let skipping =
            trained(&config, &[(lost, false), (0.5, true), (lost, false), (-2.0, true), (3.0, true)]);
        assert_eq!(skipping[0], [1.0, -2.0, 0.5]);
        assert_eq!(skipping[1], skipping[2]);
        assert_eq!(all, [&skipping[1..2], &skipping[3..]].concat());
    }
}
