//! Makes the [`Measurement`] of a cell from the outcome of its steps.

use std::collections::BTreeMap;

use crate::common::DeviceId;
use crate::device::cuda::nccl;
use crate::measure::{FeatureDistance, Loading, Measured, Measurement, RankRecord, Samples};
use crate::measure::{GradientHistogram, ScalerRecord};
use crate::ops::{Operator, attention};
use crate::recipe::Cell;
use crate::train::training::Results;

/// The outcome of a cell's training.
pub struct Outcome {
    pub measured: Measured,
    pub results: Results,
    pub feature_distance: Option<FeatureDistance>,
    /// Seconds of all measured steps, by the host's clock.
    pub run_seconds: f64,
    /// In a cell with a sampler: its loading, and the sum of the squared lengths of its samples.
    pub loading: Option<(Loading, f64)>,
    pub gradient_norm: Option<f64>,
    pub gradient_histogram: Option<GradientHistogram>,
    /// Until the data was ready, and then the network.
    pub begin_seconds: [f64; 2],
    /// Steps after which the cell went on in another process.
    pub resumed: Vec<usize>,
    /// What could not be saved after the last step, and why.
    pub unsaved: Vec<String>,
    /// A record of each rank, if there are several.
    pub ranks: Vec<RankRecord>,
}

pub fn measurement(cell: &Cell, outcome: Outcome) -> Measurement {
    let Measured { seconds, losses, memory, crossings, noted, prepare_seconds } = outcome.measured;
    let Results { evaluations, answers, continuations, host_updates, graph, evaluation } = outcome.results;
    let ways = [("graph", graph.or_else(|| cell.launched_path())), ("evaluation", evaluation)];
    let run_seconds = outcome.run_seconds;
    let steps = seconds[0].len();
    let step = Samples::new((0..steps).map(|i| seconds.iter().map(|s| s[i]).sum()).collect());
    let [forward, backward, optimizer] = seconds.map(Samples::new);
    let backward = cell.train.mode.trains().then_some(backward);
    let (tokens_per_second, flops_per_second) = match &outcome.loading {
        // Steps differ in size: means over all of them, without padding.
        Some((loading, squares)) => {
            let flops = cell.flops_of(loading.tokens(), *squares);
            let all: f64 = step.seconds.iter().sum();
            (loading.tokens() as f64 / run_seconds, (flops.forward + flops.backward) / all)
        }
        None => {
            let flops = cell.flops();
            let tokens = (cell.train.tokens_of_a_step() * steps) as f64;
            (tokens / run_seconds, (flops.forward + flops.backward) / step.median)
        }
    };
    let moving = cell.model.decoder().filter(|_| cell.offload.moves());
    let resident_blocks = moving.map(|shape| cell.offload.resident_blocks.count(shape.layers));
    let host_update = (!host_updates.is_empty()).then(|| Samples::new(host_updates));
    // State on the disk is read and written once an update.
    let disk = 2.0 * cell.account().host.disk as f64;
    Measurement {
        tokens_per_second,
        run_seconds: outcome.loading.is_none().then_some(run_seconds),
        flops_per_second,
        optimizer: cell.train.optimizer.rule().map(|_| optimizer),
        disk_rate: host_update.as_ref().filter(|_| disk > 0.0).map(|update| disk / update.median),
        host_update,
        forward: Some(forward),
        backward,
        step,
        loss: losses,
        evaluations,
        answers,
        continuations,
        feature_distance: outcome.feature_distance,
        scaler: cell.precision.scaler.map(|config| ScalerRecord::new(config.first_scale(), &noted)),
        gradient_norm: outcome.gradient_norm,
        gradient_histogram: outcome.gradient_histogram,
        memory,
        resident_blocks,
        crossings,
        paths: paths(cell)
            .into_iter()
            .chain(ways.into_iter().filter_map(|(part, way)| Some((part.into(), way?))))
            .collect(),
        resumed: outcome.resumed,
        unsaved: outcome.unsaved,
        ranks: outcome.ranks,
        begin_seconds: Some(outcome.begin_seconds),
        prepare_seconds,
        loading: outcome.loading.map(|(loading, _)| loading),
    }
}

