//! Advice on small cells: what it searches, what it says fits, and in which order.

use super::plan::host_base;
use super::*;
use crate::common::{Compute, DeviceId};
use crate::recipe::{Recipe, Source};

pub(super) const SMALL: &str = "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"qwen2\"\nvocab_size = 101\nhidden_size = 32\n\
    intermediate_size = 64\nnum_hidden_layers = 4\nnum_attention_heads = 4\nnum_key_value_heads = 2\n[train]\n\
    batch_size = 8\nseq_len = 16\noptimizer = { kind = \"adamw\", lr = 1e-3 }\n";

pub(super) fn cell(text: &str) -> Cell {
    let source = Source { path: "r.toml".into(), text: text.into() };
    Recipe::parse(&source).expect("a recipe").cells.remove(0)
}

/// On two cores, of the ways to train one cell by its own method.
fn advice_within(limits: Limits, kept: &[&str]) -> Advice {
    let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
    let rates = Rates::assumed(DeviceId::Cpu);
    let place = Place { target: &Target::Here, limits, rates: Some(&rates) };
    let cell = cell(SMALL);
    let types = precisions(&cell, &Target::Here, false).into_iter();
    let variants: Vec<Cell> = types.map(|precision| Cell { precision, ..cell.clone() }).collect();
    advise(&cell, &variants, place, &kept)
}

fn advice(memory: u64, kept: &[&str]) -> Advice {
    advice_within(Limits { memory, host_memory: None }, kept)
}

#[test]
fn every_way_trains_the_same_sequences_and_is_permitted() {
    let cell = cell(SMALL);
    let all = candidates(&cell, &Target::Here, &[]);
    assert!(all.len() > 200 && all.contains(&cell), "{} ways", all.len());
    for (i, candidate) in all.iter().enumerate() {
        assert_eq!(candidate.train.batch_size * candidate.train.accumulation_steps, 8);
        assert!(!all[..i].contains(candidate), "twice: {:?}", candidate.settings());
    }
}

#[test]
fn keys_that_are_kept_stay_and_without_others_there_is_one_way() {
    let cell = cell(SMALL);
    let kept = ["tuning", "precision", "checkpoint", "train", "offload"].map(String::from);
    assert_eq!(candidates(&cell, &Target::Here, &kept), std::slice::from_ref(&cell));
    let asked = Asked { kept: kept.to_vec(), ..Asked::default() };
    assert_eq!(variants(&cell, &Target::Here, &asked), Ok(vec![cell.clone()]));
    // A key within an axis keeps all of it.
    let within = ["tuning.method", "precision.compute", "train.optimizer.lr"].map(String::from);
    let asked = Asked { kept: within.to_vec(), ..Asked::default() };
    assert_eq!(variants(&cell, &Target::Here, &asked), Ok(vec![cell.clone()]));
    let one = ["checkpoint", "offload"].map(String::from);
    let batches: Vec<usize> =
        candidates(&cell, &Target::Here, &one).iter().map(|cell| cell.train.batch_size).collect();
    assert_eq!(batches, [1, 2, 4, 8]);
}

#[test]
fn what_fits_comes_the_fastest_first_and_the_rest_by_what_it_needs() {
    let everything = advice(u64::MAX / 2, &[]);
    assert!(everything.others.is_empty());
    let need = |plan: &Plan| plan.memory();
    let (least, most) = (
        everything.fitting.iter().map(need).min().expect("some"),
        everything.fitting.iter().map(need).max().expect("some"),
    );
    let middle = advice(u64::midpoint(least, most), &[]);
    assert!(!middle.fitting.is_empty() && !middle.others.is_empty());
    let times: Vec<f64> = middle.fitting.iter().map(|plan| plan.seconds().expect("rates")).collect();
    assert!(times.is_sorted());
    assert!(middle.others.iter().map(need).is_sorted());
    // The least that would do does.
    let none = advice(1000, &[]);
    assert!(none.fitting.is_empty());
    let enough = none.others[0].memory();
    assert!(!advice(enough, &[]).fitting.is_empty());
    assert!(advice(enough - enough / 50, &[]).fitting.iter().all(|plan| plan.memory() < enough));
}

