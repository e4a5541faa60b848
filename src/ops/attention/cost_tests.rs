//! What attention costs by its settings against what the heap holds, and the kernels' cost by hand.

use std::process::Command;

use burn::tensor::DType;

use super::{HeadSizes, Heads, Mask, Scores, Way, attention_packed, cost};
use crate::common::{Compute, DeviceId};
use crate::device::Capability;
use crate::measure::alloc;
use crate::ops::cost::{Cost, Setting, Trained};
use crate::ops::dense::Arithmetic;
use crate::ops::product::Fp32Math;
use crate::ops::testing::random;
use crate::ops::{Level, Operator, Ops, narrow};

fn setting(batch: u64, sequence: u64) -> Setting {
    Setting {
        device: DeviceId::Cuda(0),
        capability: None,
        batch,
        sequence,
        squares: (batch * sequence * sequence) as f64,
        compute: Compute::Bf16,
        stored: 2,
        keeps_casts: false,
        ops: Ops::default(),
        level: Level::default(),
        ample: true,
        trained: Trained::ALL,
        packs: false,
        tensor: 1,
    }
}

/// 200 tokens of 6 query and 2 key heads of 64 elements in bf16.
#[test]
fn the_fused_kernels_cost_by_hand() {
    let setting = setting(2, 100);
    let (sizes, scores) = (HeadSizes { heads: 6, kv_heads: 2, head_dim: 64 }, Scores::default());
    let fused = cost(&setting, sizes, scores);
    let (o, qkv, row) = (200 * 384 * 2, 200 * 640 * 2, 200 * 6 * 4);
    assert!(fused.holds_input);
    assert_eq!((fused.kept, fused.forward.total(), fused.passing.total()), (row, o + row, o + row));
    // dK and dV of three parts of the heads in fp32.
    assert_eq!(fused.backward.total(), o + 2 * row + qkv + 3 * 2 * 200 * 128 * 4);
    // Forward has two products of 20 000 · 384; backward computes three of its seven again.
    assert_eq!([fused.flops.forward, fused.flops.recompute], [2.0, 3.0].map(|n| n * 20_000.0 * 384.0));
    for other in [
        Setting { compute: Compute::Fp32, ..setting },
        Setting { device: DeviceId::Cpu, ..setting },
        Setting { capability: Some(Capability::new(7, 5)), ..setting },
        Setting { ops: Ops { fused_attention: false, ..Ops::default() }, ..setting },
    ] {
        assert!(!cost(&other, sizes, scores).holds_input);
    }
    assert!(!cost(&setting, HeadSizes { head_dim: 20, ..sizes }, scores).holds_input);
    // A window of 20 leaves 2 · 100 · 20 − 20² of the squares' 10 000.
    let windowed = cost(&setting, sizes, Scores { window: Some(20), ..scores });
    assert!((windowed.flops.forward / fused.flops.forward - 0.36).abs() < 1e-9);
    assert_eq!(windowed.backward, fused.backward);
    // The sums for dK and dV are in two passes, which compute four products again.
    let large = cost(&setting, HeadSizes { head_dim: 256, ..sizes }, scores);
    assert_eq!(large.flops.recompute, 4.0 * 20_000.0 * 6.0 * 256.0);
}

/// Environment variable of the process that measures: the heap's counters are those of all its threads.
const ALONE: &str = "ATTENTION_COST_ALONE";

#[test]
fn costs_are_what_the_heap_holds() {
    if std::env::var(ALONE).is_ok() {
        return measure_all();
    }
    let mut tests = Command::new(std::env::current_exe().expect("the tests"));
    let tests = tests.env(ALONE, "1").args(["--nocapture", "costs_are_what_the_heap_holds"]);
    let output = tests.output().expect("the tests start");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && text[0].contains("1 passed"), "{text:?}");
}

fn measure_all() {
    let capped = Scores { soft_cap: Some(5.0), ..Scores::default() };
    let all = Scores { soft_cap: Some(5.0), window: Some(100), scale: Some(0.3) };
    let windowed = Scores { window: Some(100), ..Scores::default() };
    for (compute, way) in
        [(Compute::Fp32, Way::Blocks), (Compute::Bf16, Way::Blocks), (Compute::Fp32, Way::Plain)]
    {
        let options = [Scores::default(), capped, windowed, all].map(|scores| compare(compute, way, scores));
        let none = options[0];
        for both in options {
            for direction in 0..2 {
                // What the options add where Burn's operators run, whose cost is above what they hold here.
                let burns = compute != Compute::Fp32 || way == Way::Plain;
                let before = |i: usize| if burns { none[i][direction] } else { 0.0 };
                let [measured, expected] = [0, 1].map(|i| both[i][direction] - before(i));
                let off = (measured - expected).abs() / both[0][direction];
                assert!(off < 0.03, "{compute} {way:?}: {measured} bytes, {expected} expected");
            }
        }
    }
}

/// The most bytes in forward and in backward with the input, as measured and by the cost.
fn compare(compute: Compute, way: Way, scores: Scores) -> [[f64; 2]; 2] {
    let attention = if way == Way::Plain { Operator::Plain } else { Operator::Custom };
    let (ops, stored) = (Ops { attention, ..Ops::default() }, compute.bytes());
    let setting = Setting { device: DeviceId::Cpu, compute, stored, ops, ..setting(1, 1000) };
    let heads = Heads { batch: 1, sequence: 1000, kv_heads: 2, group: 2, head_dim: 16, scores };
    let expected = cost(&setting, HeadSizes { heads: 4, kv_heads: 2, head_dim: 16 }, scores);
    let Cost { input, output, forward, backward, .. } = expected;
    // o is held beside its gradient.
    let expected = [input + forward.total(), input + backward.total() + 2 * output];
    let both = [measured(heads, compute, way).map(|bytes| bytes as f64), expected.map(|bytes| bytes as f64)];
    println!("{compute} {way:?} {scores:?}: {both:?}");
    both
}

fn measured(heads: Heads, compute: Compute, way: Way) -> [isize; 2] {
    let dtype = if compute == Compute::Fp32 { DType::F32 } else { DType::BF16 };
    let arithmetic = Arithmetic { dtype, math: Fp32Math::Exact };
    let run = || {
        let before = alloc::live();
        let columns = heads.columns() + 2 * heads.of_keys().columns();
        let x = narrow(random([heads.tokens(), columns], 1).inner(), dtype).autodiff().require_grad();
        alloc::reset_peak();
        let o = attention_packed(x, heads, &Mask::default(), arithmetic, way);
        let forward = alloc::peak() - before;
        alloc::reset_peak();
        let gradients = o.backward();
        drop(gradients);
        [forward, alloc::peak() - before]
    };
    // Threads get their own memory at first.
    run();
    run()
}
