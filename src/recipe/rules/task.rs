//! Rules of `[task]` with `[data]` and within the section.

use super::Checked;
use crate::data::{Data, TextSource};
use crate::recipe::Cell;
use crate::words::Rule;

/// `written`: whether a dotted key stands in the recipe.
pub(super) fn check(cell: &Cell, written: &impl Fn(&str) -> bool) -> Checked {
    let trained = matches!(&cell.data, Data::Text { corpus: TextSource::Task, .. });
    let Some(task) = &cell.task else {
        return Rule::refuse_if(
            trained,
            &["data.corpus"],
            "data.corpus = \"task\" trains on the problems of [task], and there is none",
            "add [task] with kind = \"sums\" or \"gsm8k\", or name another corpus",
        );
    };
    Rule::refuse_if(
        !trained,
        &["data.corpus", "task"],
        "[task] is trained on with data.corpus = \"task\", and this cell has another corpus",
        "write corpus = \"task\" and a sampler under [data], or remove [task]",
    )?;
    Rule::refuse_if(
        written("data.samples"),
        &["data.samples"],
        "data.samples has no effect on a task, each problem of which is a sample",
        "remove data.samples",
    )?;
    let asks = task.evaluate_generation.is_some();
    Rule::refuse_if(
        asks && task.kind.classes().is_some(),
        &["task.evaluate_generation"],
        "task.evaluate_generation asks for answers as text, and this task's are classes: the classifier is asked about \
         all of its test sets before training and after it anyway",
        "remove task.evaluate_generation",
    )?;
    let of_answers = ["task.examples", "task.max_new_tokens", "task.batch_size"];
    let unused = of_answers.into_iter().find(|key| !asks && written(key));
    unused.map_or(Ok(()), |key| {
        Err(Rule::new(
            &[key],
            format!("{key} has no effect without task.evaluate_generation: no question is answered"),
            format!("remove {key}, or write evaluate_generation = 100"),
        ))
    })
}
