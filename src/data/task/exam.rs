//! [`Exam`]: the questions that a model answers before and after training: prompts with worked examples, the rule by
//! which an answer stops, and whether it is right.

use rand::seq::IndexedRandom;

use super::answer::MARK;
use super::asking::{Asking, closing};
use super::likelihood::Choice;
use super::scoring::Scoring;
use super::{Problem, Problems, Task};
use crate::data::chat::Template;
use crate::data::{DataError, Split, Tokenizer, random_stream};

/// Of the random numbers of a seed, those that choose examples.
const EXAMPLES: u64 = 1 << 32;
/// Tokens at the end of an answer in which its last word is looked for.
const TAIL: usize = 32;

/// See the module.
pub struct Exam {
    pub tokenizer: Tokenizer,
    /// What the next prompt begins with, or in a chat what ends a turn, where that is more than the end token.
    next: Option<String>,
    scoring: Scoring,
    /// Tokens of an answer, at most.
    pub max_new_tokens: usize,
    /// Questions that are answered together.
    pub batch_size: usize,
    pub sets: Vec<Questions>,
}

/// The questions of a test set.
pub struct Questions {
    pub name: &'static str,
    pub questions: Vec<Question>,
}

pub struct Question {
    /// The question as the model reads it, without the examples.
    pub text: String,
    /// What is learned, or all answers that are right.
    pub answer: String,
    /// With the examples, in tokens.
    pub prompt: Vec<u32>,
    /// Empty where the model writes its answer.
    pub choices: Vec<Choice>,
    /// Each of them is right.
    answers: Vec<String>,
}

impl Exam {
    /// `template`: of the chats where questions are turns of one; `context`: tokens of a prompt and its answer, at most.
    ///
    /// # Errors
    /// A tokenizer without an end token, fewer problems than examples, and a prompt that with its answer is longer
    /// than the context.
    pub fn new(
        task: &Task,
        problems: &Problems,
        (tokenizer, template): (&Tokenizer, Option<&Template>),
        seed: u64,
        context: usize,
    ) -> Result<Self, DataError> {
        let Task { examples, max_new_tokens, batch_size, .. } = *task;
        let mut rng = random_stream(seed, EXAMPLES);
        let chosen: Vec<&Problem> = problems.train.choose_multiple(&mut rng, examples).collect();
        if chosen.len() < examples {
            return Err(DataError::new(format!(
                "task.examples = {examples} asks for more than the {} problems of the training split; make it smaller",
                chosen.len()
            )));
        }
        let asking = Asking { tokenizer, template, examples: chosen };
        let question = |problem: &Problem| {
            let question = Question::new(problem, &asking)?;
            let new = if question.choices.is_empty() { max_new_tokens } else { 0 };
            question.check(new, examples, context).map(|()| question)
        };
        let asked = task.evaluate_generation.unwrap_or_default();
        let set = |name, problems: &[Problem]| {
            let questions = problems.iter().take(asked).map(question).collect::<Result<_, _>>()?;
            Ok(Questions { name, questions })
        };
        let own = (Split::Test.into_str(), &problems.test);
        let published = problems.published.as_ref().map(|(name, problems)| (*name, problems));
        let sets = std::iter::once(own).chain(published).map(|(name, problems)| set(name, problems));
        tokenizer.require_eos()?;
        Ok(Self {
            tokenizer: tokenizer.clone(),
            next: template.map_or_else(|| task.kind.next(), closing),
            scoring: task.kind.scoring(),
            max_new_tokens,
            batch_size,
            sets: sets.collect::<Result<_, DataError>>()?,
        })
    }

    /// Whether a model that writes or chooses this is right.
    pub fn is_right(&self, question: &Question, given: &str) -> bool {
        self.scoring.is_right(&question.answers, given)
    }

    /// Whether an answer stops at its last token without an end token: a line with its number is whole, or the next prompt
    /// begins.
    pub fn stops(&self, answer: &[u32]) -> bool {
        // Every sequence is asked after every token, and most tokens end neither a line nor what the next prompt begins with.
        let last = &answer[answer.len().saturating_sub(1)..];
        let text = self.tokenizer.decode(last);
        let next = self.next.as_ref().and_then(|next| next.chars().last());
        if !text.contains(['\n', next.unwrap_or('\n')]) {
            return false;
        }
        let tail = &answer[answer.len().saturating_sub(TAIL)..];
        let text = self.tokenizer.decode(tail);
        self.length(&text) < text.len()
    }

    /// The text that an answer adds to its prompt, up to where it stops.
    pub fn text(&self, prompt: &[u32], answer: &[u32]) -> String {
        let mut text = self.tokenizer.continuation(prompt, self.tokenizer.without_end(answer));
        text.truncate(self.length(&text));
        text
    }