/// Small steps wait for the host, which launches a graph by one call.
#[test]
fn a_gpu_is_advised_a_graph_where_steps_are_small() {
    let target: Target = "cuda, 80 GiB, sm_90".parse().expect("a device");
    let text = SMALL.replace("device = \"cpu\"", "device = \"cuda:0\"") + "[measure]\nwarmup = 1\n";
    let source = Source { path: "r.toml".into(), text };
    let cell = Recipe::parse_for(&source, &target).expect("a recipe").cells.remove(0);
    let limits = Limits { memory: u64::MAX / 2, host_memory: None };
    let advice = |kept: &[String]| {
        let rates = Rates::assumed(DeviceId::Cuda(0));
        let place = Place { target: &target, limits, rates: Some(&rates) };
        advise(&cell, std::slice::from_ref(&cell), place, kept).fitting
    };
    let first = &advice(&[])[0].cell;
    assert_eq!((first.train.graph, first.measure.warmup), (true, 2));
    assert!(advice(&["train.graph".into()]).iter().all(|plan| !plan.cell.train.graph));
}

pub(super) fn cell_for(target: &Target, more: &str) -> Cell {
    let text = SMALL.replace("device = \"cpu\"", "device = \"cuda:0\"") + more;
    let source = Source { path: "r.toml".into(), text };
    Recipe::parse_for(&source, target).expect("a recipe").cells.remove(0)
}

/// Those of every variant of all parameters.
fn all_candidates(cell: &Cell, target: &Target) -> Vec<Cell> {
    let asked = Asked { kept: vec!["tuning".into()], optimizers: vec![], methods: vec![] };
    let variants = variants(cell, target, &asked).expect("all kinds are known");
    variants.iter().flat_map(|variant| candidates(variant, target, &[])).collect()
}

/// On a GPU without bf16 products are in fp16, and every fp16 step has a scaler wherever its blocks are.
#[test]
fn turing_is_advised_fp16_with_a_scaler() {
    let [turing, ampere]: [Target; 2] =
        ["cuda, 8 GiB, sm_75", "cuda, 24 GiB, sm_86"].map(|text| text.parse().expect("a device"));
    let of = all_candidates;
    for more in [
        "[measure]\nwarmup = 1\n",
        "[precision]\ncompute = \"bf16\"\nautocast = true\n",
        "[precision]\ncompute = \"bf16\"\n",
    ] {
        let cell = cell_for(&ampere, more);
        let all = of(&cell, &turing);
        let half: Vec<&Cell> = all.iter().filter(|cell| cell.precision.compute == Compute::Fp16).collect();
        assert!(half.iter().all(|cell| cell.precision.autocast && cell.precision.scaler.is_some()));
        for (moves, host) in itertools::iproduct!([false, true], [Memory::Device, Memory::Host]) {
            let is = |cell: &&&Cell| cell.offload.moves() == moves && cell.offload.optimizer == host;
            assert!(half.iter().any(|cell| is(&cell)), "{more}: none with {moves} and {host:?}");
        }
        assert!(all.iter().all(|cell| matches!(cell.precision.compute, Compute::Fp16 | Compute::Fp32)));
        assert!(of(&cell, &ampere).iter().all(|cell| cell.precision.compute != Compute::Fp16), "{more}");
    }
    // Without an update there is nothing to scale, and a forward alone has no gradients.
    let optimizer = "optimizer = { kind = \"adamw\", lr = 1e-3 }\n";
    for (mode, half) in [("", false), ("mode = \"inference\"\n", true)] {
        let text = SMALL.replace("device = \"cpu\"", "device = \"cuda:0\"").replace(optimizer, mode);
        let source = Source { path: "r.toml".into(), text: text + "[measure]\nwarmup = 1\n" };
        let cell = Recipe::parse_for(&source, &turing).expect("a recipe").cells.remove(0);
        let fp16 = |cell: &Cell| cell.precision.compute == Compute::Fp16 && cell.precision.scaler.is_none();
        assert_eq!(of(&cell, &turing).iter().any(fp16), half, "{mode}");
    }
}

