//! Offloaded blocks: the same logits as resident ones from every strategy, and wrong ones as soon as a
//! slot is refilled too early.

use std::path::Path;

use runner::device::DeviceId;
use runner::model::config::{Architecture, from_hugging_face};
use runner::model::language::{Computation, LanguageNetwork, Llama, Tokens};
use runner::ops::dense::Arithmetic;
use runner::ops::{Level, Ops};
use runner::params::WeightsFrom;
use runner::params::source::Source;
use runner::residence::{Offload, Placement, Strategy};
use runner::words::Compute;

use crate::on_gpu;
use crate::reference::host;

const DEVICE: DeviceId = DeviceId::Cuda(0);

/// Runs where the repository's fixtures are.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn order_of_slots() {
    on_gpu(|_, checks| {
        let folder = Path::new("tests/fixtures/qwen2");
        let Ok(Architecture::Qwen2(config)) = from_hugging_face(folder) else {
            return checks.verdict("offload", false, "tests/fixtures/qwen2 cannot be read from here");
        };
        let from = WeightsFrom::Folder(folder.to_path_buf());
        let logits = |offload: Offload, early: bool| {
            let device = DEVICE.burn();
            let dtype = runner::device::dtype(Compute::Fp32);
            let source =
                Source::open(&from, &config.tensors(), DEVICE, dtype).expect("the fixture's weights");
            let arithmetic = Arithmetic::of(Compute::Fp32);
            let computation = Computation { arithmetic, ops: Ops::default(), level: Level::Keep };
            let placement = Placement { offload, device: DEVICE, accumulates: false };
            let network = Llama::new(&config, 64, &source, computation, Some(placement));
            if let Some(blocks) = network.offloaded().filter(|_| early) {
                blocks.refill_early();
            }
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
        for strategy in Strategy::ALL {
            let difference = largest(&logits(Offload::of(strategy), false));
            checks.below(&format!("logits with offload {}", strategy.into_str()), difference, 1e-5);
        }
        let wrong = largest(&logits(Offload { buffers: 2, ..Offload::of(Strategy::Overlap) }, true));
        let noticed = wrong.is_nan() || wrong > 1e-3;
        checks.verdict("a slot refilled too early is noticed", noticed, &format!("{wrong:.2e}"));
    });
}
