//! Offloaded blocks: the same logits as resident ones from every strategy, and wrong ones as soon as a
//! slot is refilled too early.

use std::path::Path;
use std::sync::Arc;

use runner::common::{Compute, DeviceId};
use runner::model::config::from_hugging_face;
use runner::model::language::{Computation, Tokens};
use runner::model::{Network, Parts};
use runner::ops::dense::Arithmetic;
use runner::ops::{Checkpoint, Ops};
use runner::optim::OptimizerConfig;
use runner::params::table::Tuning;
use runner::residence::{Offload, Overlap, Placement, Residence, ResidentBlocks, Strategy};
use runner::train::RefillsEarly;

use crate::on_gpu;
use crate::reference::host;

const DEVICE: DeviceId = DeviceId::Cuda(0);

/// Runs where the repository's fixtures are.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn order_of_slots() {
    on_gpu(|_, checks| {
        let folder = Path::new("tests/fixtures/qwen2");
        let Ok(model) = from_hugging_face(folder) else {
            return checks.verdict("offload", false, "tests/fixtures/qwen2 cannot be read from here");
        };
        let model = model.language().expect("a qwen2");
        let logits = |offload: Offload, early: bool| {
            let (device, dtype) = (DEVICE.burn(), runner::device::dtype(Compute::Fp32));
            let source = model.source(DEVICE, dtype, &Tuning::default()).expect("the fixture's weights");
            let arithmetic = Arithmetic::of(Compute::Fp32);
            let computation = Computation::new(arithmetic, Ops::default(), Checkpoint::default());
            let placement =
                Placement { offload, device: DEVICE, accumulates: false, updates: false, recomputes: false };
            let network = model.network(64, &source, computation, (Some(placement), None), Parts::Whole);
            let parts = (network.parameters().clone(), network.offloaded().cloned());
            let residence =
                Residence::new(network, parts, &OptimizerConfig::default(), (placement, None), false);
            if early {
                residence.follow(Arc::new(RefillsEarly));
            }
            let network = residence.network();
            let ids: Vec<u32> = (0..32).collect();
            let hidden = network.hidden(&Tokens::new(&ids, 2, &device), None).inner();
            host(network.logits(hidden))
        };
        let resident = logits(Offload::default(), false);
        let largest = |other: &[f64]| {
            resident.iter().zip(other).fold(0.0f64, |most, (a, b)| {
                let difference = (a - b).abs();
                if difference.is_nan() { f64::NAN } else { most.max(difference) }
            })
        };
        for strategy in Strategy::all() {
            let difference = largest(&logits(Offload::of(strategy), false));
            checks.below(&format!("logits with offload {}", strategy.into_str()), difference, 1e-5);
        }
        for strategy in Strategy::all().filter(|strategy| *strategy != Strategy::default()) {
            for count in 1..=2 {
                let resident_blocks = ResidentBlocks::Count(count);
                let difference =
                    largest(&logits(Offload { resident_blocks, ..Offload::of(strategy) }, false));
                let name = format!("logits with offload {}, {count} resident", strategy.into_str());
                checks.below(&name, difference, 1e-5);
            }
        }
        let wrong = largest(&logits(Offload::of(Strategy::Overlap(Overlap { buffers: 2 })), true));
        let noticed = wrong.is_nan() || wrong > 1e-3;
        checks.verdict("a slot refilled too early is noticed", noticed, &format!("{wrong:.2e}"));
    });
}
