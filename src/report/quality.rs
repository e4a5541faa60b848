//! What the conclusion says of quality: held-out perplexity at the end, against the baseline's.

use std::collections::BTreeSet;

use super::learning::{Learned, accuracy, perplexity};
use super::table::{Comparison, Line};
use crate::measure::Evaluation;
use crate::words::text::{and, percent, sentence};

/// Relative difference of perplexity below which two runs are not told apart: what another seed
/// alone easily changes in a short training. It is a convention, not measured here.
const BOUND: f64 = 0.03;

/// Sentences; none without evaluations.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let ends: Vec<Option<&Evaluation>> =
        comparison.lines.iter().map(|line| Learned::of(line)?.end()).collect();
    if ends.iter().all(Option::is_none) {
        return Vec::new();
    }
    let mut changes = Vec::new();
    for method in 0..comparison.methods.len() {
        changes.extend(Change::of(comparison, &ends, method));
    }
    if changes.is_empty() {
        return alone(comparison).into_iter().collect();
    }
    vec![against_baseline(comparison, &ends, &changes), caveat(comparison, &ends)]
}

/// A method's relative change of perplexity at each of the shapes where it and its baseline ended.
struct Change {
    method: usize,
    /// Sorted.
    shares: Vec<f64>,
    /// Perplexity, where there is one shape only.
    value: Option<f64>,
}

impl Change {
    fn of(comparison: &Comparison, ends: &[Option<&Evaluation>], method: usize) -> Option<Self> {
        let pair = |(i, line): (usize, &Line)| {
            let base = line.baseline.filter(|&base| base != i && line.method == method)?;
            Some((ends[i]?, ends[base]?))
        };
        let pairs: Vec<_> = comparison.lines.iter().enumerate().filter_map(pair).collect();
        let mut shares: Vec<f64> =
            pairs.iter().map(|(own, base)| (own.loss - base.loss).exp() - 1.0).collect();
        shares.sort_by(f64::total_cmp);
        let one = comparison.shapes.len() == 1;
        let (own, _) = pairs.first()?;
        Some(Self { method, shares, value: one.then(|| own.perplexity()) })
    }

    fn median(&self) -> f64 {
        let n = self.shares.len();
        (self.shares[(n - 1) / 2] + self.shares[n / 2]) / 2.0
    }

    /// Beyond the bound at every shape, and to the same side.
    fn lower(&self) -> bool {
        self.shares.iter().all(|share| *share < -BOUND)
    }

    fn higher(&self) -> bool {
        self.shares.iter().all(|share| *share > BOUND)
    }

    /// `lr 0.01 (18.2, 9 % lower)`, of several shapes `lr 0.01 (9 % lower, 7 to 11 % over 3 shapes)`.
    fn text(&self, comparison: &Comparison) -> String {
        let value = self.value.map_or(String::new(), |value| format!("{}, ", perplexity(value)));
        let median = self.median();
        let change = match median {
            ..0.0 => format!("{} lower", percent(median)),
            ..9.0 => format!("{} higher", percent(median)),
            _ => format!("{:.0} times as high", 1.0 + median),
        };
        let mut ends = [self.shares[0], self.shares[self.shares.len() - 1]];
        ends.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let [from, to] = ends.map(percent);
        let range = match self.shares.len() {
            n if n > 1 && median < 9.0 => {
                format!(", {} to {to} over {n} {}s", from.trim_end_matches(" %"), comparison.repeated())
            }
            _ => String::new(),
        };
        format!("{} ({value}{change}{range})", comparison.methods[self.method])
    }
}

/// Which methods ended lower, which higher, and which were not told apart.
fn against_baseline(comparison: &Comparison, ends: &[Option<&Evaluation>], changes: &[Change]) -> String {
    let compared = |line: &&Line| changes.iter().any(|change| change.method == line.method);
    let bases: BTreeSet<usize> =
        comparison.lines.iter().filter(compared).filter_map(|line| line.baseline).collect();
    let mut names: Vec<String> =
        bases.iter().map(|&i| comparison.methods[comparison.lines[i].method].clone()).collect();
    names.dedup();
    let mut base = and(&names);
    if let (1, Some(end)) = (comparison.shapes.len(), bases.first().and_then(|&i| ends[i])) {
        base = format!("{base} ({})", perplexity(end.perplexity()));
    }
    let mut lower: Vec<&Change> = changes.iter().filter(|change| change.lower()).collect();
    lower.sort_by(|a, b| a.median().total_cmp(&b.median()));
    // What ended as low as the lowest, as far as one can tell.
    let close = |change: &&Change| (1.0 + change.median()) / (1.0 + lower[0].median()) <= 1.0 + BOUND;
    let (leaders, lower): (Vec<&Change>, Vec<&Change>) = lower.iter().copied().partition(close);
    let higher: Vec<&Change> = changes.iter().filter(|change| change.higher()).collect();
    let unclear: Vec<String> = changes
        .iter()
        .filter(|change| !change.lower() && !change.higher())
        .map(|change| comparison.methods[change.method].clone())
        .collect();
    let texts =
        |changes: &[&Change]| sentence(&and(&changes.iter().map(|c| c.text(comparison)).collect::<Vec<_>>()));

    let mut out = match leaders.len() {
        0 => format!("No method ended with a clearly lower held-out perplexity than {base}."),
        _ => format!("{} reached the lowest held-out perplexity, against {base}.", texts(&leaders)),
    };
    if !lower.is_empty() {
        out.push_str(&format!(" {} ended below it too.", texts(&lower)));
    }
    if !higher.is_empty() {
        out.push_str(&format!(" {} ended above it.", texts(&higher)));
    }
    if !unclear.is_empty() {
        let names = sentence(&and(&unclear));
        let sides = match comparison.shapes.len() {
            1 => String::new(),
            _ => format!(", or not to one side at every {}", comparison.repeated()),
        };
        out.push_str(&format!(" {names} differed from it by less than {}{sides}.", percent(BOUND)));
    }
    out
}

