//! Stages on several ranks train as one process does, whatever the schedule.

use std::collections::HashMap;

use burn::tensor::{Tensor, TensorData};

use super::*;
use crate::data::Share;
use crate::model::language::Decoder;
use crate::optim::GradientSet;
use crate::parallel::Groups;
use crate::parallel::schedule::pipeline::Schedule;
use crate::params::named::Named;
use crate::params::table::{Group, id};
use crate::recipe::{Cell, Recipe, Source};
use crate::train::change::{self, Change};

type Network = Decoder;

/// Three steps of four micro-batches through `layers` blocks.
fn cell(layers: usize, model: &str, train: &str, pipeline: &str) -> Cell {
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"gpt2\"\nvocab_size = 50\nhidden_size = 8\n\
         num_hidden_layers = {layers}\nnum_attention_heads = 2\nmax_position_embeddings = 8\n{model}\n[train]\n\
         batch_size = 4\nseq_len = 8\n{train}\n[measure]\nsteps = 3\n{pipeline}\n"
    );
    let source = Source { path: "r.toml".into(), text };
    Recipe::parse(&source).unwrap_or_else(|e| panic!("{e:?}")).cells.remove(0)
}

fn pipeline(keys: &str) -> String {
    format!("[parallel.pipeline]\nmicro_batches = 4\n{keys}\n")
}

/// The largest distance between parameters of the same name, and between losses.
fn apart(ours: &Change, after: &Named, losses: &[f64]) -> f64 {
    assert_eq!((ours.after.len(), ours.losses.len()), (after.len(), losses.len()));
    let of: HashMap<_, _> = after.iter().map(|(name, values)| (name, values)).collect();
    let parameters = ours.after.iter().flat_map(|(name, values)| values.iter().zip(of[name]));
    let all = parameters.chain(ours.losses.iter().zip(losses));
    all.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

const SGD: &str = "optimizer = { kind = \"sgd\", lr = 0.5 }";

#[test]
fn every_schedule_trains_as_one_process_does() {
    let written = "stages = 2\nschedule = \"written\"\nactions = \"0F0 0F1 0F2 0F3 0B1 0B0 0B2 0B3; \
                   1F0 1F1 1B1 1B0 1F2 1B2 1F3 1B3\"";
    let interleaved = "stages = 2\nschedule = \"interleaved\"\nchunks = 2";
    for (layers, train, keys) in [
        (3, "clip_norm = 0.1", "stages = 2\nschedule = \"gpipe\""),
        (5, "clip_norm = 0.1", "stages = 4\nschedule = \"gpipe\""),
        (3, "clip_norm = 0.1", "stages = 2\nschedule = \"1f1b\""),
        (5, "", "stages = 4\nschedule = \"1f1b\""),
        (5, "clip_norm = 0.1", interleaved),
        (2, "", written),
    ] {
        let train = format!("{SGD}\n{train}");
        for model in ["", "tie_word_embeddings = false"] {
            let one = change::change(&cell(layers, model, &train, ""), None);
            let moved: f64 = one
                .before
                .iter()
                .zip(&one.after)
                .flat_map(|(a, b)| a.1.iter().zip(&b.1))
                .map(|(a, b)| (a - b).abs())
                .sum();
            assert!(moved > 0.5, "{moved}");
            let ours = change::change(&cell(layers, model, &train, &pipeline(keys)), None);
            let distance = apart(&ours, &one.after, &one.losses);
            assert!(distance < 2e-6, "{distance} with {keys} {model}");
        }
    }
}

/// Blocks that are computed again, and stages of GPipe that are.
#[test]
fn checkpointed_stages_train_as_one_process_does() {
    for (keys, blocks) in
        [("schedule = \"gpipe\"", 1), ("schedule = \"gpipe\"", 8), ("schedule = \"1f1b\"", 1)]
    {
        let checkpoint = format!("[checkpoint]\nblocks = {blocks}\n");
        let one = change::change(&cell(5, "", SGD, &checkpoint), None);
        let text = format!("{checkpoint}{}", pipeline(&format!("stages = 2\n{keys}")));
        let ours = change::change(&cell(5, "", SGD, &text), None);
        let distance = apart(&ours, &one.after, &one.losses);
        assert!(distance < 2e-6, "{distance} with {keys} {blocks}");
    }
}

/// Three steps of one process whose micro-batches compute as PipeDream's stages do: micro-batch j of a step computes stage
/// r of p with the weights of update j − (p − 1 − r) of that step. The parameters after them, and their losses.
fn delayed(cell: &Cell, layers: usize) -> (Named, Vec<f64>) {
    let shape = cell.parallel.pipeline.as_ref().expect("a pipeline").shape();
    let stages = shape.stages();
    let mut alone = cell.of_micro_batches();
    alone.parallel = Default::default();
    let mut feed = Network::feed(&alone, Share::WHOLE);
    let mut step = Step::<Network>::new(&alone, &alone, &Groups::alone(), 3, 0);
    let stage_of = |group| match group {
        Group::Block(i) => (0..stages).find(|s| shape.blocks(*s, layers).contains(&i)).expect("a stage"),
        Group::Norm | Group::Head => stages - 1,
        _ => 0,
    };
    let table = step.stage.residence.table().clone();
    let stage_of: HashMap<String, usize> =
        table.entries.iter().map(|entry| (entry.name.clone(), stage_of(entry.group))).collect();
    let mut losses = Vec::new();
    let mut newest = step.stage.residence.parameters();
    for _ in 0..3 {
        let (batches, mut versions, mut loss) = (feed.next(), vec![newest.clone()], 0.0);
        for (j, batch) in batches.iter().enumerate() {
            let version = |name: &str| j.saturating_sub(stages - 1 - stage_of[name]);
            let mixed = (0..newest.len()).map(|i| {
                let name = &newest[i].0;
                let values: Vec<f32> = versions[version(name)][i].1.iter().map(|v| *v as f32).collect();
                let count = values.len();
                let device = alone.device_id().burn();
                (id(name), Tensor::<1>::from_data(TensorData::new(values, [count]), &device))
            });
            step.stage.residence.replace(mixed.collect());
            loss += f64::from(step.stage.forward(0, batch).into_scalar::<f32>());
            let gradients = step.stage.backward(0, None);
            step.stage.residence.add(gradients);
            let found: HashMap<String, Vec<f64>> = step.stage.residence.gradients().into_iter().collect();
            *step.stage.residence.gradient_set() = GradientSet::default();
            for (name, values) in &mut newest {
                let rate = 0.5 * batches.len() as f64;
                values.iter_mut().zip(&found[name]).for_each(|(v, g)| *v -= rate * g);
            }
            versions.push(newest.clone());
        }
        losses.push(loss);
    }
    (newest, losses)
}

/// Forward and backward of a micro-batch have the same weights, and a stage's own are then those of one more update.
#[test]
fn pipedream_equals_one_process_with_the_same_delays() {
    for (layers, stages) in [(3, 2), (4, 4)] {
        let keys = format!("stages = {stages}\nschedule = \"pipedream\"");
        let mut cell = cell(layers, "tie_word_embeddings = false", SGD, &pipeline(&keys));
        let (newest, losses) = delayed(&cell, layers);
        let distance = apart(&change::change(&cell, None), &newest, &losses);
        assert!(distance < 5e-6, "{distance} with {stages} stages");
        cell.parallel.pipeline.as_mut().expect("a pipeline").schedule = Schedule::OneFOneB;
        let without = change::change(&cell, None);
        assert!(apart(&without, &newest, &losses) > 1e-3, "updates make a difference");
    }
}
