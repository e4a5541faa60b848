//! Questions that the model answers and prompts that it continues, before the first step and after the last.

use std::time::Instant;

use super::Training;
use crate::data::task::{Exam, Questions};
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
        let ends = exam.tokenizer.ends().to_vec();
        let request = Request { tokens: exam.max_new_tokens, choice: Choice::Greedy, ends };
        let mut all = Answers {
            step: self.current().updates,
            set: set.name.into(),
            questions: set.questions.len(),
            ..Answers::default()
        };
        let mut kept = [0; 2];
        for questions in set.questions.chunks(exam.batch_size) {
            let prompts: Vec<Vec<u32>> = questions.iter().map(|question| question.prompt.clone()).collect();
            let start = Instant::now();
            let device = self.cell.device_id().burn();
            let results = network.generate(&prompts, &request, &|new| exam.stops(new), &device);
            let results = results.unwrap_or(prompts);
            // Each token is on the host before the next is computed.
            all.seconds += start.elapsed().as_secs_f64();
            for (question, result) in questions.iter().zip(results) {
                let new = &result[question.prompt.len()..];
                let given = exam.text(&question.prompt, new);
                let right = question.is_right(&given);
                all.tokens += new.len() as u64;
                all.right += usize::from(right);
                let kept = &mut kept[usize::from(right)];
                if *kept < KEPT {
                    *kept += 1;
                    let (question, expected) = (question.text.clone(), question.answer.clone());
                    all.samples.push(Answer { question, expected, given, right });
                }
            }
        }
        all
    }
}
