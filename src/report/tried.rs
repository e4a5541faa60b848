//! Learning rates that were tried: of methods that differ in the learning rate alone, all but the one that ends with the lowest
//! held-out loss. Tables of all cells have them; the answer, page 1 and the charts of what was learned do not.

use itertools::Itertools;

use super::frame::Frame;
use super::line::Line;
use crate::recipe::keys::is_repetition;

const RATE: &str = "train.optimizer.lr";

/// The methods that were tried, by number. Losses are compared at the first size, and so the first seed, that all rates have.
/// Where nothing but rates differs, they are what is asked, and none is left out.
pub fn tried(lines: &[Line], sizes: &[String], frame: &Frame) -> Vec<usize> {
    let apart_from_rate = |i: &usize| {
        let is_kept = |key: &String| key != RATE && !is_repetition(key) && !sizes.contains(key);
        let kept = lines[*i].settings.iter().filter(|(key, _)| is_kept(key));
        format!("{:?}", kept.collect_vec())
    };
    let alike = (0..lines.len()).into_group_map_by(apart_from_rate);
    if alike.len() < 2 {
        return Vec::new();
    }
    let of_group = |lines_alike: Vec<usize>| -> Vec<usize> {
        let methods = lines_alike.iter().map(|&i| lines[i].method).unique().collect_vec();
        let at = |shape: usize, method: usize| {
            let own = lines_alike.iter().find(|&&i| (lines[i].shape, lines[i].method) == (shape, method));
            own.and_then(|&i| frame.get("eval_loss", i))
        };
        let shapes = lines_alike.iter().map(|&i| lines[i].shape).unique();
        let losses =
            |shape: usize| methods.iter().map(|&method| at(shape, method)).collect::<Option<Vec<f64>>>();
        let Some(losses) = shapes.filter_map(losses).next() else { return Vec::new() };
        let best = losses.iter().position_min_by(|a, b| a.total_cmp(b));
        methods.into_iter().enumerate().filter(|(i, _)| Some(*i) != best).map(|(_, method)| method).collect()
    };
    alike.into_values().flat_map(of_group).unique().sorted().collect()
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
        assert_eq!(comparison.tried, [method(0), method(3)]);
        assert!(Comparison::new(&recipe, &rows[..1]).tried.is_empty(), "nothing to compare");
    }
}
