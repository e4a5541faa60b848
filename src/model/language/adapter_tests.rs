//! The slot for an adapter of every linear layer, tried with one matrix from inputs to outputs.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::{DType, Tensor};

use super::Computation;
use crate::common::{Compute, DeviceId};
use crate::data::Collated;
use crate::device::drawing;
use crate::model::config::from_hugging_face;
use crate::model::{Network, Parts};
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::{self, Arithmetic, Layer, Weight, WeightLayout, dense};
use crate::ops::{Checkpoint, Ops};
use crate::optim::{OptimizerConfig, Sgd, StepSize};
use crate::params::named::Named;
use crate::params::source::Init;
use crate::params::table::{Group, Tuning};
use crate::params::tuning::{Adapters, Bottleneck, Lora, Masks, Matrix, Method};
use crate::residence::{Offload, Overlap, Placement, Residence, Strategy};
use crate::train::on_device;

/// y + xA with A = 0 before training.
#[derive(Debug)]
struct Added(&'static [&'static str]);

impl Method for Added {
    fn adapts(&self, layer: &str) -> bool {
        self.0.contains(&layer)
    }

    fn matrices(&self, inputs: usize, outputs: usize) -> Vec<Matrix> {
        vec![("added", [inputs, outputs], Init::Constant(0.0))]
    }

    fn forward(&self, x: Tensor<2>, layer: Layer, matrices: Vec<Weight>, _: Masks) -> Tensor<2> {
        let [added] = matrices.try_into().expect("one matrix");
        let arithmetic = layer.arithmetic;
        layer.forward(x.clone()) + dense(x, added, None, WeightLayout::InOut, arithmetic)
    }

    fn cost(&self, setting: &Setting, sizes: [u64; 2], bias: bool, layout: WeightLayout) -> Cost {
        dense::cost(setting, sizes, bias, layout)
    }
}

/// Each kind of adapter, on the layers of these names.
fn methods(layers: &'static [&'static str]) -> Vec<Arc<dyn Method>> {
    let target_modules = layers.join(", ");
    vec![
        Arc::new(Added(layers)),
        Arc::new(Lora { rank: 3, target_modules, ..Lora::default() }),
        Arc::new(Bottleneck { bottleneck: 5 }),
    ]
}

/// Losses of two steps in which adapters alone are trained, and what is then there, with segments of so many blocks.
fn trained(
    kind: &str,
    adapter: Option<Arc<dyn Method>>,
    strategy: Strategy,
    blocks: usize,
) -> ([f32; 2], Named) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind);
    let model = from_hugging_face(&folder).unwrap();
    let model = model.language().expect("a language model");
    let is_trained = if adapter.is_some() { |group| group == Group::Adapter } else { |_| true };
    let trainable = Arc::new(move |_: &str, group| is_trained(group));
    let adapter = adapter.map(Adapters::Alike);
    let tuning = Tuning { trainable, adapter, ..Tuning::default() };
    let device = DeviceId::Cpu;
    let _drawing = drawing();
    let source = model.source(device, DType::F32, &tuning).unwrap();
    let checkpoint = Checkpoint { blocks, ..Checkpoint::default() };
    let computation = Computation::new(Arithmetic::of(Compute::Fp32), Ops::default(), checkpoint);
    let placement = Placement {
        offload: Offload::of(strategy),
        device,
        accumulates: false,
        updates: true,
        recomputes: blocks > 0,
    };
    let network = model.network(24, &source, computation, (Some(placement), None), Parts::Whole);
    let parts = (network.parameters().clone(), network.offloaded().cloned());
    let sgd = OptimizerConfig::Sgd(Sgd { lr: 0.1, ..Sgd::default() });
    let mut residence = Residence::new(network, parts, &sgd, (placement, None), false);
    let ids: Vec<i32> = (0..48).map(|i| i * 37 % 512).collect();
    let losses = std::array::from_fn(|_| {
        let batch = on_device(Collated::of_rows(ids.clone(), &ids, 2), device);
        let loss = residence.network().loss(&batch);
        residence.add(loss.clone().backward());
        residence.update(&StepSize::FULL);
        loss.into_scalar()
    });
    let mut parameters = residence.parameters();
    parameters.sort_by(|a, b| a.0.cmp(&b.0));
    (losses, parameters)
}

/// Adapters begin as nothing, have names within their layers, learn, and leave the rest as it is; on the host and
/// in segments also.
fn check(kind: &str, layers: &'static [&'static str]) {
    let ([before, _], _) = trained(kind, None, Strategy::default(), 0);
    for method in methods(layers).into_iter().filter(|method| layers.iter().any(|layer| method.adapts(layer)))
    {
        let matrices = method.matrices(1, 1);
        let (resident, overlap) = (Strategy::default(), Strategy::Overlap(Overlap::default()));
        let ways = [(resident, 0), (overlap, 0), (resident, 1), (resident, 2)];
        let found = ways.map(|(strategy, blocks)| trained(kind, Some(method.clone()), strategy, blocks));
        for (losses, parameters) in &found {
            // With adapters the MLP is composed of its products, which rounds elsewhere.
            let learns = (losses[0] - before).abs() < 1e-5 && losses[1] < losses[0] - 1e-3;
            assert!(learns, "{method:?}: {before} {losses:?}");
            for (matrix, ..) in &matrices {
                let of_matrix =
                    || parameters.iter().filter(|(name, _)| name.ends_with(&format!(".{matrix}")));
                let adapted: Vec<_> = layers.iter().filter(|layer| method.adapts(layer)).collect();
                assert_eq!(of_matrix().count(), 3 * adapted.len(), "{matrix}");
                for layer in adapted {
                    let mut names = of_matrix().map(|(name, _)| name);
                    assert!(names.any(|name| name.ends_with(&format!(".{layer}.{matrix}"))), "{layer}");
                }
                assert!(of_matrix().all(|(_, values)| values.iter().any(|value| *value != 0.0)), "{matrix}");
            }
        }
        assert!(found.iter().all(|other| *other == found[0]), "{method:?}");
    }
}

#[test]
fn every_linear_layer_of_qwen2_has_a_slot() {
    check("qwen2", &["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]);
}

#[test]
fn every_linear_layer_of_gpt2_has_a_slot() {
    // Attention and the MLP both have a c_proj.
    check("gpt2", &["c_attn", "c_fc"]);
}
