//! Learning rates that were tried: of methods that differ in the learning rate alone, all but the one that ends with the lowest
//! held-out loss. Tables of all cells have them; the answer, page 1 and the charts of what was learned do not.

use itertools::Itertools;
use serde_json::Value;

use super::frame::Frame;
use super::line::Line;
use crate::recipe::keys::is_repetition;

const RATE: &str = "train.optimizer.lr";

/// Methods, by number.
#[derive(Default)]
pub struct Tried {
    /// All but the best rate of each that differ in the rate alone.
    pub left_out: Vec<usize>,
    /// Those whose best rate is the lowest or the highest that was tried.
    pub at_edge: Vec<usize>,
}

impl Tried {
    /// Losses are compared at the first size, and so the first seed, that all rates have. Where nothing but rates differs, they
    /// are what is asked, and none is left out.
    pub fn new(lines: &[Line], sizes: &[String], frame: &Frame) -> Self {
        let apart_from_rate = |i: &usize| {
            let is_kept = |key: &String| key != RATE && !is_repetition(key) && !sizes.contains(key);
            let kept = lines[*i].settings.iter().filter(|(key, _)| is_kept(key));
            format!("{:?}", kept.collect_vec())
        };
        let alike = (0..lines.len()).into_group_map_by(apart_from_rate);
        let mut tried = Self::default();
        if alike.len() < 2 {
            return tried;
        }
        for alike in alike.into_values() {
            let Some(by_rate) = by_rate(lines, &alike, frame) else { continue };
            let Some((best, _)) = by_rate.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            tried.left_out.extend(by_rate.iter().map(|(method, _)| method).filter(|method| *method != best));
            let ends = [by_rate.first(), by_rate.last()];
            let is_end = by_rate.len() > 1 && ends.into_iter().flatten().any(|(method, _)| method == best);
            tried.at_edge.extend(is_end.then_some(*best));
        }
        tried.left_out.sort_unstable();
        tried
    }
}

/// The methods of these lines with their losses, the lowest rate first; `None` where no size has all of them.
fn by_rate(lines: &[Line], alike: &[usize], frame: &Frame) -> Option<Vec<(usize, f64)>> {
    let rate = |i: usize| lines[i].settings.get(RATE).and_then(Value::as_f64).unwrap_or_default();
    let sorted = alike.iter().copied().sorted_by(|&a, &b| rate(a).total_cmp(&rate(b))).collect_vec();
    let methods = sorted.iter().map(|&i| lines[i].method).unique().collect_vec();
    let at = |shape: usize, method: usize| {
        let own = alike.iter().find(|&&i| (lines[i].shape, lines[i].method) == (shape, method));
        own.and_then(|&i| Some((method, frame.get("eval_loss", i)?)))
    };
    let mut shapes = alike.iter().map(|&i| lines[i].shape).unique();
    shapes.find_map(|shape| methods.iter().map(|&method| at(shape, method)).collect())
}

#[cfg(test)]
mod tests {
    use crate::report::table::Comparison;
    use crate::report::testing::{language_recipe, learned_row};

    /// Two rules of update, each with two rates and the second seed at one of them.
    #[test]
    fn of_rates_the_one_with_the_lowest_held_out_loss_counts() {
        let recipe = language_recipe(
            "[[grid]]\nseed = 1\n\"train.optimizer\" = [{ kind = \"adamw\", lr = 1e-3 }, { kind = \"adamw\", lr = 1e-2 },\
             { kind = \"sgd\", lr = 1e-3 }, { kind = \"sgd\", lr = 1e-2 }]\n\
             [[grid]]\nseed = 2\n\"train.optimizer\" = [{ kind = \"adamw\", lr = 1e-2 }]\n",
        );
        let row = |(i, loss): (usize, f64)| {
            learned_row(&recipe.cells[i], vec![5.0; 20], &[(0, 6.0, 0.0), (20, loss, 0.5)])
        };
        // The second seed's is another loss, which says nothing of the rates.
        let rows = [(0, 3.0), (1, 2.0), (2, 4.0), (3, 4.5), (4, 9.0)].map(row);
        let comparison = Comparison::new(&recipe, &rows);
        let method = |i: usize| comparison.lines[i].method;
        assert_eq!(comparison.tried.left_out, [method(0), method(3)]);
        assert!(Comparison::new(&recipe, &rows[..1]).tried.left_out.is_empty(), "nothing to compare");
    }

    /// The losses of three rates fall to the second in one rule, and to the last in another.
    #[test]
    fn a_best_rate_at_the_end_of_its_grid_is_known() {
        let rates = |kind: &str| {
            [1e-3, 1e-2, 1e-1].map(|lr| format!("{{ kind = \"{kind}\", lr = {lr} }}")).join(", ")
        };
        let grid = format!("[grid]\n\"train.optimizer\" = [{}, {}]\n", rates("adamw"), rates("sgd"));
        let recipe = language_recipe(&grid);
        let losses = [3.0, 2.0, 2.5, 4.0, 3.5, 3.0].into_iter().enumerate();
        let row = |(i, loss): (usize, f64)| {
            learned_row(&recipe.cells[i], vec![5.0; 20], &[(0, 6.0, 0.0), (20, loss, 0.5)])
        };
        let rows: Vec<_> = losses.map(row).collect();
        let comparison = Comparison::new(&recipe, &rows);
        assert_eq!(comparison.tried.at_edge, [comparison.lines[5].method]);
    }
}
