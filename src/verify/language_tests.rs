//! References that pass, and damage that is noticed: in weights, gradients and slots.

use super::*;
use crate::device::DeviceId;
use crate::offload::{Memory, Offload, Strategy};
use crate::verify::{table, verify};

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn options(compute: Compute) -> Options {
    Options { device: DeviceId::Cpu, level: None, compute, atol: None, offload: Offload::default() }
}

/// Logits, loss, all gradients, continuation, and the parameters after three AdamW steps.
#[test]
fn every_offload_strategy_equals_the_reference() {
    for name in ["qwen2", "gpt2"] {
        let resident = verify(&fixture(name), &options(Compute::Fp32)).unwrap();
        let host = Memory::Host;
        let overlap = Offload::of(Strategy::Overlap);
        let offloads = Strategy::ALL.map(Offload::of).into_iter().chain([
            Offload { optimizer: host, ..Offload::default() },
            Offload { optimizer: host, ..Offload::of(Strategy::Checkpointed) },
            Offload { optimizer: host, activations: host, ..overlap },
            Offload { activations: host, ..overlap },
        ]);
        for offload in offloads.filter(|offload| *offload != Offload::default()) {
            let options = Options { offload, ..options(Compute::Fp32) };
            let checks = verify(&fixture(name), &options).unwrap();
            assert_eq!(checks.len(), resident.len(), "{name} {offload:?}: every quantity is compared");
            assert!(checks.iter().all(Check::passes), "{name} {offload:?}\n{}", table(&checks));
        }
    }
}

#[test]
fn qwen2_and_gpt2_equal_the_reference() {
    for name in ["qwen2", "gpt2"] {
        let checks = verify(&fixture(name), &options(Compute::Fp32)).unwrap();
        assert!(checks.len() > 30 && checks.iter().all(Check::passes), "{name}\n{}", table(&checks));
    }
}

/// A gradient that was never computed fails as one that is wrong does.
#[test]
fn a_missing_gradient_fails() {
    let golden = Golden::load(&fixture("qwen2")).unwrap();
    let check = |name: &str, kind: Kind, ours: &[f64], reference: &[f64]| {
        let allowed = tolerance(kind, Compute::Fp32, DeviceId::Cpu);
        Check::new(name.to_string(), ours, reference, allowed)
    };
    let name = "model.norm.weight".to_string();
    let ours = vec![(name.clone(), golden.get("grad.model.norm.weight").data.clone())];
    let checks = gradients("grad", &ours, &golden, &check);
    let passed: Vec<&str> = checks.iter().filter(|c| c.passes()).map(|c| c.name.as_str()).collect();
    assert_eq!(passed, ["grad.model.norm.weight"]);
    assert!(checks.len() > 30);
}

/// A slot that is refilled before its block is computed is noticed, in the logits and in gradients.
#[test]
fn a_slot_refilled_too_early_fails() {
    let offload = Offload { buffers: 2, ..Offload::of(Strategy::Overlap) };
    let options = Options { offload, ..options(Compute::Fp32) };
    let golden = Golden::load(&fixture("qwen2")).unwrap();
    let Architecture::Qwen2(config) = from_hugging_face(&fixture("qwen2")).unwrap() else {
        panic!("the fixture is a Qwen2")
    };
    let from = WeightsFrom::Folder(fixture("qwen2"));
    let source = Source::open(&from, &config.tensors(), DeviceId::Cpu, dtype(Compute::Fp32)).unwrap();
    let arithmetic = Arithmetic::of(Compute::Fp32);
    let computation = Computation { arithmetic, ops: Ops::default(), level: Level::Keep };
    for early in [false, true] {
        let network = Llama::new(&config, 128, &source, computation, Some(placement(&options)));
        if early {
            network.offloaded().expect("blocks are on the host").refill_early();
        }
        let checks = compare(network, &golden, &options);
        let failed = |part: &str| checks.iter().any(|c| c.name.contains(part) && !c.passes());
        assert_eq!([failed("logits"), failed("grad.model.layers")], [early; 2], "{}", table(&checks));
    }
}

/// A gradient that is lost, or belongs to another parameter, is noticed.
#[test]
fn a_zeroed_gradient_fails() {
    let golden = Golden::load(&fixture("qwen2")).unwrap();
    let allowed = tolerance(Kind::ModelGradient, Compute::Fp32, DeviceId::Cpu);
    for name in golden.names().into_iter().filter(|name| name.starts_with("grad.")) {
        let reference = &golden.get(name).data;
        let zeroed =
            Check::new(name.into(), &vec![0.0; reference.len()], reference, allowed).of_rounding(reference);
        assert!(!zeroed.passes(), "{name}");
    }
}
