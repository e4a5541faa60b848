//! The conclusion about quality: held-out perplexity at the end, against the baseline's.

use std::collections::BTreeSet;

use itertools::Itertools;

use super::learned::is_evaluated;
use super::table::Comparison;
use super::units::Unit;
use crate::measure::Samples;
use crate::words::text::{names, percent, sentence};

/// Relative difference of perplexity below which two runs count as equal: another seed alone easily makes as much in a short
/// training. It is a convention, not measured here.
pub const BOUND: f64 = 0.03;
/// From so many times as much on, a change is given in times, not in percent more.
pub const MANY: f64 = 9.0;

/// Sentences; none without evaluations.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    if !is_evaluated(comparison) {
        return Vec::new();
    }
    let change = |method: usize| Some((method, change(comparison, method)?));
    let changes: Vec<(usize, Samples)> = (0..comparison.methods.len()).filter_map(change).collect();
    if changes.is_empty() {
        return alone(comparison).into_iter().collect();
    }
    vec![against_baseline(comparison, changes), caveat(comparison)]
}

/// A method's perplexity against its baseline's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is nowhere beyond the bound above it, and ran to its end everywhere.
    AsGood,
    /// It is everywhere beyond the bound above it.
    Worse,
    /// Neither, or it was not measured.
    NotClear,
}

pub fn verdict(comparison: &Comparison, method: usize) -> Verdict {
    if comparison.of_method(method).all(|i| comparison.is_baseline(i)) {
        return Verdict::AsGood;
    }
    let is_whole = comparison.of_method(method).all(|i| comparison.frame.get("eval_perplexity", i).is_some());
    match change(comparison, method) {
        Some(change) if change.max <= BOUND && is_whole => Verdict::AsGood,
        Some(change) if change.min > BOUND => Verdict::Worse,
        _ => Verdict::NotClear,
    }
}

/// Relative changes of a method's perplexity against its baseline's, at the sizes where both ran to their end: -0.1 is a tenth
/// less.
fn change(comparison: &Comparison, method: usize) -> Option<Samples> {
    let lines = comparison.of_method(method).filter(|&i| !comparison.is_baseline(i));
    let ratios = lines.filter_map(|i| comparison.frame.get("perplexity_vs_baseline", i));
    Samples::of(ratios.map(|ratio| ratio - 1.0).collect())
}

/// A method with its perplexity against its baseline's, where both are known.
pub fn told(comparison: &Comparison, method: usize) -> Option<String> {
    Some(text(comparison, &(method, change(comparison, method)?)))
}

/// A method and its perplexity where there is one shape only.
fn named(comparison: &Comparison, method: usize) -> (String, Option<String>) {
    let line = comparison.of_method(method).next().filter(|_| comparison.shapes.len() == 1);
    (comparison.said(method), line.and_then(|line| comparison.frame.written("eval_perplexity", line)))
}

/// `lr 0.01 (18.2, 9 % lower)`, of several shapes `lr 0.01 (9 % lower, 7 to 11 % over 3 shapes)`.
fn text(comparison: &Comparison, (method, change): &(usize, Samples)) -> String {
    let (name, value) = named(comparison, *method);
    let higher = match change.median {
        median if median < 0.0 => format!("{} lower", share(median)),
        median if median < MANY => format!("{} higher", share(median)),
        median => format!("{:.0} times as high", 1.0 + median),
    };
    let range = (change.seconds.len() > 1).then(|| range(change, comparison.repeated()));
    format!("{name} ({})", value.into_iter().chain([higher]).chain(range).join(", "))
}

/// A share in percent, with more digits near the bound, which it would seem to equal.
fn share(change: f64) -> String {
    let value = change.abs() * 100.0;
    match (change.abs() - BOUND).abs() {
        apart if apart < 0.0005 => format!("{value:.2} %"),
        apart if apart < 0.005 => format!("{value:.1} %"),
        _ => percent(change),
    }
}

/// `15 to 30 % over 5 shapes`, from the smallest change to the largest; `at each of 2 seeds` where they are the same.
fn range(change: &Samples, repeated: &str) -> String {
    let (low, high) = (change.min, change.max);
    let [from, to] = if high < 0.0 { [high, low] } else { [low, high] };
    let range = match share(from) == share(to) {
        _ if change.median >= MANY => format!("{:.0} to {:.0} times", 1.0 + low, 1.0 + high),
        _ if low < 0.0 && high >= 0.0 => format!("{} less to {} more", share(low), share(high)),
        true => return format!("at each of {} {repeated}s", change.seconds.len()),
        false => format!("{} to {}", share(from).trim_end_matches(" %"), share(to)),
    };
    format!("{range} over {} {repeated}s", change.seconds.len())
}

