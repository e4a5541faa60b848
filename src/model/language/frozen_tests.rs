//! A network with frozen parameters trains as the plain way does whose gradients of them are dropped.

use std::path::Path;
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Gradients, Tensor};

use super::Computation;
use crate::common::{Compute, DeviceId};
use crate::data::Collated;
use crate::model::config::from_hugging_face;
use crate::model::{Network, Parts};
use crate::ops::dense::Arithmetic;
use crate::ops::{Checkpoint, Ops};
use crate::optim::{AdamW, OptimizerConfig, StepSize, clip_factor};
use crate::params::named::Named;
use crate::params::table::{Group, Table, Tuning, id};
use crate::residence::{Memory, Offload, Overlap, Placement, Residence, ResidentBlocks, Strategy};
use crate::train::on_device;

/// Whether a parameter is trained.
type Rule = fn(&str, Group) -> bool;

/// A part of each block and nothing else; all but the first block and the embeddings; the embeddings and the last
/// norm, so that no block has anything to send.
const RULES: [Rule; 3] = [
    |name, group| {
        let parts = ["norm", "ln_", "up_proj", "c_fc", "q_proj.bias"];
        matches!(group, Group::Block(_)) && parts.iter().any(|part| name.contains(part))
    },
    |_, group| !matches!(group, Group::Block(0) | Group::Embedding),
    |_, group| matches!(group, Group::Embedding | Group::Norm),
];

const DEVICE: DeviceId = DeviceId::Cpu;

/// Forgets the gradients of frozen parameters.
struct Dropping<'a>(&'a Table, &'a mut Gradients);

impl ModuleVisitor for Dropping<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.0.entries.iter().any(|entry| id(&entry.name) == param.id && !entry.trainable) {
            param.val().grad_remove(self.1);
        }
    }
}

/// Parameters after three steps of two micro-batches, and the gradients of the last, both sorted by name. `plain`:
/// every parameter has a gradient, and those of frozen ones are dropped.
fn trained(kind: &str, rule: Rule, offload: Offload, clip: Option<f64>, plain: bool) -> [Named; 2] {
    in_segments(kind, rule, offload, clip, plain, 0)
}

/// The same with segments of so many of the three blocks.
fn in_segments(
    kind: &str,
    rule: Rule,
    offload: Offload,
    clip: Option<f64>,
    plain: bool,
    blocks: usize,
) -> [Named; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind);
    let model = from_hugging_face(&folder).unwrap();
    let model = model.language().expect("a language model");
    let tuning = Tuning { trainable: Arc::new(rule), ..Tuning::default() };
    let table = model.table(DType::F32, &tuning);
    let used = if plain { Tuning::default() } else { tuning };
    let source = model.source(DEVICE, DType::F32, &used).unwrap();
    let checkpoint = Checkpoint { blocks, ..Checkpoint::default() };
    let computation = Computation::new(Arithmetic::of(Compute::Fp32), Ops::default(), checkpoint);
    let placement =
        Placement { offload, device: DEVICE, accumulates: true, updates: true, recomputes: blocks > 0 };
    let network = model.network(24, &source, computation, (Some(placement), None), Parts::Whole);
    let parts = (network.parameters().clone(), network.offloaded().cloned());
    let config = OptimizerConfig::AdamW(AdamW { lr: 1e-2, ..AdamW::default() });
    let mut residence = Residence::new(network, parts, &config, (placement, None), clip.is_some());
    let ids: Vec<i32> = (0..192).map(|i| i * 37 % 512).collect();
    let mut last = Named::new();
    for step in 0..3 {
        for part in ids.chunks(48) {
            let labels: Vec<i32> = part.iter().map(|id| (id + step) % 512).collect();
            let batch = on_device(Collated::of_rows(part.to_vec(), &labels, 2), DEVICE);
            let mut gradients = residence.network().loss(&batch).backward();
            if plain {
                residence.network().visit(&mut Dropping(&table, &mut gradients));
            }
            residence.add(gradients);
        }
        let clip = clip.map(|limit| clip_factor(residence.squares().sqrt(), limit));
        last = residence.gradients();
        residence.update(&StepSize { clip, ..StepSize::FULL });
    }
    let mut all = [residence.parameters(), last];
    all.iter_mut().for_each(|named| named.sort_by(|a, b| a.0.cmp(&b.0)));
    all
}

fn check(kind: &str) {
    for (number, rule) in RULES.into_iter().enumerate() {
        let trainable = |names: &Named| {
            let names = names.iter().map(|(name, _)| name.clone());
            names.collect::<Vec<_>>()
        };
        for optimizer in [Memory::Device, Memory::Host] {
            let offload = |strategy| Offload { optimizer, ..Offload::of(strategy) };
            let expected = trained(kind, rule, offload(Strategy::default()), None, true);
            assert!(expected[1].len() < expected[0].len() && !expected[1].is_empty());
            for blocks in 1..=4 {
                let found = in_segments(kind, rule, offload(Strategy::default()), None, false, blocks);
                assert_eq!(found, expected, "{} rule {number} {optimizer:?} segments of {blocks}", kind);
            }
            for strategy in Strategy::all() {
                let name = format!("{} rule {number} {optimizer:?} {strategy:?}", kind);
                let found = trained(kind, rule, offload(strategy), None, false);
                assert_eq!(trainable(&found[1]), trainable(&expected[1]), "{name}");
                for (ours, theirs) in found.iter().flatten().zip(expected.iter().flatten()) {
                    assert_eq!(ours, theirs, "{name}");
                }
            }
            // Of three blocks, which keep what backward needs or are computed again.
            let moving = Strategy::all().filter(|strategy| strategy.movement().is_some());
            let overlap = (Strategy::Overlap(Overlap::default()), (1, 1));
            for (strategy, (count, blocks)) in moving.zip([(1, 0), (1, 1), (3, 0), (2, 0)]).chain([overlap]) {
                let resident_blocks = ResidentBlocks::Count(count);
                let found = in_segments(
                    kind,
                    rule,
                    Offload { resident_blocks, ..offload(strategy) },
                    None,
                    false,
                    blocks,
                );
                let name = format!("rule {number} {optimizer:?} {strategy:?} {count} resident {blocks}");
                assert_eq!(found, expected, "{} {name}", kind);
            }
        }
    }
}

#[test]
fn frozen_parts_of_qwen2_stay_and_the_rest_trains_as_without_them() {
    check("qwen2");
}

#[test]
fn frozen_parts_of_gpt2_stay_and_the_rest_trains_as_without_them() {
    check("gpt2");
}

/// The norm that clips is over the trainable parameters alone.
#[test]
fn frozen_gradients_do_not_count_in_the_norm() {
    let of = |strategy, plain| trained("qwen2", RULES[0], Offload::of(strategy), Some(0.1), plain);
    let expected = of(Strategy::default(), true);
    assert_eq!(of(Strategy::default(), false), expected);
    for ((name, ours), (_, theirs)) in
        of(Strategy::Overlap(Overlap::default()), false)[0].iter().zip(&expected[0])
    {
        // Sums of squares are added in another order.
        assert!(ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-6), "{name}");
    }
}
