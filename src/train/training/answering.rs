//! Questions that the model answers and prompts that it continues, before the first step and after the last.

use std::time::Instant;

use super::Training;
use crate::data::task::{self, Exam, Question, Questions};
use crate::measure::{Answer, Answers, Continuation, Evaluation};
use crate::model::generate::{Choice, Request};
use crate::ops::autocast::{KeptCasts, Region, autocast, keep_casts};
use crate::train::build::Build;

/// Right answers, and as many wrong ones, that the row keeps of each test set.
const KEPT: usize = 3;

impl<N: Build> Training<'_, N> {
    /// Answers the questions of every test set, if the recipe asks any.
    pub fn answer(&mut self) {
        let classified: Vec<Answers> =
            self.feed.classified().into_iter().map(|(name, batches)| self.classes(name, batches)).collect();
        self.results.answers.extend(classified);
        let Some(exam) = self.feed.exam() else { return };
        let answers: Vec<Answers> = exam.sets.iter().map(|set| self.answers(exam, set)).collect();
        self.results.answers.extend(answers);
    }

    /// Continues the prompts, if the recipe has any.
    pub fn write(&mut self) {
        let Some(prompts) = self.feed.prompts() else { return };
        let network = self.network().valid();
        let _region = self.enter(&network);
        let tokens: Vec<Vec<u32>> = prompts.prompts.iter().map(|(_, tokens)| tokens.clone()).collect();
        let (step, device) = (self.current().updates, self.cell.device_id().burn());
        // A model without numbers writes nothing.
        let results = network.generate(&tokens, &prompts.request, &|_| false, &device);
        let results = results.unwrap_or_else(|_| tokens.clone());
        let written = prompts.prompts.iter().zip(results).map(|((prompt, tokens), result)| Continuation {
            step,
            prompt: prompt.clone(),
            text: prompts.text(tokens, &result[tokens.len()..]),
        });
        let written: Vec<Continuation> = written.collect();
        self.results.continuations.extend(written);
    }

    /// The autocast region of generation. If steps keep casts of weights, so does generation: each token would make them
    /// again.
    fn enter(&self, network: &N) -> (Region, Option<KeptCasts>) {
        let region = autocast(self.cell.precision.region());
        (region, self.cell.workload().keeps_casts().then(|| keep_casts(network)))
    }

    /// Classifies the prompts of a test set: the class with the largest logit counts.
    fn classes(&self, set: &str, batches: impl Iterator<Item = N::Batch>) -> Answers {
        let network = self.network().valid();
        let _region = self.enter(&network);
        let start = Instant::now();
        let parts: Vec<_> = batches.map(|batch| network.evaluate(&batch)).collect();
        let sum = |of: &dyn Fn(&(Evaluation, f64)) -> f64| parts.iter().map(of).sum::<f64>().round() as usize;
        Answers {
            step: self.current().updates,
            set: set.into(),
            questions: sum(&|(_, prompts)| *prompts),
            right: sum(&|(part, prompts)| part.accuracy * prompts),
            seconds: start.elapsed().as_secs_f64(),
            ..Answers::default()
        }
    }

    fn answers(&self, exam: &Exam, set: &Questions) -> Answers {
        let network = self.network().valid();
        let _region = self.enter(&network);
        let start = Instant::now();
        // Each answer is on the host before the next is computed.
        let (given, tokens): (Vec<Given>, u64) = match set.questions.first() {
            Some(question) if !question.choices.is_empty() => (self.chosen(&network, exam, set), 0),
            _ => self.written(&network, exam, set),
        };
        let seconds = start.elapsed().as_secs_f64();
        let answer = |(question, Given { text: given, margin }): (&Question, Given)| Answer {
            right: exam.is_right(question, &given) && !margin.is_some_and(f64::is_nan),
            question: question.text.clone(),
            expected: question.answer.clone(),
            given,
            margin,
        };
        let all: Vec<Answer> = set.questions.iter().zip(given).map(answer).collect();
        Answers {
            step: self.current().updates,
            set: set.name.into(),
            questions: all.len(),
            right: all.iter().filter(|answer| answer.right).count(),
            tokens,
            seconds,
            samples: kept(all),
        }
    }

    /// What the model writes, and how many tokens.
    fn written(&self, network: &N, exam: &Exam, set: &Questions) -> (Vec<Given>, u64) {
        let (mut all, mut tokens) = (Vec::new(), 0);
        let ends = exam.tokenizer.ends().to_vec();
        let request = Request { tokens: exam.max_new_tokens, choice: Choice::Greedy, ends };
        for questions in set.questions.chunks(exam.batch_size) {
            let prompts: Vec<Vec<u32>> = questions.iter().map(|question| question.prompt.clone()).collect();
            let device = self.cell.device_id().burn();
            let results = network.generate(&prompts, &request, &|new| exam.stops(new), &device);
            for (question, result) in questions.iter().zip(results.unwrap_or(prompts)) {
                let new = &result[question.prompt.len()..];
                tokens += new.len() as u64;
                all.push(Given { text: exam.text(&question.prompt, new), margin: None });
            }
        }
        (all, tokens)
    }

    /// The most likely choices; the first of equals.
    fn chosen(&self, network: &N, exam: &Exam, set: &Questions) -> Vec<Given> {
        let choices: Vec<&task::Choice> =
            set.questions.iter().flat_map(|question| &question.choices).collect();
        let (device, virtual_tokens) = (self.cell.device_id(), self.cell.tuning().virtual_tokens);
        let likelihoods = |rows: &[&task::Choice]| {
            let losses = network.token_losses(task::Choice::collated(rows, virtual_tokens), device);
            let of_rows = rows.iter().zip(losses.chunks(losses.len() / rows.len()));
            of_rows.map(|(choice, losses)| choice.log_likelihood(losses)).collect::<Vec<f64>>()
        };
        let mut likelihoods = choices.chunks(exam.batch_size).flat_map(likelihoods);
        let given = |question: &Question| {
            let own: Vec<f64> = likelihoods.by_ref().take(question.choices.len()).collect();
            let (mut most, mut right, mut other) = (0, f64::NEG_INFINITY, f64::NEG_INFINITY);
            for (place, likelihood) in own.iter().enumerate() {
                most = if *likelihood > own[most] { place } else { most };
                match exam.is_right(question, &question.choices[place].text) {
                    true => right = *likelihood,
                    false => other = other.max(*likelihood),
                }
            }
            Given { text: question.choices[most].text.clone(), margin: Some(right - other) }
        };
        set.questions.iter().map(given).collect()
    }
}

/// The answer to a question, and for a choice the [margin](Answer::margin).
struct Given {
    text: String,
    margin: Option<f64>,
}

/// What a row keeps of the answers: the first ones, or those with the smallest margins.
fn kept(mut answers: Vec<Answer>) -> Vec<Answer> {
    answers.sort_by(|a, b| a.margin.unwrap_or(0.0).total_cmp(&b.margin.unwrap_or(0.0)));
    let mut counts = [0; 2];
    answers.retain(|answer| {
        let count = &mut counts[usize::from(answer.right)];
        *count += 1;
        *count <= KEPT
    });
    answers
}