/// Which methods ended lower, which higher, and which differ by too little. A difference counts where it is beyond the bound at
/// every shape, and to the same side.
fn against_baseline(comparison: &Comparison, changes: Vec<(usize, Samples)>) -> String {
    let compared = changes.iter().flat_map(|(method, _)| comparison.of_method(*method));
    let bases: BTreeSet<usize> = compared.filter_map(|i| comparison.lines[i].baseline).collect();
    let bases: BTreeSet<usize> = bases.into_iter().map(|i| comparison.lines[i].method).collect();
    let named = bases.into_iter().map(|method| match named(comparison, method) {
        (name, Some(value)) => format!("{name} ({value})"),
        (name, None) => name.to_string(),
    });
    let base = names(named);
    let (mut lower, rest): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(_, c)| c.max < -BOUND);
    let (higher, unclear): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(_, c)| c.min > BOUND);
    lower.sort_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    // Those that ended as low as the lowest, within the bound.
    let lowest = lower.first().map_or(1.0, |(_, change)| 1.0 + change.median);
    let leaders = lower.partition_point(|(_, change)| (1.0 + change.median) / lowest <= 1.0 + BOUND);
    let (leaders, lower) = lower.split_at(leaders);
    let texts = |changes: &[(usize, Samples)]| {
        sentence(&names(changes.iter().map(|change| text(comparison, change))))
    };

    let mut out = match leaders.len() {
        0 => format!("No method ended with a clearly lower held-out perplexity than {base}."),
        _ => format!("{} reached the lowest held-out perplexity, against {base}.", texts(leaders)),
    };
    if !lower.is_empty() {
        out.push_str(&format!(" {} also ended below it.", texts(lower)));
    }
    if !higher.is_empty() {
        out.push_str(&format!(" {} ended above it.", texts(&higher)));
    }
    if !unclear.is_empty() {
        let unclear = sentence(&names(unclear.iter().map(|(method, _)| comparison.said(*method))));
        let bound = percent(BOUND);
        out.push_str(&match comparison.shapes.len() {
            1 => format!(" {unclear} differed from it by less than {bound}."),
            _ => format!(
                " {unclear} differed from it by less than {bound}, or to both sides, at some {}.",
                comparison.repeated()
            ),
        });
    }
    out
}

fn caveat(comparison: &Comparison) -> String {
    let evaluated: Vec<usize> = comparison.having("eval_perplexity").collect();
    let seeds: BTreeSet<u32> = evaluated.iter().map(|&i| comparison.lines[i].cell.seed).collect();
    let runs = match seeds.len() {
        1 => "Each perplexity is of a single run with one seed".to_string(),
        n => format!("The perplexities are of {n} seeds"),
    };
    let differ = |column: &str| {
        let of = |i: usize| comparison.frame.get(column, i);
        evaluated.iter().any(|&i| {
            let of_base = comparison.lines[i].baseline.and_then(of);
            of(i).zip(of_base).is_some_and(|(own, base)| own != base)
        })
    };
    let unequal = match (differ("steps"), differ("tokens")) {
        (true, _) => {
            " The runs made unequal numbers of updates, which alone changes what is reached: see the table."
        }
        (false, true) => " The runs saw unequal numbers of tokens: see the table.",
        (false, false) => "",
    };
    let bound = percent(BOUND);
    format!("{runs}: differences under {bound} count as none, larger ones may still be chance.{unequal}")
}