/// What the recipe itself trains in fp16 without a scaler stays, and the same with one stands beside it.
#[test]
fn fp16_without_a_scaler_is_the_recipes_own_choice() {
    let turing: Target = "cuda, 8 GiB, sm_75".parse().expect("a device");
    for autocast in ["", "autocast = true\n"] {
        let cell = cell_for(&turing, &format!("[precision]\ncompute = \"fp16\"\n{autocast}"));
        let all = all_candidates(&cell, &turing);
        let with = |scaled: bool| all.iter().filter(|cell| cell.precision.scaler.is_some() == scaled).count();
        assert!(with(true) > 0 && with(false) > 0);
        assert!(all.iter().all(|other| other.precision.autocast == cell.precision.autocast));
        assert!(all.iter().all(|cell| is_unscaled(cell) == cell.precision.scaler.is_none()));
        assert!(candidates(&cell, &turing, &[]).iter().all(|other| other.precision == cell.precision));
        assert_eq!(precisions(&cell, &turing, true), [cell.precision]);
    }
}

/// The update waits for the sum of squares, as a clipped one does.
#[test]
fn a_scaler_takes_the_time_of_clipping() {
    let target: Target = "cuda, 8 GiB, sm_75".parse().expect("a device");
    let rates = Rates::assumed(DeviceId::Cuda(0));
    let time = |clip: &str, scaler: &str| {
        let host = "strategy = \"overlap\"\noptimizer = \"host\"\n";
        let fp16 = "[precision]\ncompute = \"fp16\"\nautocast = true\n";
        step_time(&cell_for(&target, &format!("{clip}{fp16}{scaler}[offload]\n{host}")), &rates).total()
    };
    let (clip, scaler) = ("clip_norm = 1.0\n", "scaler = { kind = \"dynamic\" }\n");
    assert!(time("", scaler) > time("", ""));
    assert_eq!(time("", scaler), time(clip, ""));
}

/// Where all blocks stay, slots and strategies make no difference, and where none has room `auto` is 0.
#[test]
fn ways_that_come_to_the_same_are_listed_once() {
    let all = advice(u64::MAX / 2, &[]).fitting;
    let of = |plan: &Plan| (way(&plan.cell), format!("{:?}", plan.cell.precision));
    assert_eq!(all.iter().map(of).unique().count(), all.len());
    let resident = |plan: &&Plan| {
        plan.cell.offload.moves() && plan.cell.offload.resident_blocks == ResidentBlocks::Count(4)
    };
    // Segments decide whether resident blocks are computed again, and nothing where every block moves.
    let moving = |count: usize, blocks: usize| {
        let is_of = |plan: &&Plan| {
            plan.cell.offload.moves()
                && plan.cell.offload.resident_blocks == ResidentBlocks::Count(count)
                && plan.cell.checkpoint.blocks == blocks
        };
        all.iter().filter(is_of).count()
    };
    assert!(moving(0, 0) > 0 && moving(0, 1) == 0 && moving(4, 0) > 0 && moving(4, 1) > 0);
    let kept: Vec<&Plan> = all.iter().filter(resident).collect();
    assert!(!kept.is_empty());
    for plan in kept {
        assert_eq!(plan.cell.offload.strategy, Strategy::Overlap(Overlap { buffers: 2 }));
        assert_eq!(plan.cell.offload.activations, Memory::Device);
    }
}

/// A slower card takes longer, and a described device that is no card has no times.
#[test]
fn cards_of_the_table_have_times() {
    let step = |card: &str| {
        let target: Target = card.parse().expect("a device");
        let text = SMALL.replace("device = \"cpu\"", "device = \"cuda:0\"");
        let text =
            text.replace("hidden_size = 32", "hidden_size = 1024").replace("seq_len = 16", "seq_len = 512");
        let text = text + "[precision]\ncompute = \"bf16\"\nautocast = true\n";
        let recipe = Recipe::parse_for(&Source { path: "r.toml".into(), text }, &target).expect("a recipe");
        let rates = Rates::measure(&target, DeviceId::Cuda(0), &[])?;
        let time = step_time(&recipe.cells[0], &rates);
        Some(time.total() - time.launches)
    };
    let times: Vec<f64> =
        ["b200", "h200", "h100 pcie", "rtx 3090", "rtx 3060"].map(|card| step(card).unwrap()).into();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(step("cuda, 12 GiB, sm_86"), None);
}