fn caveat(comparison: &Comparison, ends: &[Option<&Evaluation>]) -> String {
    let evaluated = comparison.lines.iter().zip(ends).filter(|(_, end)| end.is_some());
    let seeds: BTreeSet<u32> = evaluated.map(|(line, _)| line.cell.seed).collect();
    let runs = match seeds.len() {
        1 => "Each perplexity is of a single run with one seed".to_string(),
        n => format!("The perplexities are of {n} seeds"),
    };
    let tokens = |i: usize| Learned::of(&comparison.lines[i]).map(|learned| learned.tokens);
    let unequal = (0..ends.len()).any(|i| {
        comparison.lines[i].baseline.is_some_and(|base| ends[i].is_some() && tokens(i) != tokens(base))
    });
    let unequal = if unequal { " Not all saw as many tokens: see the table." } else { "" };
    let bound = percent(BOUND);
    format!("{runs}: differences under {bound} count as none, larger ones may still be chance.{unequal}")
}

/// What each cell came to where there is nothing to compare it with.
fn alone(comparison: &Comparison) -> Option<String> {
    let learned: Vec<(&Line, Learned, &Evaluation)> = comparison
        .lines
        .iter()
        .filter_map(|line| {
            let learned = Learned::of(line)?;
            let end = learned.end()?;
            Some((line, learned, end))
        })
        .collect();
    let value = |e: &Evaluation| perplexity(e.perplexity());
    if let [(_, learned, end)] = learned.as_slice() {
        let best = learned.better_than_end();
        let best = best.map(|e| format!("; it was lowest, {}, after step {}", value(e), e.step));
        return Some(format!(
            "Held-out perplexity was {} after {} steps, with {} of tokens predicted{}.",
            value(end),
            learned.steps,
            accuracy(end),
            best.unwrap_or_default()
        ));
    }
    let by_loss = |a: &&(_, _, &Evaluation), b: &&(_, _, &Evaluation)| a.2.loss.total_cmp(&b.2.loss);
    let (low, high) = (learned.iter().min_by(by_loss)?, learned.iter().max_by(by_loss)?);
    Some(format!(
        "Held-out perplexity at the end was from {} ({}) to {} ({}).",
        value(low.2),
        comparison.name(low.0),
        value(high.2),
        comparison.name(high.0)
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
    fn only_clear_differences_are_told() {
        let recipe = language_recipe(RATES);
        // e^3 = 20.1; e^-0.1 = 0.905, e^0.2 = 1.221, e^0.02 = 1.020.
        let told = of(&recipe, &[3.0, 2.9, 3.2]);
        assert_eq!(
            told,
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
        let told = of(&recipe, &[3.0, 2.9, 2.8]);
        assert!(
            told[0].ends_with("against lr 0.001 (20.1). Lr 0.002 (18.2, 10 % lower) ended below it too.")
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
        let told = of(&recipe, &ends([-0.1, -0.2]));
        // e^-0.1 = 0.905, e^-0.2 = 0.819.
        assert!(told[0].starts_with("Lr 0.002 (14 % lower, 10 to 18 % over 2 seeds) reached"), "{told:?}");
        assert!(told[1].starts_with("The perplexities are of 2 seeds"), "{told:?}");
    }

    #[test]
    fn one_method_is_told_by_itself() {
        let one = language_recipe("");
        assert_eq!(
            of(&one, &[3.0]),
            ["Held-out perplexity was 20.1 after 40 steps, with 25.0 % of tokens predicted."]
        );
        let sizes = language_recipe("[grid]\n\"train.batch_size\" = [4, 8]\n");
        assert_eq!(
            of(&sizes, &[3.0, 2.0]),
            ["Held-out perplexity at the end was from 7.39 (batch size 8) to 20.1 (batch size 4)."]
        );
        let network = recipe("");
        assert!(sentences(&Comparison::new(&network, &rows(&network))).is_empty());
    }
}
