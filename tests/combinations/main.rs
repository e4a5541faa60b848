//! Any two settings that a recipe accepts together: three steps change the weights as the plain way does.
//!
//! ```text
//! cargo test --test combinations                                             # on the CPU
//! cargo test --release --test combinations -- --ignored --nocapture gpu      # on a GPU
//! ```
//! `RUNNER_COMBINATIONS` says how many are trained, as `2000`, or which of them, as `17..18` or `17,900..2000`. On one kind
//! of device a number means the same combination whatever is chosen. Models that came later have the numbers from 2000 on.
//!
//! Settings that only move data, or compute a block again as it was, must give the same bits. Where the order of additions
//! differs none can: their steps may differ as far as those from weights of which one has another last bit, times a factor.
//! The others are held to the rounding of their
//! precision, in units of how far the steps moved each weight. On a GPU, where the plain way itself is further from fp32 than
//! that, they must be as near to fp32 as it.

mod combination;
mod compare;
mod draw;
#[macro_use]
mod factors;
mod models;
mod plain;
mod refusals;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use runner::device::{Feature, cuda};
use runner::recipe::{Recipe, Source};
use runner::train::{Damage, change};

use combination::Combination;
use compare::{as_near, equal_bits, within_rounding};
use draw::{LATER, draw, mend};
use plain::{Plain, trained};
use refusals::REFUSALS;

/// Of the 7656 pairs of choices that go together 7585 meet in these.
const ON_THE_CPU: usize = 160;
/// Those of models that came later.
const LATER_ON_THE_CPU: usize = 120;
const ON_A_GPU: usize = 2000;
const LATER_ON_A_GPU: usize = 600;

static GPU: AtomicBool = AtomicBool::new(false);
/// Random numbers of a device come from one seed: cells train one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn on_gpu() -> bool {
    GPU.load(Ordering::Relaxed)
}

/// Whether the GPU, or what `RUNNER_CAPABILITY` takes it for, has no products of bf16 and TF32.
fn lacks_bf16() -> bool {
    on_gpu() && cuda::count() > 0 && !cuda::capability(0).has(Feature::Bf16Products)
}

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What is wrong with a combination.
fn compared(combination: &Combination, plain: &mut Plain, damage: Option<Damage>) -> Result<(), String> {
    let ours = trained(combination, plain.device, damage)?;
    let (at_rest, allowed) = (combination.at_rest(), compare::allowed(combination));
    if at_rest != *combination || damage.is_some() {
        let reference = plain.of(&at_rest).map_err(|e| format!("at rest: {e}"))?;
        match combination.adds_in_one_order() {
            true => equal_bits(&ours, &reference),
            false if combination.rounds_by_place() => within_rounding(&ours, &reference, allowed),
            false => within_rounding(&ours, &reference, plain.other_order(&at_rest, &reference)?),
        }
        .map_err(|e| format!("against the same at rest: {e}"))?;
    }
    let by_hand = combination.by_hand();
    let reference = plain.of(&by_hand).map_err(|e| format!("the plain way ({by_hand}): {e}"))?;
    let Err(far) = within_rounding(&ours, &reference, allowed) else { return Ok(()) };
    let far = format!("against the plain way: {far}");
    // fp32 skips no step.
    if !on_gpu() || combination.is("precision", "fp32") || combination.is("scaler", "skipping") {
        return Err(far);
    }
    let exact = plain.of(&by_hand.in_fp32()).map_err(|e| format!("in fp32: {e}"))?;
    as_near(&ours, &reference, &exact, allowed).map_err(|e| format!("{far}; against fp32: {e}"))?;
    eprintln!("as near to fp32 as the plain way: {combination}\n  {far}");
    Ok(())
}

/// The numbers of the combinations that are trained.
fn chosen(first: usize, later: usize) -> Vec<usize> {
    let usual = (0..first).chain(LATER..LATER + later);
    let Ok(text) = std::env::var("RUNNER_COMBINATIONS") else { return usual.collect() };
    let number = |text: &str| -> usize {
        let form = "RUNNER_COMBINATIONS is how many, as 2000, or which, as 17,900..2000";
        text.trim().parse().unwrap_or_else(|_| panic!("{form}, and not {text:?}"))
    };
    if let Ok(count) = text.trim().parse() {
        return (0..count).collect();
    }
    let part = |part: &str| match part.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(part)..number(part) + 1,
    };
    let numbers: Vec<usize> = text.split(',').flat_map(part).collect();
    assert!(!numbers.is_empty(), "RUNNER_COMBINATIONS = {text:?} chooses none");
    numbers
}

fn all(device: &'static str, numbers: &[usize]) {
    let _alone = alone();
    let mut wrong: Vec<String> = Vec::new();
    let mut check = |combination: &Combination| {
        let text = combination.cell(device).err().map(|e| e.to_string());
        let listed: Vec<&str> =
            REFUSALS.iter().filter(|r| (r.refused)(combination)).map(|r| r.message).collect();
        if !text.as_ref().is_some_and(|text| listed.iter().any(|message| text.contains(message))) {
            wrong.push(format!("{combination}\n  should be refused ({listed:?}) and gives {text:?}"));
        }
    };
    let drawn = draw(7, numbers, &mut check);
    let mut plain = Plain::on(device);
    for (done, (number, combination)) in numbers.iter().zip(&drawn).enumerate() {
        if done % 100 == 99 {
            eprintln!("{} of {}", done + 1, numbers.len());
        }
        if let Err(e) = compared(combination, &mut plain, None) {
            eprintln!("{number}: {combination}\n  {e}");
            wrong.push(format!("{number}: {combination}\n  {e}"));
        }
    }
    let trained = numbers.len() + plain.known.len();
    eprintln!("{} combinations, {trained} trainings, {} wrong", numbers.len(), wrong.len());
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), numbers.len(), wrong.join("\n"));
}

