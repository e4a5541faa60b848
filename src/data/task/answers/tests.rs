//! The user's own questions: values of tests/fixtures/answers/make.py, and what cannot be asked.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::data::reader::Fields;

/// The keys of a task as a recipe writes them, without those that are null.
pub(super) fn task(written: Value) -> OwnQuestions {
    let mut keys = json!({ "path": "none" });
    for key in OwnQuestions::SECTION.keys {
        let value = written.get(key.name).filter(|value| !value.is_null()).cloned();
        if let Some(value) = value.or(key.default.value()) {
            keys[key.name] = value;
        }
    }
    serde_json::from_value(keys).expect("keys of a task")
}

pub(super) fn expected(of: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/answers/expected.json");
    let mut all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    serde_json::from_value(all[of].take()).unwrap()
}

pub(super) fn strings(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap()
}

pub(super) fn row(columns: &Value) -> rows::Row {
    let field = |(name, value): (&String, &Value)| (name.clone(), minijinja::value::Serde(value).into());
    let fields = Fields::new(columns.as_object().expect("an object").iter().map(field).collect());
    rows::Row { place: "q.jsonl, line 3".into(), fields }
}

/// What is made of rows.
pub(super) fn read(keys: Value, columns: &[Value]) -> Result<Vec<Problem>, String> {
    task(keys).read(&columns.iter().map(row).collect::<Vec<_>>())
}

