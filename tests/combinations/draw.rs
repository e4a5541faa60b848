//! [`draw`]: combinations in which every two choices of two factors meet, and then more of them.

use std::collections::HashSet;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::combination::Combination;
use crate::factors::FACTORS;
use crate::refusals::REFUSALS;

/// Candidates of which the one with the most new pairs is taken.
const CANDIDATES: usize = 30;

type Pair = (usize, usize, usize, usize);

/// The first `count` combinations of a seed that a recipe accepts. Also calls `refused` with every combination that was
/// drawn and is in [`REFUSALS`]; that one is mended and goes on.
pub fn draw(seed: u64, count: usize, mut refused: impl FnMut(&Combination)) -> Vec<Combination> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut met: HashSet<Pair> = HashSet::new();
    let mut drawn = Vec::new();
    let mut seen = HashSet::new();
    while drawn.len() < count {
        let candidates = (0..CANDIDATES).map(|_| {
            let raw = Combination(FACTORS.iter().map(|f| random.random_range(0..f.choices.len())).collect());
            // Ranks are threads here, which share a CPU alone.
            let raw = if crate::on_gpu() { raw.plain(&["ranks"]) } else { raw };
            let mended = mend(raw.clone());
            (pairs(&mended).filter(|pair| !met.contains(pair)).count(), raw, mended)
        });
        let best = candidates.collect::<Vec<_>>().into_iter().max_by_key(|(new, ..)| *new);
        let (_, raw, mended) = best.expect("there are candidates");
        if raw != mended {
            refused(&raw);
        }
        if seen.insert(mended.clone()) {
            met.extend(pairs(&mended));
            drawn.push(mended);
        }
    }
    drawn
}

/// How many pairs of choices meet in these.
pub fn met(drawn: &[Combination]) -> usize {
    drawn.iter().flat_map(pairs).collect::<HashSet<Pair>>().len()
}

/// The nearest combination that is not refused.
fn mend(mut combination: Combination) -> Combination {
    while let Some(refusal) = REFUSALS.iter().find(|refusal| (refusal.refused)(&combination)) {
        combination = combination.plain(&[refusal.mend]);
    }
    combination
}

fn pairs(combination: &Combination) -> impl Iterator<Item = Pair> {
    let chosen = combination.0.clone();
    (0..chosen.len()).flat_map(move |a| {
        let chosen = chosen.clone();
        (0..a).map(move |b| (a, chosen[a], b, chosen[b]))
    })
}