    /// Bytes up to where an answer stops.
    fn length(&self, text: &str) -> usize {
        let mark = text.find(MARK).filter(|_| self.scoring == Scoring::Number);
        let line = mark.and_then(|mark| {
            let number = mark + MARK.len();
            let start = number + text[number..].len() - text[number..].trim_start().len();
            Some(start + text[start..].find('\n')?)
        });
        let next = self.next.as_ref().and_then(|next| text.find(next));
        line.into_iter().chain(next).min().unwrap_or(text.len())
    }
}

impl Question {
    fn new(problem: &Problem, asking: &Asking) -> Result<Self, DataError> {
        let Problem { text, answers, .. } = problem;
        let prompt = asking.text(problem)?;
        Ok(Self {
            text: if asking.template.is_some() {
                format!("{}\n\n", text.prompt)
            } else {
                text.prompt.clone()
            },
            answer: if answers.len() > 1 { answers.join("\nor: ") } else { text.completion.clone() },
            choices: Choice::all(problem, &prompt, asking)?,
            prompt: asking.begin(&prompt)?,
            answers: answers.clone(),
        })
    }

    /// Refuses a prompt that does not fit with `new` tokens.
    fn check(&self, new: usize, examples: usize, context: usize) -> Result<(), DataError> {
        let longest =
            self.choices.iter().map(Choice::tokens).chain([self.prompt.len() + new]).max().unwrap_or(0);
        if longest <= context {
            return Ok(());
        }
        let (answer, smaller) = match new {
            0 => ("its longest choice does".into(), "task.examples"),
            _ => (format!("task.max_new_tokens = {new} more do"), "task.examples or task.max_new_tokens"),
        };
        Err(DataError::new(format!(
            "the prompt of \"{}\" has {} tokens with its {examples} examples, and {answer} not fit: the model has {context} \
             positions; make {smaller} smaller",
            beginning(&self.text),
            self.prompt.len(),
        )))
    }
}

/// The first words of a text, for an error.
pub fn beginning(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::super::{LastLine, Sums, TaskKind};
    use super::*;
    use crate::data::Prompted;

    fn task(examples: usize) -> Task {
        let kind = TaskKind::Sums(Sums { digits: 2, last_line: LastLine::Sum });
        Task { kind, evaluate_generation: Some(5), examples, max_new_tokens: 30, batch_size: 4 }
    }

    fn exam(examples: usize, context: usize) -> Result<Exam, DataError> {
        let task = task(examples);
        let tokenizer = Tokenizer::train(&[], 257).unwrap();
        Exam::new(&task, &task.kind.problems(7).unwrap(), (&tokenizer, None), 7, context)
    }

    #[test]
    fn prompts_have_examples_of_the_training_split() {
        let exam = exam(3, 256).unwrap();
        let [set] = exam.sets.as_slice() else { panic!("one set") };
        assert_eq!((set.name, set.questions.len()), ("test", 5));
        let train = task(3).kind.problems(7).unwrap().train;
        let mut examples = Vec::new();
        for question in &set.questions {
            let text = exam.tokenizer.decode(&question.prompt);
            let parts: Vec<&str> = text.split("\n\n").collect();
            assert_eq!((parts.len(), parts[3]), (4, question.text.as_str()));
            for part in &parts[..3] {
                assert!(train.iter().any(|Problem { text: Prompted { prompt, completion }, .. }| {
                    format!("{prompt}{completion}") == *part
                }));
            }
            examples.push(parts[..3].join("\n\n"));
        }
        assert!(examples.windows(2).all(|pair| pair[0] == pair[1]), "the same for every question");
        assert_eq!(self::exam(0, 64).unwrap().sets[0].questions[0].prompt.len(), "27+58=".len());
    }

    #[test]
    fn an_answer_stops_at_its_number_or_at_the_next_prompt() {
        let exam = exam(0, 64).unwrap();
        let ids = |text: &str| exam.tokenizer.encode(text).unwrap();
        for (text, cut) in
            [("7+8+0=15\n#### 85\n9+9=", "7+8+0=15\n#### 85"), ("####\n 85\n", "####\n 85"), ("1\n\n2", "1")]
        {
            let ids = ids(text);
            assert!((1..=ids.len()).any(|length| exam.stops(&ids[..length])), "{text}");
            assert_eq!(exam.text(&[], &ids), cut);
        }
        for text in ["7+8+0=15\n#### 85", "####\n", "1\n2", ""] {
            assert!((0..=ids(text).len()).all(|length| !exam.stops(&ids(text)[..length])), "{text}");
            assert_eq!(exam.text(&[], &[ids(text), exam.tokenizer.ends().to_vec()].concat()), text);
        }
        let question = &exam.sets[0].questions[0];
        let is_right = |given: &str| exam.is_right(question, given);
        assert!(is_right(&question.answer) && !is_right("#### 5") && !is_right(""));
    }

    #[test]
    fn what_cannot_be_asked_is_said_before_training() {
        let message = |examples, context| exam(examples, context).err().expect("refused").to_string();
        let long = message(3, 100);
        assert!(
            long.contains("the model has 100 positions") && long.contains("make task.examples or"),
            "{long}"
        );
        assert!(message(100_000, 1 << 30).contains("asks for more than the"));
    }
}