/// Those of many more combinations are all that go together.
#[test]
fn nearly_all_pairs_of_choices_meet() {
    let _alone = alone();
    let met = |numbers: Range<usize>| draw::met(&draw(7, &numbers.collect::<Vec<_>>(), |_| ()));
    let [drawn, all] = [ON_THE_CPU, 600].map(|count| met(0..count));
    eprintln!("{drawn} of {all} pairs meet");
    assert!(drawn as f64 > 0.99 * all as f64, "{drawn} of {all} pairs meet: draw more");
}

#[test]
fn every_combination_trains_as_the_plain_way_does() {
    all("cpu", &chosen(ON_THE_CPU, LATER_ON_THE_CPU));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gpu_every_combination_trains_as_the_plain_way_does() {
    GPU.store(true, Ordering::Relaxed);
    all("cuda:0", &chosen(ON_A_GPU, LATER_ON_A_GPU));
}

/// Segments that do not divide the five layers, and one of more than there are, in every family: under autocast with
/// kept casts, at a level, clipped.
fn segments(device: &'static str) {
    let _alone = alone();
    let clipped = [("layers", "5"), ("accumulation", "2"), ("clip", "hard")];
    let mut wrong = Vec::new();
    for (model, more) in [
        ("llama", &[("level", "0.5"), ("precision", "bf16"), ("autocast", "on")][..]),
        ("qwen2", &[("level", "1"), ("width", "56")]),
        ("gpt2", &[("precision", "fp16"), ("autocast", "on"), ("scaler", "dynamic")]),
        ("gpt2 with sinusoids", &[("data", "packed"), ("width", "100")]),
        ("swiglu", &[("level", "0.5")]),
    ] {
        let plain = mend(example(&[&[("model", model)], &clipped[..], more].concat()));
        let cell = |blocks: usize| {
            let mut cell = plain.cell(device).unwrap_or_else(|e| panic!("{e}"));
            cell.checkpoint.blocks = blocks;
            cell
        };
        let reference = change(&cell(0), None);
        for blocks in [1, 2, 3, 7] {
            let ours = change(&cell(blocks), None);
            wrong.extend(
                equal_bits(&ours, &reference).err().map(|e| format!("{model} in segments of {blocks}: {e}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn segments_of_blocks_train_as_blocks_that_keep_all() {
    segments("cpu");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gpu_segments_of_blocks_train_as_blocks_that_keep_all() {
    GPU.store(true, Ordering::Relaxed);
    segments("cuda:0");
}

/// Classifiers of a task, which every method trains, with their blocks elsewhere and in segments.
#[test]
fn classifiers_train_as_with_blocks_that_stay() {
    let _alone = alone();
    let classes =
        "data.corpus = 'task'\ndata.sampler = 'standard'\ndata.vocab_size = 300\ntask.kind = 'topics'\n";
    let mut wrong = Vec::new();
    let ways = ["checkpoint.blocks = 2", "offload.strategy = 'naive'", "offload.strategy = 'overlap'"];
    for model in ["qwen2", "gpt2"] {
        let plain = [("model", model), ("batch", "5 x 12"), ("accumulation", "2")];
        let autocast = [&plain[..], &[("precision", "bf16"), ("autocast", "on")]].concat();
        let recipes = [&plain[..], &autocast].map(|choices| example(choices).recipe("cpu"));
        for method in ["'full'", "'linear_probe'", "'lp_ft'\ntuning.probe_steps = 2", "'prefix'", "'bitfit'"]
        {
            let cell = |recipe: &str, more: &str| {
                let text = format!("{recipe}\n{classes}tuning.method = {method}\n{more}");
                let source = Source { path: "classes.toml".into(), text };
                Recipe::parse(&source).unwrap_or_else(|e| panic!("{e}")).cells.remove(0)
            };
            for (recipe, precision) in recipes.iter().zip(["fp32", "autocast"]) {
                let reference = change(&cell(recipe, ""), None);
                for more in ways {
                    let compared = equal_bits(&change(&cell(recipe, more), None), &reference);
                    wrong.extend(
                        compared.err().map(|e| format!("{model}, {method}, {precision}, {more}: {e}")),
                    );
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A combination that a fault is done to.
fn example(choices: &[(&str, &str)]) -> Combination {
    let plain = Combination(vec![0; factors::FACTORS.len()]);
    choices.iter().fold(plain, |combination, (name, choice)| combination.with(name, choice))
}

#[test]
fn every_fault_is_noticed() {
    let _alone = alone();
    let accumulated = ("accumulation", "3");
    let faults = [
        (Damage::SkippedUpdate, example(&[("model", "qwen2")])),
        (
            Damage::SkippedUpdate,
            example(&[("model", "gpt2"), ("strategy", "overlap 2"), ("precision", "bf16")]),
        ),
        (Damage::DroppedMicroBatch, example(&[accumulated])),
        (Damage::DroppedMicroBatch, example(&[accumulated, ("precision", "bf16"), ("autocast", "on")])),
        (Damage::StaleSlot, example(&[("strategy", "overlap 2"), ("layers", "5")])),
        (Damage::StaleSlot, example(&[("strategy", "overlap 3"), ("layers", "5"), ("clip", "hard")])),
    ];
    let mut plain = Plain::on("cpu");
    for (damage, combination) in faults {
        compared(&combination, &mut plain, None).unwrap_or_else(|e| panic!("{combination}: {e}"));
        let found = compared(&combination, &mut plain, Some(damage));
        assert!(found.is_err(), "{damage:?} is not noticed in: {combination}");
    }
}
