//! What each method trains, saves, takes and learns, a row a method: the columns of PEFT's `method_comparison`.

use super::learning::is_evaluated;
use super::page;
use super::prelude::*;

/// Headings, and the columns that they have the median of.
const COLUMNS: [(&str, &str); 9] = [
    ("trained parameters", "all_trained"),
    ("saved", "saved_bytes"),
    ("training time", "time_of_training_s"),
    ("memory, by the driver", "driver_peak_bytes"),
    ("tensors", "live_peak_bytes"),
    ("training loss", "train_loss_final"),
    ("held-out loss", "eval_loss"),
    ("accuracy", "eval_accuracy"),
    ("right answers", "answers_right"),
];

/// `None` where held-out text says nothing of methods, or there is one.
pub fn table(comparison: &Comparison) -> Option<Table> {
    let mut groups = comparison.chosen();
    groups.retain(|group| comparison.of_group("eval_loss", group).is_some());
    if groups.len() < 2 || comparison.methods.len() < 2 || !is_evaluated(comparison) {
        return None;
    }
    let method = groups.iter().map(|group| Some(page::name(comparison, &groups, group))).collect();
    let column = |(heading, name): (&str, &str)| {
        (heading.into(), groups.iter().map(|group| comparison.written_of_group(name, group)).collect())
    };
    let columns = [("method".into(), method)].into_iter().chain(COLUMNS.map(column));
    let caption = "Medians over seeds. Saved: what the recipe would keep of the training, an adapter or all weights. \
                   Training loss: the mean of the last 5 % of steps. Accuracy: held-out tokens predicted right.";
    Some(page::assembled(caption.into(), columns, (1, groups.len())))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, learned_row};
    use super::*;
    use crate::recipe::Cell;

    #[test]
    fn a_method_has_a_row_of_what_it_costs_and_learns() {
        let recipe =
            language_recipe("[grid]\n\"tuning.method\" = [\"full\", \"bitfit\"]\nseed = [1, 2, 3]\n");
        let ends = [1.0, 2.0, 4.0, 3.0, 5.0, 6.0];
        let row = |(cell, end): (&Cell, f64)| {
            learned_row(cell, vec![5.0; 20], &[(0, 9.5, 0.0), (20, end, end / 10.0)])
        };
        let rows: Vec<Row> = recipe.cells.iter().zip(ends).map(row).collect();
        let table = table(&Comparison::new(&recipe, &rows)).expect("a table");
        let column = |heading: &str| {
            let place = table.header.iter().position(|of| of == heading).expect("a column");
            table.rows.iter().map(|row| row[place].as_str()).collect_vec()
        };
        assert_eq!(column("method"), ["tuning full", "tuning bitfit"]);
        assert_eq!(column("held-out loss"), ["2.000", "5.000"]);
        assert_eq!(column("accuracy"), ["20.0 %", "50.0 %"]);
        assert_eq!(column("training loss"), ["5.000", "5.000"]);
    }
}
