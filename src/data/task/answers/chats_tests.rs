//! Questions as turns of a chat.

use std::path::Path;

use serde_json::{Value, json};

use super::tests::*;
use super::*;
use crate::data::chat::{self, Template};
use crate::data::record::{Chat, Record};
use crate::data::task::{Choice, Exam, Task, TaskKind};
use crate::data::{Prompted, Tokenizer};

/// A task of chats over 40 questions, and the exam of two of them.
fn chats(keys: Value, examples: usize) -> (Problems, Exam, Template) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chats/tokenizer");
    let rows: Vec<Value> = (0..40)
        .map(|n| json!({ "question": format!("{n} + 1?"), "answer": format!("{}", n + 1), "choices": [n, n + 1] }))
        .collect();
    let folder = folder(&[("mine.jsonl", &rows)]);
    let mut keys = keys;
    (keys["path"], keys["chat"]) = (json!(folder.path()), true.into());
    let kind = TaskKind::Answers(task(keys));
    let problems = kind.problems(3).unwrap();
    let tokenizer = Tokenizer::load(&fixture).unwrap();
    let template = Template::load(Some(&fixture), Some("chatml")).unwrap();
    let task = Task { kind, evaluate_generation: Some(2), examples, max_new_tokens: 8, batch_size: 2 };
    let exam = Exam::new(&task, &problems, (&tokenizer, Some(&template)), 3, 4096).unwrap();
    (problems, exam, template)
}

#[test]
fn a_question_is_a_users_turn_of_a_chat() {
    let (problems, exam, template) = chats(json!({}), 1);
    let Record::Chat(own) = problems.records(Split::Test).next().unwrap() else { panic!("no chat") };
    let text = |chat: &Chat| chat::text(chat, &template, true).unwrap();
    let Prompted { prompt, completion } = &problems.test[0].text;
    let turns = format!("<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(text(&own), format!("{turns}{completion}<|im_end|>\n<|im_start|>assistant\n"));
    let question = &exam.sets[0].questions[0];
    let asked = exam.tokenizer.decode(&question.prompt);
    // One example of the training split, then the question.
    let (example, own) =
        asked.split_at(asked.find("<|im_end|>\n<|im_start|>user").unwrap() + "<|im_end|>\n".len());
    let of_training = problems.train.iter().any(|problem| {
        let Prompted { prompt, completion } = &problem.text;
        example
            == format!(
                "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{completion}<|im_end|>\n"
            )
    });
    assert!(of_training && own == turns, "{asked}");
    assert_eq!(question.prompt, exam.tokenizer.encode(&asked).unwrap(), "nothing stands before it");
    // A blank line or a question does not end a turn.
    let ids = exam.tokenizer.encode("4\n\nQuestion: 5").unwrap();
    assert!((0..=ids.len()).all(|length| !exam.stops(&ids[..length])));
    // The tokenizer does not know the token that ends a turn here.
    let ids = exam.tokenizer.encode(&format!("{completion}<|im_end|>\n<|im_start|>")).unwrap();
    assert!(!exam.tokenizer.ends().iter().any(|end| ids.contains(end)));
    assert!((1..=ids.len()).any(|length| exam.stops(&ids[..length])));
    assert_eq!(exam.text(&question.prompt, &ids), *completion);
    assert!(exam.is_right(question, completion) && !exam.is_right(question, "0"));
}

#[test]
fn choices_follow_the_opening_of_the_assistants_turn() {
    let (problems, exam, _) = chats(json!({ "scoring": "choice" }), 0);
    let question = &exam.sets[0].questions[0];
    let batch = Choice::collated(&question.choices.iter().collect::<Vec<_>>(), None);
    for (row, choice) in question.choices.iter().enumerate() {
        let labels = &batch.labels[row * batch.width..][..batch.width];
        let predicted: Vec<u32> = labels.iter().filter_map(|label| u32::try_from(*label).ok()).collect();
        assert_eq!(exam.tokenizer.decode(&predicted).trim(), choice.text);
        let first = labels.iter().position(|label| *label >= 0).unwrap();
        assert_eq!(first + 1, question.prompt.len(), "the last token of the opening predicts the first");
    }
    assert_eq!(question.answer, problems.test[0].text.completion);
}