/// Rates of another device say nothing about this one.
#[test]
fn without_rates_there_are_no_times_and_less_work_comes_first() {
    let limits = Limits { memory: u64::MAX / 2, host_memory: None };
    let target: Target = "cpu, 64 GiB".parse().expect("a device");
    assert!(Rates::measure(&target, DeviceId::Cpu, &[]).is_none());
    let cell = cell(SMALL);
    let place = Place { target: &target, limits, rates: None };
    let Advice { fitting, .. } = advise(&cell, std::slice::from_ref(&cell), place, &[]);
    assert!(fitting.iter().all(|plan| plan.seconds().is_none() && plan.tokens_per_second().is_none()));
    let work = |plan: &Plan| StepWork::new(&Costs::new(&plan.cell).load(&plan.cell));
    assert!(fitting.iter().map(work).is_sorted());
    let first = &fitting[0].cell;
    assert!(!first.offload.moves() && first.checkpoint.blocks == 0 && first.train.accumulation_steps == 1);
}

#[test]
fn a_limit_on_the_host_refuses_what_waits_there() {
    let limits = Limits { memory: u64::MAX / 2, host_memory: Some(host_base(DeviceId::Cpu) + 400_000) };
    let advice = advice_within(limits, &[]);
    assert!(
        advice.others.iter().all(|plan| plan.lacks(limits) == Lacks { memory: false, host_memory: true })
    );
    assert!(advice.others.iter().any(|plan| plan.cell.offload.moves()));
}

/// Recomputation, copies that nothing hides and more launches take time; less work does not.
#[test]
fn the_model_of_time_orders_what_is_known() {
    let rates = Rates::assumed(DeviceId::Cuda(0));
    let time = |more: &str| {
        let text = SMALL
            .replace("device = \"cpu\"", "device = \"cuda:0\"")
            .replace("hidden_size = 32", "hidden_size = 1024");
        let source = Source { path: "r.toml".into(), text: format!("{text}{more}") };
        let target: Target = "cuda, 80 GiB".parse().expect("a device");
        let recipe = Recipe::parse_for(&source, &target).expect("a recipe");
        step_time(&recipe.cells[0], &rates).total()
    };
    let plain = time("");
    assert!(time("[checkpoint]\nblocks = 1\n") > plain);
    let overlap = time("[offload]\nstrategy = \"overlap\"\n");
    assert!(overlap > plain && time("[offload]\nstrategy = \"naive\"\n") > overlap);
    assert!(time("[offload]\noptimizer = \"host\"\n") > plain);
    let resident =
        |count: usize| time(&format!("[offload]\nstrategy = \"overlap\"\nresident_blocks = {count}\n"));
    assert!(resident(3) <= resident(1));
}

/// A card without products of bf16 is advised fp16 with a scale.
#[test]
fn advice_is_in_types_that_the_card_has() {
    let types = |card: &str| {
        let target: Target = card.parse().expect("a device");
        let text = SMALL.replace("device = \"cpu\"", "device = \"cuda:0\"");
        let source = Source { path: "r.toml".into(), text };
        let cell = Recipe::parse_for(&source, &target).expect("a recipe").cells.remove(0);
        let all = all_candidates(&cell, &target);
        let of = |cell: &Cell| (cell.precision.compute, cell.precision.scaler.is_some());
        all.iter().map(of).unique().collect::<Vec<_>>()
    };
    let (fp32, fp16, bf16) = ((Compute::Fp32, false), (Compute::Fp16, true), (Compute::Bf16, false));
    assert_eq!(types("cuda, 80 GiB, sm_90"), vec![fp32, bf16]);
    assert_eq!(types("cuda, 8 GiB, sm_75"), vec![fp32, fp16]);
    assert_eq!(types("cuda, 11 GiB, sm_61"), vec![fp32, fp16]);
}
