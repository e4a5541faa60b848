//! Rules of `[task]` with `[data]` and within the section.

use super::Checked;
use crate::data::task::Scoring;
use crate::data::{Data, Task, TextSource, Tokenize};
use crate::keys::Rule;
use crate::recipe::Cell;

/// `written`: whether a dotted key stands in the recipe.
pub(super) fn check(cell: &Cell, written: &impl Fn(&str) -> bool) -> Checked {
    let trained = matches!(&cell.data, Data::Text { corpus: TextSource::Task, .. });
    let Some(task) = &cell.task else {
        return Rule::refuse_if(
            trained,
            &["data.corpus"],
            "data.corpus = \"task\" trains on the problems of [task], and there is none",
            "add [task] with kind = \"answers\", \"gsm8k\" or \"sums\", or name another corpus",
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
        "data.samples has no effect on a task: each of its problems is a sample",
        "remove data.samples",
    )?;
    task.kind.check(written)?;
    check_chat_keys(task, written)?;
    let asks = task.evaluate_generation.is_some();
    Rule::refuse_if(
        asks && task.kind.next().is_none(),
        &["task.evaluate_generation"],
        "task.evaluate_generation compares the numbers at the end of answers, and this task has none",
        "remove task.evaluate_generation; a task with classes is evaluated on all of its test sets anyway",
    )?;
    Rule::refuse_if(
        task.kind.classes().is_some() && cell.data.sampler().tokenize == Tokenize::EveryStep,
        &["data.tokenize"],
        "data.tokenize = \"every_step\" has no effect on a task with classes: its prompts become tokens before training",
        "remove data.tokenize",
    )?;
    Rule::refuse_if(
        written("task.max_new_tokens") && task.kind.scoring() == Scoring::Choice,
        &["task.max_new_tokens", "task.scoring"],
        "task.max_new_tokens has no effect with scoring = \"choice\": the model writes nothing",
        "remove task.max_new_tokens",
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

/// Keys of chats belong to a task that is asked as a chat.
fn check_chat_keys(task: &Task, written: &impl Fn(&str) -> bool) -> Checked {
    let chat_key =
        ["data.template", "data.learn"].into_iter().find(|key| written(key) && !task.kind.is_chat());
    chat_key.map_or(Ok(()), |key| {
        Err(Rule::new(
            &[key, "task.chat"],
            format!("{key} has no effect on a task without a chat"),
            format!("remove {key}, or write kind = \"answers\" and chat = true under [task]"),
        ))
    })
}
