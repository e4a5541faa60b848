//! [`draw`]: combinations in which every two choices of two factors meet, and then more of them.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::combination::Combination;
use crate::factors::{FACTORS, Factor, factor};
use crate::models::{FIRST_MODELS, MODELS};
use crate::refusals::{DRAWN_LAST, REFUSALS, Refusal};

/// Candidates of which the one with the most new pairs is taken.
const CANDIDATES: usize = 30;

type Pair = (usize, usize, usize, usize);

/// The number of the first combination of the models that came later. They have numbers of their own, so that others keep
/// theirs.
pub const LATER: usize = 2000;

/// The combinations of these numbers, in their order, of which a recipe accepts each. Also calls `refused` with every
/// combination that was drawn and is in [`REFUSALS`]; that one is mended and goes on.
pub fn draw(seed: u64, numbers: &[usize], mut refused: impl FnMut(&Combination)) -> Vec<Combination> {
    let count = |range: Range<usize>| {
        numbers.iter().filter(|number| range.contains(number)).max().map_or(0, |last| last + 1 - range.start)
    };
    let first = of_models(seed, count(0..LATER), 0..FIRST_MODELS, &mut refused);
    let later = of_models(seed, count(LATER..usize::MAX), FIRST_MODELS..MODELS.choices.len(), &mut refused);
    let drawn = |number: &usize| number.checked_sub(LATER).map_or_else(|| &first[*number], |n| &later[n]);
    numbers.iter().map(|number| drawn(number).clone()).collect()
}

/// The first `count` combinations of these models.
///
/// The scalers of those whose blocks or optimizer are on the host are chosen at the end, by their number in turn: all other
/// settings of a number are what they were before these went together.
fn of_models(
    seed: u64,
    count: usize,
    models: Range<usize>,
    refused: impl FnMut(&Combination),
) -> Vec<Combination> {
    let mut drawn = without_scalers_of_the_host(seed, count, models, refused);
    let scaler = factor("scaler");
    for (number, combination) in drawn.iter_mut().enumerate() {
        let scales = combination.leaves_the_device() && combination.is("precision", "fp16");
        if scales && !combination.is("clip", "before") {
            // A fifth keeps none: 1581, which was compared often, among them.
            combination.0[scaler] = if number % 5 == 1 { 0 } else { 1 + number % 3 };
        }
    }
    drawn
}

fn without_scalers_of_the_host(
    seed: u64,
    count: usize,
    models: Range<usize>,
    mut refused: impl FnMut(&Combination),
) -> Vec<Combination> {
    let choices = |factor: &Factor| match factor.name {
        "model" => models.clone(),
        _ => 0..factor.first_choices(),
    };
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut met: HashSet<Pair> = HashSet::new();
    let mut drawn = Vec::new();
    let mut seen = HashSet::new();
    while drawn.len() < count {
        let candidates = (0..CANDIDATES).map(|_| {
            let raw =
                Combination(FACTORS.iter().map(|factor| random.random_range(choices(factor))).collect());
            // Ranks are threads here, which share a CPU alone.
            let raw = if crate::on_gpu() { raw.plain(&["ranks"]) } else { raw };
            let mended = mend(raw.clone());
            (pairs(&mended).filter(|pair| !met.contains(pair)).count(), raw, mended)
        });
        let best = candidates.collect::<Vec<_>>().into_iter().max_by_key(|(new, ..)| *new);
        let (_, raw, mended) = best.expect("there are candidates");
        if refusals(&raw).any(|refusal| refusal.message != DRAWN_LAST) {
            refused(&raw);
        }
        if seen.insert(mended.clone()) {
            met.extend(pairs(&mended));
            drawn.push(mended);
        }
    }
    drawn
}

/// What is written about a combination names its number on a GPU.
#[test]
fn numbers_keep_their_combinations() {
    let _alone = crate::alone();
    crate::GPU.store(true, Relaxed);
    let drawn = draw(7, &[118, 443], |_| ());
    crate::GPU.store(false, Relaxed);
    let of_118 = "width 72, batch 1 x 61, strategy function, resident blocks 3, activations host, precision bf16, data balanced";
    let of_443 = "model gpt2 with sinusoids, width 100, batch 1 x 61, strategy checkpointed, precision bf16, data packed";
    for (combination, (number, chosen)) in drawn.iter().zip([(118, of_118), (443, of_443)]) {
        let text = combination.to_string();
        let missing: Vec<&str> = chosen.split(", ").filter(|words| !text.contains(words)).collect();
        assert!(missing.is_empty(), "{number} has no {}: {text}", missing.join(", "));
    }
}

/// How many pairs of choices meet in these.
pub fn met(drawn: &[Combination]) -> usize {
    drawn.iter().flat_map(pairs).collect::<HashSet<Pair>>().len()
}

/// The nearest combination that is not refused.
pub fn mend(mut combination: Combination) -> Combination {
    loop {
        let Some(Refusal { mend, .. }) = refusals(&combination).next() else { return combination };
        combination = combination.plain(&[mend]);
    }
}

fn refusals(combination: &Combination) -> impl Iterator<Item = &'static Refusal> + use<'_> {
    REFUSALS.iter().filter(|refusal| (refusal.refused)(combination))
}

fn pairs(combination: &Combination) -> impl Iterator<Item = Pair> {
    let chosen = combination.0.clone();
    (0..chosen.len()).flat_map(move |a| {
        let chosen = chosen.clone();
        (0..a).map(move |b| (a, chosen[a], b, chosen[b]))
    })
}