/// The perplexities where there is no baseline to compare with.
fn alone(comparison: &Comparison) -> Option<String> {
    let mut evaluated: Vec<usize> = comparison.having("eval_loss").collect();
    let written = |column: &str, i: usize| comparison.frame.written(column, i);
    let perplexity = |i: usize| written("eval_perplexity", i).unwrap_or_default();
    if let [only] = evaluated[..] {
        let lowest = written("lowest_perplexity", only).zip(written("lowest_step", only));
        let lowest = lowest.map(|(value, step)| format!("; it was lowest, {value}, after step {step}"));
        let end = comparison.frame.get("eval_perplexity", only)?;
        let before = comparison.lines[only].measured()?.evaluations.first().filter(|of| of.step == 0);
        let from = before.map(|of| {
            let way = match end / of.perplexity() - 1.0 {
                change if change < -BOUND => "fell",
                change if change > BOUND => "rose",
                _ => "hardly changed,",
            };
            format!("{way} from {} before training to", Unit::Perplexity.write(of.perplexity()))
        });
        let predicted = before.map(|of| format!(" ({} before)", Unit::FineShare.write(of.accuracy)));
        return Some(format!(
            "Held-out perplexity {} {} after {} steps, with {} of tokens predicted{}{}.",
            from.unwrap_or_else(|| "was".into()),
            perplexity(only),
            written("steps", only)?,
            written("eval_accuracy", only)?,
            predicted.unwrap_or_default(),
            lowest.unwrap_or_default()
        ));
    }
    let loss = |i: usize| comparison.frame.get("eval_loss", i).unwrap_or(f64::INFINITY);
    evaluated.sort_by(|a, b| loss(*a).total_cmp(&loss(*b)));
    let (&low, &high) = (evaluated.first()?, evaluated.last()?);
    let name = |i: usize| comparison.name(&comparison.lines[i]);
    Some(format!(
        "Held-out perplexity at the end was from {} ({}) to {} ({}).",
        perplexity(low),
        name(low),
        perplexity(high),
        name(high)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, learned_row, recipe, rows};
    use super::*;
    use crate::recipe::Recipe;

    const RATES: &str = "[grid]\n\"train.optimizer.lr\" = [1e-3, 2e-3, 3e-3]\n";

    /// Of cells whose held-out losses end at these.
    fn of(recipe: &Recipe, ends: &[f64]) -> Vec<String> {
        let row =
            |(cell, end): (_, &f64)| learned_row(cell, vec![5.0; 40], &[(0, 6.0, 0.0), (40, *end, 0.25)]);
        let rows: Vec<_> = recipe.cells.iter().zip(ends).map(row).collect();
        sentences(&Comparison::new(recipe, &rows))
    }

    #[test]
    fn only_clear_differences_are_reported() {
        let recipe = language_recipe(RATES);
        // e^3 = 20.1; e^-0.1 = 0.905, e^0.2 = 1.221, e^0.02 = 1.020.
        let said = of(&recipe, &[3.0, 2.9, 3.2]);
        assert_eq!(
            said,
            [
                "Lr 0.002 (18.2, 10 % lower) reached the lowest held-out perplexity, against lr 0.001 (20.1). \
                 Lr 0.003 (24.5, 22 % higher) ended above it.",
                "Each perplexity is of a single run with one seed: differences under 3 % count as none, larger \
                 ones may still be chance.",
            ]
        );
        assert_eq!(
            of(&recipe, &[3.0, 2.98, 3.02])[0],
            "No method ended with a clearly lower held-out perplexity than lr 0.001 (20.1). Lr 0.002 and lr 0.003 \
             differed from it by less than 3 %."
        );
    }

    #[test]
    fn runs_that_are_equally_good_lead_together() {
        let recipe = language_recipe(RATES);
        // e^-0.2 = 0.819, e^-0.19 = 0.827: 1 % apart.
        assert!(of(&recipe, &[3.0, 2.81, 2.8])[0].starts_with(
            "Lr 0.003 (16.4, 18 % lower) and lr 0.002 (16.6, 17 % lower) reached the lowest held-out perplexity"
        ));
        let said = of(&recipe, &[3.0, 2.9, 2.8]);
        assert!(
            said[0].ends_with("against lr 0.001 (20.1). Lr 0.002 (18.2, 10 % lower) also ended below it.")
        );
    }

    #[test]
    fn seeds_that_disagree_are_no_difference() {
        let recipe = language_recipe("[grid]\n\"seed\" = [1, 2]\n\"train.optimizer.lr\" = [1e-3, 2e-3]\n");
        let base = |i: usize| recipe.cells[i].settings()["train.optimizer.lr"] == 1e-3;
        let ends = |change: [f64; 2]| -> Vec<f64> {
            let of = |i: usize| if base(i) { 3.0 } else { 3.0 + change[recipe.cells[i].seed as usize - 1] };
            (0..4).map(of).collect()
        };
        assert!(of(&recipe, &ends([-0.1, 0.1]))[0].starts_with("No method ended with a clearly lower"));
        let said = of(&recipe, &ends([-0.1, -0.2]));
        // e^-0.1 = 0.905, e^-0.2 = 0.819.
        assert!(said[0].starts_with("Lr 0.002 (14 % lower, 10 to 18 % over 2 seeds) reached"), "{said:?}");
        assert!(said[1].starts_with("The perplexities are of 2 seeds"), "{said:?}");
    }

    #[test]
    fn one_method_is_reported_by_itself() {
        let one = language_recipe("");
        assert_eq!(
            of(&one, &[3.0]),
            [
                "Held-out perplexity fell from 403 before training to 20.1 after 40 steps, with 25.0 % of tokens \
                 predicted (0 before)."
            ]
        );
        assert!(of(&one, &[6.01])[0].starts_with("Held-out perplexity hardly changed, from 403 before"));
        let sizes = language_recipe("[grid]\n\"train.batch_size\" = [4, 8]\n");
        assert_eq!(
            of(&sizes, &[3.0, 2.0]),
            ["Held-out perplexity at the end was from 7.39 (batch size 8) to 20.1 (batch size 4)."]
        );
        let network = recipe("");
        assert!(sentences(&Comparison::new(&network, &rows(&network))).is_empty());
    }
}