/// How each part of the work ran.
fn paths(cell: &Cell) -> BTreeMap<String, String> {
    let mut paths = cell.device_id().paths();
    if cell.device_id() != DeviceId::Cpu && !cell.parallel.is_alone() {
        let way = match nccl::version().filter(|_| cell.parallel.is_by_nccl(cell.device_id())) {
            Some(version) => format!("NCCL {version}"),
            None => "sockets, through the host's memory".into(),
        };
        paths.insert("ranks".into(), way);
    }
    let sampler = cell.data.sampler();
    if sampler.sampler.keeps_samples() {
        let way = match (cell.device_id(), sampler.pinned) {
            (DeviceId::Cpu, _) => "none, the CPU reads the host's memory",
            (_, true) => "one copy from page-locked memory",
            (_, false) => "a copy for each array from pageable memory",
        };
        paths.insert("batches".into(), way.into());
    }
    for (name, operator) in cell.chosen_operators() {
        let way = match (name, operator, cell.model.decoder()) {
            ("attention", _, Some(shape)) => {
                attention::path(cell.device_id(), cell.precision.compute, &cell.ops, shape.head_dim)
            }
            (_, Operator::Custom, _) => "hand-written backward, fused element-wise passes".into(),
            (_, Operator::Plain, _) => "composed of Burn's operators".into(),
        };
        paths.insert(name.into(), way);
    }
    if cell.offload.moves() {
        let stale = || cell.offload.is_stale_after(cell.operators().updated(&cell.workload()));
        let slots = match cell.train.mode.trains() {
            false => "filled in turn, forward after forward",
            true if stale() => "filled anew after each update",
            true => "blocks stay in them from one step to the next",
        };
        paths.insert("slots".into(), slots.into());
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Counts;
    use crate::measure::{Load, MemoryUse};
    use crate::recipe::{Recipe, Source};

    /// Two measured steps of 0.5 s forward, 1.5 s backward and 0.25 s optimizer in the median, with half a
    /// second between them.
    fn outcome() -> Outcome {
        let seconds = [vec![0.375, 0.625], vec![1.5, 1.5], vec![0.25, 0.25]];
        let measured = Measured { seconds, memory: MemoryUse::default(), ..Measured::default() };
        Outcome {
            measured,
            results: Results::default(),
            feature_distance: None,
            run_seconds: 5.0,
            loading: None,
            gradient_norm: None,
            gradient_histogram: None,
            begin_seconds: [0.0; 2],
            resumed: Vec::new(),
            unsaved: Vec::new(),
            ranks: Vec::new(),
        }
    }

    fn cell(model: &str, more: &str) -> Cell {
        let text = format!(
            "title = \"t\"\ndevice = \"cpu\"\n[model]\n{model}[train]\nbatch_size = 3\nseq_len = 5\n\
             accumulation_steps = 4\n{more}"
        );
        let source = Source { path: "r.toml".into(), text };
        Recipe::parse(&source).expect("a recipe").cells.remove(0)
    }

    const SWIGLU: &str =
        "kind = \"swiglu\"\nhidden_size = 7\nintermediate_size = 13\nnum_hidden_layers = 2\n";
    const GPT2: &str = "kind = \"gpt2\"\nvocab_size = 300\nhidden_size = 8\nnum_hidden_layers = 2\n\
                        num_attention_heads = 2\nmax_position_embeddings = 16\n";

    /// Four micro-batches of 15 tokens in each of two steps, which take 5 s; one takes 2.25 s with its update.
    #[test]
    fn rates_are_those_of_whole_steps() {
        let swiglu = measurement(&cell(SWIGLU, ""), outcome());
        assert_eq!(swiglu.paths["graph"], "none: the CPU has no CUDA graphs");
        assert_eq!(swiglu.tokens_per_second, 120.0 / 5.0);
        assert_eq!(swiglu.step.median, 2.25);
        // Three products forward and six backward, a multiply-add counted as two.
        assert_eq!(swiglu.flops_per_second, f64::from(2 * 9 * 60 * 7 * 13 * 2) / 2.25);

        let gpt2 = measurement(&cell(GPT2, ""), outcome());
        assert_eq!(gpt2.tokens_per_second, 120.0 / 5.0);
        // 12 matrices of 8 x 8 in a layer, the head, and 4 · 5 · 8 a token for attention, half of it masked.
        let forward = 60 * (2 * (12 * 64 * 2 + 300 * 8) + 2 * 5 * 8 * 2);
        assert_eq!(gpt2.flops_per_second, f64::from(3 * forward) / 2.25);
    }

    /// With samples the rates are of the real tokens: 40 and 20 of them in 5 s.
    #[test]
    fn rates_of_samples_leave_padding_out() {
        let data = "[data]\ncorpus = \"generated\"\nvocab_size = 300\nsampler = \"standard\"\n";
        let load = |tokens, squares| Load {
            counts: Counts { tokens, squares, padding: 1000, ..Counts::default() },
            stall: 0.0,
        };
        let loading = Loading::new(5.0, &[load(40, 200), load(20, 100)]);
        let outcome = Outcome { loading: Some((loading, 300.0)), ..outcome() };
        let measured = measurement(&cell(GPT2, data), outcome);
        assert_eq!(measured.tokens_per_second, 12.0);
        let forward = 60 * 2 * (12 * 64 * 2 + 300 * 8) + 2 * 300 * 8 * 2;
        // Both steps together: 1 s forward, 3 s backward and 0.5 s of updates.
        assert_eq!(measured.flops_per_second, f64::from(3 * forward) / 4.5);
    }
}
