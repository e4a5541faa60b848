//! The table of cards, and names as people and drivers write them.

use super::*;
use crate::device::Feature;

#[test]
fn names_are_found_as_people_and_drivers_write_them() {
    for (written, name) in [
        ("3060", "RTX 3060"),
        ("rtx 3060", "RTX 3060"),
        ("RTX 3060 12GB", "RTX 3060"),
        ("NVIDIA GeForce RTX 3060", "RTX 3060"),
        ("3090", "RTX 3090"),
        ("3090ti", "RTX 3090 Ti"),
        ("4060 Ti 16 GB", "RTX 4060 Ti 16 GB"),
        ("rtx4060ti-8gb", "RTX 4060 Ti 8 GB"),
        ("1080 ti", "GTX 1080 Ti"),
        ("l4", "L4"),
        ("L40S", "L40S"),
        ("a10", "A10"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla V100-SXM2-32GB", "V100 32 GB"),
        ("V100 PCIe", "V100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80 GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB"),
        ("h100", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("H200", "H200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("a6000", "RTX A6000"),
    ] {
        assert_eq!(Card::named(written).map(|card| card.name.as_str()), Ok(name), "{written}");
    }
    for card in Card::all() {
        assert_eq!(Card::named(&card.name), Ok(card));
    }
}

#[test]
fn other_names_are_refused_with_what_is_near() {
    for (written, expected) in [
        ("4060 ti", "more than one card; write one of RTX 4060 Ti 8 GB, RTX 4060 Ti 16 GB"),
        ("a100", "more than one card; write one of A100 40 GB, A100 80 GB"),
        ("a100 pcie", "more than one card; write one of A100 40 GB, A100 PCIe 80 GB"),
        ("rtx 6000", "no card \"rtx 6000\" is known; near are RTX A6000"),
        ("4060", "no card \"4060\" is known"),
        ("rtx 3061", "no card \"rtx 3061\" is known; near are RTX 3060"),
        ("l40", "L40S"),
        ("rtx", "no card \"rtx\""),
        ("16", "no card \"16\""),
        ("radeon 7900", "no card"),
        ("", "no card"),
    ] {
        let message = Card::named(written).unwrap_err();
        assert!(message.contains(expected), "{written}: {message}");
    }
}

/// A card has a rate of each type that its compute capability has products of, and of no other; operations per clock follow from
/// that.
#[test]
fn figures_of_a_card_agree_with_each_other() {
    assert!(Card::all().len() >= 24);
    for card in Card::all() {
        let (name, has) = (&card.name, |feature| card.capability().has(feature));
        let Products { fp32, tf32, fp16, bf16, int8, fp8 } = card.products;
        assert!(has(Feature::Kernels), "{name}");
        assert_eq!(tf32.is_some(), has(Feature::Tf32Products), "{name}");
        assert_eq!(fp16.is_some(), has(Feature::Fp16TensorCores), "{name}");
        assert_eq!(bf16.is_some(), has(Feature::Bf16Products), "{name}");
        assert_eq!(fp8.is_some(), card.capability() >= Capability::new(8, 9), "{name}");
        // Half the bits, twice the rate, and GeForce's half where sums are in fp32.
        let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(2.0, |(a, b)| a / b);
        assert!((ratio(bf16, tf32) - 2.0).abs() < 0.03, "{name}");
        assert!([2.0, 4.0].iter().any(|times| (ratio(int8, fp16) / times - 1.0).abs() < 0.03), "{name}");
        assert!((ratio(fp8, fp16) - 2.0).abs() < 0.05, "{name}");
        assert!(fp16.is_none_or(|fp16| fp16 > 1.9 * fp32), "{name}");
        assert!(FILE.sources.contains_key(&card.source), "{name}: {}", card.source);
    }
    assert!(FILE.sources.values().all(|source| source.starts_with("https://")));
}

#[test]
fn figures_are_in_bytes_and_operations_per_second() {
    let card = Card::named("rtx 3060").unwrap();
    assert_eq!((card.memory(), card.capability()), (12 << 30, Capability::new(8, 6)));
    assert_eq!((card.bandwidth(), card.product(Compute::Bf16)), (360e9, Some(25.5e12)));
    assert!((card.bus() - 31.508e9).abs() < 1e7, "{}", card.bus());
    let pascal = Card::named("1080 ti").unwrap();
    assert_eq!(pascal.product(Compute::Fp16), pascal.product(Compute::Fp32));
    assert_eq!((pascal.product(Compute::Bf16), pascal.product(Compute::Tf32)), (None, None));
}

/// NVIDIA's MIG User Guide: 1g.10gb, 2g.20gb and 3g.40gb of 80 GB, and quarters of an RTX PRO 6000.
#[test]
fn parts_of_mig_have_their_share() {
    let slice = |card: &str, gibibytes: u64| Card::named(card).unwrap().slice(gibibytes << 30);
    for (gibibytes, products, memory) in [(10, 1.0, 8.0), (20, 2.0, 4.0), (40, 3.0, 2.0)] {
        assert_eq!(slice("h100", gibibytes), Slice { products: products / 7.0, memory: 1.0 / memory });
    }
    assert_eq!(slice("rtx pro 6000", 24), Slice { products: 0.25, memory: 0.25 });
    // Held to a limit, and a card without MIG.
    for whole in [slice("h100", 12), slice("h100", 79), slice("4090", 12)] {
        assert_eq!(whole, Slice::WHOLE);
    }
}
