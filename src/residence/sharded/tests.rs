//! What each rank has, and that parts come together again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use burn::module::ParamId;
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::bucket::Bucket;
use super::regions::Regions;
use super::*;
use crate::optim::{AdamW, AdamW8bit, DeviceOptimizer, StepSize, squares};
use crate::params::table::{Entry, Group, Table};
use crate::residence::layout::Layout;
use crate::world::World;
use crate::world::tests::on_ranks;

const LONG: Duration = Duration::from_secs(20);

fn entry(name: &str, shape: &[usize], trainable: bool) -> Entry {
    Entry {
        name: name.into(),
        shape: shape.to_vec(),
        dtype: DType::F32,
        trainable,
        group: Group::Block(0),
        packed: false,
        split: None,
    }
}

/// A frozen matrix between trained parameters, of sizes that no number of ranks divides.
fn entries() -> Vec<Entry> {
    vec![
        entry("h.0.weight", &[37, 11], true),
        entry("h.0.frozen", &[41, 7], false),
        entry("h.0.bias", &[5], true),
        entry("h.0.other", &[29, 23], true),
    ]
}

fn layout() -> Layout {
    Layout::of(&entries(), "h.0.")
}

/// Element i of parameter p.
fn number(p: usize, i: usize) -> f32 {
    ((p * 7919 + i * 31) % 1009) as f32 * 0.01 - 3.0
}

fn numbers(p: usize, elements: usize) -> Vec<f32> {
    (0..elements).map(|i| number(p, i)).collect()
}

fn tensor(values: Vec<f32>) -> Tensor<1> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), (&Device::flex(), DType::F32))
}

fn values(layout: &Layout) -> HashMap<ParamId, Tensor<1>> {
    let parts = layout.parts.iter().enumerate();
    parts.map(|(p, part)| (part.id, tensor(numbers(p, part.elements())))).collect()
}

fn bucket(world: &World) -> Bucket {
    Bucket::new("block 0".into(), Arc::new(layout()), (DType::F32, &Device::flex()), world.all())
}

fn list(tensor: Tensor<1>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

#[test]
fn regions_divide_evenly_into_blocks_of_codes() {
    let layout = layout();
    for ranks in 1..=9 {
        let Regions { trained, frozen } = Regions::of(&layout, ranks);
        for region in [&trained, &frozen] {
            assert_eq!(region.own % 256, 0);
            let parts = &layout.parts[region.parts.clone()];
            let end = parts.last().map(|part| part.first + part.elements()).unwrap();
            assert_eq!(region.of_rank(0).start, parts[0].first);
            assert!((0..ranks).all(|place| region.of_rank(place).end == region.of_rank(place + 1).start));
            assert!(region.of_rank(ranks - 1).end >= end);
            // No part is larger than it must be.
            assert!(region.own * ranks < end - region.first + 256 * ranks);
        }
        assert_eq!((trained.parts.len(), frozen.parts.len()), (3, 1));
    }
}

#[test]
fn what_is_cut_comes_together_again() {
    for ranks in [2, 3, 5] {
        on_ranks(ranks, LONG, |world| {
            let bucket = bucket(world);
            let own = bucket.cut(&values(&bucket.layout));
            let gathered = bucket.parameters(bucket.gather(&own));
            for (p, part) in bucket.layout.parts.iter().enumerate() {
                let expected = numbers(p, part.elements());
                let own_part = |name: &str| own[usize::from(name == "frozen")].clone().map(Tensor::into_data);
                let whole = bucket.value(p, own_part);
                assert_eq!(whole.shape().to_vec(), part.shape);
                assert_eq!(whole.try_to_vec::<f32>().unwrap(), expected, "{} of {ranks}", part.name);
                let gathered = crate::ops::parameters::flat(gathered[p].clone());
                assert_eq!(list(gathered), expected, "{} of {ranks}", part.name);
            }
        });
    }
}

/// Two micro-batches on three ranks: the parts are the sums of all six, and one step of AdamW on the parts is that on the
/// whole.
#[test]
fn each_rank_updates_its_part_by_the_sums_of_all() {
    let scale = |rank: usize, batch: usize| 1.0 + rank as f32 + 10.0 * batch as f32;
    let (size, rule) = (StepSize::FULL, AdamW { lr: 0.1, ..AdamW::default() });
    let updated = on_ranks(3, LONG, |world| {
        let mut bucket = bucket(world);
        for batch in 0..2 {
            let gradients: Vec<_> = (0..3)
                .map(|p| {
                    let elements = bucket.layout.parts[p].elements();
                    (p, (tensor(numbers(p, elements)) * scale(world.rank(), batch)).into_dispatch())
                })
                .collect();
            bucket.reduce(gradients);
            bucket.settle();
        }
        let gradient = bucket.gradient().unwrap().into_dispatch();
        let squares = squares(vec![gradient]).into_scalar::<f32>();
        let mut optimizer = DeviceOptimizer::new(Box::new(rule.clone()));
        bucket.make_state(&mut optimizer);
        let [own, frozen] = bucket.cut(&values(&bucket.layout));
        let gradient = bucket.take_gradient().unwrap();
        let own = optimizer.update(bucket.id, own.unwrap(), gradient, &size);
        assert!(bucket.take_gradient().is_none());
        let gathered = bucket.parameters(bucket.gather(&[Some(own), frozen]));
        let parameter = |tensor| list(crate::ops::parameters::flat(tensor));
        (squares, gathered.into_iter().map(parameter).collect::<Vec<_>>())
    });
    let layout = layout();
    let sum: f32 = (0..3).flat_map(|rank| (0..2).map(move |batch| scale(rank, batch))).sum();
    let squares: f32 = updated.iter().map(|(squares, _)| squares).sum();
    let expected: f64 = (0..3)
        .flat_map(|p| numbers(p, layout.parts[p].elements()))
        .map(|number| f64::from(number * sum).powi(2))
        .sum();
    assert!((f64::from(squares) / expected - 1.0).abs() < 1e-5, "{squares} is not {expected}");
    let mut optimizer = DeviceOptimizer::new(Box::new(rule.clone()));
    for (p, part) in layout.parts.iter().enumerate() {
        let before = numbers(p, part.elements());
        let expected = match p < layout.trainable {
            true => {
                list(optimizer.update(ParamId::new(), tensor(before.clone()), tensor(before) * sum, &size))
            }
            false => before,
        };
        for (_, parameters) in &updated {
            let apart = parameters[p].iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-6, "{}: {apart}", part.name);
        }
    }
}