/// A folder with files of rows, one a line.
pub(super) fn folder(files: &[(&str, &[Value])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, rows) in files {
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

pub(super) fn asked(question: &str) -> Value {
    json!({ "question": question, "answer": question.len() })
}

#[test]
fn scores_are_those_of_python() {
    let given = expected("given");
    let scores = expected("scores");
    for case in &scores {
        let (scoring, answers) = (task(case.clone()).scoring(), strings(&case["answers"]));
        let right: String = given
            .iter()
            .map(|given| if scoring.is_right(&answers, given.as_str().unwrap()) { '1' } else { '0' })
            .collect();
        let differs = right.chars().zip(case["right"].as_str().unwrap().chars()).position(|(a, b)| a != b);
        assert_eq!(differs.map(|place| &given[place]), None, "{case}");
    }
    assert_eq!((given.len(), scores.len()), (27, 270));
}

#[test]
fn prompts_are_those_of_jinja() {
    let prompts = expected("prompts");
    for case in &prompts {
        let prompt = Prompt::new(case["template"].as_str().unwrap().into()).unwrap();
        let question = case["row"]["question"].as_str().unwrap().trim();
        let text = prompt.text(&row(&case["row"]), question, &strings(&case["choices"])).unwrap();
        assert_eq!(text, case["text"].as_str().unwrap(), "{case}");
    }
    assert_eq!(prompts.len(), 5);
    // The usual ones, of which make.py has copies.
    for (lettered, place) in [(false, 0), (true, 1)] {
        assert_eq!(Prompt::usual(false, lettered), prompts[place]["template"].as_str().unwrap());
    }
}

#[test]
fn a_question_is_given_and_its_first_answer_learned() {
    let of = |keys, columns| read(keys, &[columns]).unwrap().remove(0);
    let problem = of(json!({}), json!({ "question": " Who? ", "answer": [" Ada ", "Ada L."] }));
    let text = |problem: &Problem| (problem.text.prompt.clone(), problem.text.completion.clone());
    assert_eq!(text(&problem), ("Question: Who?\nAnswer:".into(), " Ada".into()));
    assert_eq!(problem.answers, ["Ada", "Ada L."]);
    let keys = json!({ "question": "q", "answer": "gold.text", "trim": false, "prompt": "{{ question }}\n" });
    let problem = of(keys, json!({ "q": "Who?", "gold": { "text": [" Ada"], "start": [3] } }));
    assert_eq!(text(&problem), ("Who?\n".into(), " Ada".into()));
    let problem =
        of(json!({ "scoring": "number", "chat": true }), json!({ "question": "1 + 0.5?", "answer": 1.5 }));
    assert_eq!(text(&problem), ("1 + 0.5?".into(), "1.5".into()));
    // An object with texts, as SQuAD has it.
    let problem =
        of(json!({}), json!({ "question": "Who?", "answer": { "text": ["Ada"], "answer_start": [3] } }));
    assert_eq!(problem.answers, ["Ada"]);
    let next = |keys| task(keys).next().unwrap();
    assert_eq!(next(json!({})), "\nQuestion:");
    assert_eq!(next(json!({ "prompt": "Q: {{ question }} A:" })), "\nQ:");
    assert_eq!(next(json!({ "prompt": "{{ question }}=" })), "\n\n");
}

#[test]
fn choices_are_texts_or_letters() {
    let choices = json!({ "question": "Which?", "choices": ["red", "blue", "red"], "answer": 2 });
    let of = |keys| read(keys, std::slice::from_ref(&choices)).unwrap().remove(0);
    let problem = of(json!({ "scoring": "choice" }));
    assert_eq!(
        (problem.text.prompt.as_str(), problem.text.completion.as_str()),
        ("Question: Which?\nAnswer:", " red")
    );
    assert_eq!(
        (problem.choices, problem.answers),
        (strings(&json!([" red", " blue", " red"])), vec![" red".into()])
    );
    let problem = of(json!({ "scoring": "choice", "choose": "letter" }));
    assert_eq!(problem.text.prompt, "Question: Which?\nA. red\nB. blue\nC. red\nAnswer:");
    assert_eq!((problem.choices, problem.answers), (strings(&json!([" A", " B", " C"])), vec![" C".into()]));
    let problem = of(json!({ "scoring": "choice", "choose": "letter", "chat": true }));
    assert_eq!(
        (problem.text.prompt.as_str(), problem.text.completion.as_str()),
        ("Which?\nA. red\nB. blue\nC. red", "C")
    );
}

/// The places of the right choices of MMLU, ARC, HellaSwag, and of a CSV's columns.
#[test]
fn the_right_choice_is_a_text_a_label_a_letter_or_an_index() {
    let right = |keys: Value, rows: &[Value]| -> Result<Vec<usize>, String> {
        let mut keys = keys;
        keys["scoring"] = "choice".into();
        keys["choose"] = "letter".into();
        let problems = read(keys, rows)?;
        let place =
            |problem: &Problem| problem.choices.iter().position(|choice| *choice == problem.answers[0]);
        Ok(problems.iter().map(|problem| place(problem).unwrap()).collect())
    };
    let q = |choices: Value, answer: Value| json!({ "question": "q", "choices": choices, "answer": answer });
    let mmlu = [q(json!(["4", "2", "0", "1"]), json!(1)), q(json!(["a", "b", "c", "d"]), json!(3))];
    assert_eq!(right(json!({}), &mmlu).unwrap(), [1, 3]);
    let labelled = |labels: [&str; 3], answer: &str| {
        q(json!({ "text": ["x", "y", "z"], "label": labels }), json!(answer))
    };
    let arc = [labelled(["A", "B", "C"], "B"), labelled(["1", "2", "3"], "3")];
    assert_eq!(right(json!({}), &arc).unwrap(), [1, 2]);
    let hellaswag =
        [q(json!(["he runs.", "he sits."]), json!("1")), q(json!(["a dog.", "a cat."]), json!("0"))];
    assert_eq!(right(json!({}), &hellaswag).unwrap(), [1, 0]);
    let texts = [q(json!([" yes", "no"]), json!("yes ")), q(json!(["up", "down"]), json!("down"))];
    assert_eq!(right(json!({}), &texts).unwrap(), [0, 1]);
    let columns = [json!({ "question": "q", "a": "x", "b": 7, "key": "B" })];
    assert_eq!(right(json!({ "choices": ["a", "b"], "answer": "key" }), &columns).unwrap(), [1]);
    let csv = [q(json!("[\"x, y\", \"z\"]"), json!("1"))];
    assert_eq!(right(json!({}), &csv).unwrap(), [1]);
    let numbers = [q(json!([4, 7]), json!(7)), q(json!([0, 5]), json!(0))];
    assert_eq!(right(json!({}), &numbers).unwrap(), [1, 0]);

    let refused = |rows: &[Value], parts: &[&str]| {
        let message = right(json!({}), rows).unwrap_err();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    refused(&[q(json!(["x", "y"]), json!("z"))], &["line 3", "\"z\" is not among the choices \"x\", \"y\""]);
    refused(&[q(json!(["x", "y"]), json!(2))], &["\"2\" is not among", "0 for the first"]);
    refused(&[q(json!(["x", "y"]), json!("y")), q(json!(["x", "y"]), json!("A"))], &["\"A\" is not among"]);
    refused(&[q(json!(["B", "A"]), json!("A"))], &["\"A\" can be read in two ways"]);
    refused(&[q(json!([1, 0]), json!(1))], &["\"1\" can be read in two ways"]);
    refused(&[q(json!(["x", "y"]), json!(null))], &["is not among"]);
    refused(&[q(json!(["x"]), json!("x"))], &["needs at least two"]);
    refused(&[q(json!(["x", " "]), json!("x"))], &["none of them empty"]);
    refused(&[q(json!(vec!["x"; 27]), json!(0))], &["at most 26"]);
    refused(
        &[json!({ "question": "q", "answer": 0 })],
        &["no column `choices`, which task.choices names", "answer, question"],
    );
}

#[test]
fn rows_that_cannot_be_asked_say_why() {
    let refused = |keys: Value, row: Value, parts: &[&str]| {
        let message = read(keys, &[row]).unwrap_err();
        assert!(
            message.starts_with("q.jsonl, line 3: ") && parts.iter().all(|part| message.contains(part)),
            "{message}"
        );
    };
    let question = |answer: Value| json!({ "question": "q?", "answer": answer });
    refused(
        json!({ "answer": "gold" }),
        question(json!("a")),
        &["no column `gold`, which task.answer names; the columns are answer, question"],
    );
    refused(json!({ "question": "q" }), question(json!("a")), &["no column `q`, which task.question names"]);
    refused(json!({ "answer": "answer.value" }), question(json!("a")), &["no column `answer.value`"]);
    for answer in [json!(null), json!(""), json!("  "), json!([]), json!(["a", ""]), json!({ "value": "a" })]
    {
        refused(json!({}), question(answer), &["the answer is empty"]);
    }
    refused(json!({}), json!({ "question": " ", "answer": "a" }), &["the question is empty"]);
    refused(json!({}), json!({ "question": null, "answer": "a" }), &["the question is empty"]);
    refused(
        json!({ "scoring": "number" }),
        question(json!("four")),
        &["\"four\" comes to no number", "task.scoring"],
    );
    refused(
        json!({ "scoring": "number" }),
        question(json!(["4", "12,34"])),
        &["\"12,34\" comes to no number"],
    );
    refused(
        json!({ "scoring": "regex" }),
        question(json!("a(b")),
        &["no regular expression", "a(b", "^", "unclosed group"],
    );
    refused(
        json!({ "prompt": "{{ passage }}" }),
        question(json!("a")),
        &["no column `passage`, which task.prompt names", "answer, question"],
    );
    refused(
        json!({ "prompt": "{{ question + 1 }}" }),
        question(json!("a")),
        &["task.prompt cannot be filled in"],
    );
}

#[test]
fn keys_without_effect_are_refused() {
    let refused = |keys: Value, part: &str| {
        let written = |key: &str| keys.get(key.strip_prefix("task.").unwrap()).is_some();
        let Err(rule) = task(keys.clone()).check(&written) else { panic!("{keys} is permitted") };
        let message = format!("{} {}", rule.message, rule.help);
        assert!(message.contains(part), "{message}");
    };
    refused(json!({ "choices": ["a", "b"] }), "task.choices has no effect");
    refused(json!({ "scoring": "number", "ignore_case": true }), "task.ignore_case has no effect");
    refused(json!({ "scoring": "exact", "pattern": "a" }), "task.pattern has no effect");
    refused(json!({ "scoring": "regex", "pattern": "a(" }), "unclosed group");
    refused(json!({ "prompt": "{{ question" }), "task.prompt");
    refused(json!({ "path": "src", "subset": "main" }), "task.subset is a configuration");
    let fine = json!({ "scoring": "regex", "pattern": "#+ (.*)", "trim": false });
    assert!(task(fine.clone()).check(&|key| fine.get(key.strip_prefix("task.").unwrap()).is_some()).is_ok());
}

#[test]
fn no_question_is_in_two_splits() {
    let all: Vec<Value> = (0..43).map(|n| asked(&format!("{n} + 1?"))).collect();
    let repeated =
        [&all[..], &[all[4].clone()], &[json!({ "question": " 7 + 1? ", "answer": "8" })]].concat();
    let of = |path: &Path, seed| task(json!({ "path": path })).problems(seed).map_err(|e| e.to_string());
    let own = folder(&[("train.jsonl", &repeated), ("test.jsonl", &all[..8])]);
    let problems = of(own.path(), 3).unwrap();
    // A twentieth of 45 is 2. Of 45 rows 10 are of the test.
    assert_eq!((problems.test.len(), problems.train.len() + problems.valid.len()), (8, 35));
    assert_eq!(problems.duplicates, 10);
    let prompts = |split: Split| -> HashSet<String> {
        problems.texts(split).into_iter().map(|text| text.prompt).collect()
    };
    let [train, valid, test] = [Split::Train, Split::Valid, Split::Test].map(prompts);
    assert!(train.is_disjoint(&test) && train.is_disjoint(&valid) && valid.is_disjoint(&test));
    assert_eq!(train.len() + valid.len() + test.len(), 43);
    assert_eq!(of(own.path(), 3).unwrap(), problems);
    assert_ne!(of(own.path(), 4).unwrap().train, problems.train);

    let single = folder(&[("mine.jsonl", &all[..40])]);
    let problems = of(&single.path().join("mine.jsonl"), 3).unwrap();
    assert_eq!(
        [problems.train.len(), problems.valid.len(), problems.test.len(), problems.duplicates],
        [36, 2, 2, 0]
    );
    let three =
        folder(&[("train.jsonl", &all[..5]), ("valid.jsonl", &all[5..7]), ("test.jsonl", &all[7..8])]);
    let problems = of(three.path(), 3).unwrap();
    assert_eq!([problems.train.len(), problems.valid.len(), problems.test.len()], [5, 2, 1]);

    let refused = |files: &[(&str, &[Value])], part: &str| {
        let message = of(folder(files).path(), 3).unwrap_err();
        assert!(message.contains(part), "{message}");
    };
    refused(&[("a.jsonl", &all[..19])], "19 problems; a split in 90/5/5 needs 20");
    refused(&[("test.jsonl", &all)], "no questions to train on");
    refused(
        &[("train.jsonl", &all), ("valid.jsonl", &all[..2]), ("test.jsonl", &all[..3])],
        "every question of \"valid\" is held out in another file too",
    );
}
