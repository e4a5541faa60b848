//! [`Gsm8k`]: word problems of grade-school arithmetic in JSON lines (Cobbe et al. 2021, "Training Verifiers to Solve
//! Math Word Problems").

use std::path::{Path, PathBuf};

use super::answer::expected;
use super::{Method, Problem, Problems};
use crate::data::reader::{Wanted, rows};
use crate::data::{DataError, Prompted};
use crate::keys::section::section;
use crate::keys::values::Values;
use crate::keys::{Key, Section};

/// The files of the data set.
const TRAIN: &str = "train.jsonl";
const TEST: &str = "test.jsonl";

section! {
    /// Word problems of grade-school arithmetic; the seed splits train.jsonl 90/5/5, and test.jsonl is a test set of
    /// its own.
    #[derive(Eq)]
    pub struct Gsm8k: Section::of("task", "kind", &["gsm8k"]) => {
        /// Folder with train.jsonl and test.jsonl.
        pub path: PathBuf = Key::size(Values::Text).called("problems"),
    }
}

impl Method for Gsm8k {
    fn problems(&self, seed: u64) -> Result<Problems, DataError> {
        let [file, published] = [TRAIN, TEST].map(|name| self.path.join(name));
        let all = Problems { train: read(&file)?, ..Problems::default() };
        let mut problems =
            all.hold_out(seed).map_err(|e| DataError::new(format!("{} has {e}", file.display())))?;
        let held_out = read(&published)?;
        if held_out.is_empty() {
            return Err(DataError::new(format!("{} has no problems", published.display())));
        }
        problems.published = Some((TEST, held_out));
        Ok(problems)
    }

    fn path(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    fn files(&self) -> Vec<PathBuf> {
        [TRAIN, TEST].map(|name| self.path.join(name)).to_vec()
    }

    fn next(&self) -> Option<String> {
        Some("\nQuestion:".into())
    }
}

/// The problems of a file, one a line.
fn read(path: &Path) -> Result<Vec<Problem>, DataError> {
    if !path.exists() {
        let path = path.display();
        return Err(DataError::new(format!(
            "there is no {path}; task.path names a folder with {TRAIN} and {TEST}"
        )));
    }
    rows(path, Wanted::these(["question", "answer"]))?.each(|fields| {
        let [question, answer] =
            ["question", "answer"].map(|name| fields.get(name).and_then(|value| value.as_str()));
        let (Some(question), Some(answer)) = (question, answer) else {
            return Err("a problem is {\"question\": …, \"answer\": …}, both of them strings".into());
        };
        expected(answer)?;
        Ok(Problem::new(Prompted {
            prompt: format!("Question: {}\nAnswer:", question.trim()),
            completion: format!(" {}", answer.trim()),
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> Gsm8k {
        Gsm8k { path: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gsm8k") }
    }

    #[test]
    fn a_seed_splits_the_training_file_and_leaves_the_test_file_alone() {
        let problems = fixture().problems(1).unwrap();
        assert_eq!((problems.train.len(), problems.valid.len(), problems.test.len()), (38, 2, 2));
        let (name, published) = problems.published.clone().unwrap();
        assert_eq!((name, published.len()), ("test.jsonl", 6));
        let mut all = [&problems.train[..], &problems.valid, &problems.test].concat();
        let mut other = fixture().problems(2).unwrap();
        assert_ne!(other.train, problems.train);
        assert_eq!(fixture().problems(1).unwrap(), problems);
        other.train.extend(other.valid.into_iter().chain(other.test));
        for problems in [&mut all, &mut other.train] {
            problems.sort_by(|a, b| a.text.prompt.cmp(&b.text.prompt));
        }
        assert_eq!(all, other.train, "every problem is in one part");
        let problem = &published[0].text;
        assert!(problem.prompt.starts_with("Question: ") && problem.prompt.ends_with("?\nAnswer:"));
        assert!(problem.completion.starts_with(' ') && expected(&problem.completion).is_ok());
    }

    #[test]
    fn a_line_without_an_answer_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let gsm8k = Gsm8k { path: folder.path().into() };
        let good = "{\"question\": \"1 + 1?\", \"answer\": \"2\\n#### 2\"}\n".repeat(20);
        let message = |text: &str| {
            std::fs::write(folder.path().join(TRAIN), text).unwrap();
            gsm8k.problems(1).unwrap_err().to_string()
        };
        let line = |text: &str| message(&format!("{good}{text}\n"));
        let at = |message: String, part: &str| {
            assert!(message.contains("train.jsonl, line 21: ") && message.contains(part), "{message}");
        };
        at(line("{\"question\": \"2 + 2?\"}"), "both of them strings");
        at(
            line("{\"question\": \"2 + 2?\", \"answer\": \"It is 4.\"}"),
            "does not end with a line \"#### number\"",
        );
        at(line("2 + 2?"), "no JSON object");
        at(line("{\"question\": \"How far?\", \"answer\": \"#### 5 km\"}"), "behind #### stands \"5 km\"");
        assert!(message("").contains("has 0 problems; a split in 90/5/5 needs 20"));
        assert!(message(&good).contains("there is no") && message(&good).contains("test.jsonl"));
        std::fs::write(folder.path().join(TEST), "\n").unwrap();
        assert!(message(&good).contains("test.jsonl has no problems"));
    }
}