/// Of 16384 elements a rank of four has a quarter: two moments in fp32, or codes in whole blocks.
#[test]
fn a_rank_keeps_the_state_of_its_part() {
    let entries = [entry("h.0.weight", &[128, 128], true)];
    let kept = on_ranks(4, LONG, |world| {
        let layout = Arc::new(Layout::of(&entries, "h.0."));
        let bucket = Bucket::new("block 0".into(), layout, (DType::F32, &Device::flex()), world.all());
        let rules: [Box<dyn crate::optim::Rule>; 2] =
            [Box::new(AdamW::default()), Box::new(AdamW8bit(AdamW::default()))];
        rules.map(|rule| {
            let mut optimizer = DeviceOptimizer::new(rule);
            bucket.make_state(&mut optimizer);
            let mut bytes = 0;
            optimizer.visit(bucket.id, &mut |name, kept| {
                bytes += if name == "steps" { 0 } else { kept.bytes().len() };
            });
            bytes
        })
    });
    // Codes, and an fp32 number for each block of 256.
    assert_eq!(kept, [[2 * 4 * 4096, 2 * (4096 + 4 * 16)]; 4]);
}

/// Two blocks and an embedding on two ranks.
#[test]
fn bytes_follow_from_the_table() {
    let mut all = vec![entry("embed.weight", &[100, 8], true)];
    for block in 0..2 {
        all.push(entry(&format!("h.{block}.weight"), &[64, 64], true));
        all.push(entry(&format!("h.{block}.frozen"), &[64, 32], false));
    }
    let table = Table { entries: all };
    let sizes = |shard| ShardSizes::of(shard, 2, &table);
    let of = sizes(Shard::Weights);
    assert_eq!([of.blocks, of.trained, of.frozen, of.others], [2, 2048, 1024, 512]);
    // Gradients once, or for each of three micro-batches; weights once; those of blocks twice for each.
    let trained = 2 * 2048 + 512;
    assert_eq!(sizes(Shard::Optimizer).sent(4, 3), 4 * trained + 4 * trained);
    assert_eq!(sizes(Shard::Gradients).sent(4, 3), 3 * 4 * trained + 4 * trained);
    assert_eq!(sizes(Shard::Weights).sent(2, 3), 3 * 4 * trained + 2 * (2 * 3 * 2 * 3072 + 512));
    assert_eq!(of.gradients(), 4 * trained);
    assert_eq!(of.tensors().elements, trained);
}
