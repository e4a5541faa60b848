//! [`Topics`]: sentences about one topic each, which a classifier names, with a test set from another distribution.

use rand::Rng;
use rand::seq::IndexedRandom;
use serde::{Deserialize, Serialize};

use super::{Method, Problem, Problems};
use crate::data::{DataError, Prompted, random_stream};
use crate::keys::key::DefaultValue::{Whole, Word};
use crate::keys::section::section;
use crate::keys::values::{COUNT, Values};
use crate::keys::{Key, Section};

/// Words of a topic, of which half are known to the classifier's training, and words of every topic.
const WORDS: usize = 16;
const COMMON: usize = 8;
/// The first word; each is one printable character, without the space.
const FIRST: u8 = b'!';
/// Words of a sentence. So many of them in the mean are its topic's, and so many of any topic; the others are common.
const LENGTH: usize = 12;
const OWN: f64 = 0.3;
const OF_ANY: f64 = 0.3;
/// Sentences of the other parts: of validation, and of each test set.
const HELD_OUT: usize = 500;

section! {
    /// Sentences about one topic each, with words of the topic, of any topic, and of none. A classifier is trained on half of
    /// each topic's words; the test set out of distribution has only the other half.
    #[derive(Copy, Eq)]
    pub struct Topics: Section::of("task", "kind", &["topics"]) => {
        /// Classes.
        pub topics: usize = Key::size(Values::Whole { least: 2, most: 5 }).default(Whole(4)),
        /// Sentences of the training split.
        pub sentences: usize = Key::size(COUNT).default(Whole(2000)),
        /// What is learned: the topic, by a classifier in the place of the head; or the text itself, where sentences have all
        /// words of their topic.
        pub learn: Learn = Key::size(Values::Words(&["topic", "text"])).default(Word("topic")),
    }
}

/// What is learned of a sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Learn {
    #[default]
    Topic,
    Text,
}

/// Which of a topic's words a sentence has.
#[derive(Clone, Copy)]
enum Half {
    Known,
    Other,
    Both,
}

impl Method for Topics {
    fn problems(&self, seed: u64) -> Result<Problems, DataError> {
        let mut stream = 0;
        let mut of = |count: usize, half: Half| {
            let mut random = random_stream(seed, stream);
            stream += 1;
            (0..count).map(|_| Problem::new(self.sentence(&mut random, half))).collect::<Vec<_>>()
        };
        let half = if self.learn == Learn::Topic { Half::Known } else { Half::Both };
        let (train, valid, test) = (of(self.sentences, half), of(HELD_OUT, half), of(HELD_OUT, half));
        let other = of(HELD_OUT, Half::Other);
        let published = (self.learn == Learn::Topic).then_some((OUT_OF_DISTRIBUTION, other));
        Ok(Problems { train, valid, test, published, ..Problems::default() })
    }

    fn classes(&self) -> Option<usize> {
        (self.learn == Learn::Topic).then_some(self.topics)
    }
}

/// The name of the test set with words that no sentence of the training has.
const OUT_OF_DISTRIBUTION: &str = "out of distribution";

impl Topics {
    fn sentence(&self, random: &mut impl Rng, half: Half) -> Prompted {
        let about = random.random_range(0..self.topics);
        let own: Vec<usize> = match half {
            Half::Known => (0..WORDS / 2).collect(),
            Half::Other => (WORDS / 2..WORDS).collect(),
            Half::Both => (0..WORDS).collect(),
        };
        let words = (0..LENGTH).map(|_| {
            let kind = random.random::<f64>();
            let topic = if kind < OWN { about } else { random.random_range(0..self.topics) };
            let word = match kind < OWN + OF_ANY {
                true => COMMON + topic * WORDS + own.choose(random).expect("a word"),
                false => random.random_range(0..COMMON),
            };
            char::from(FIRST + word as u8)
        });
        let text = words.collect();
        match self.learn {
            Learn::Topic => Prompted { prompt: text, completion: about.to_string() },
            Learn::Text => Prompted { prompt: String::new(), completion: text },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn topics(learn: Learn) -> Problems {
        Topics { topics: 5, sentences: 800, learn }.problems(3).unwrap()
    }

    /// Each topic's words in these sentences, and the sentences that have most words of their own topic.
    fn words(problems: &[Problem]) -> (Vec<HashSet<char>>, usize) {
        let (mut of, mut told) = (vec![HashSet::new(); 5], 0);
        for Problem { text: problem, .. } in problems {
            let mut counts = [0; 5];
            let words = problem.prompt.chars().map(|c| (c, c as usize - usize::from(FIRST)));
            for (c, word) in words.filter(|(_, word)| *word >= COMMON) {
                let topic = (word - COMMON) / WORDS;
                of[topic].insert(c);
                counts[topic] += 1;
            }
            let about: usize = problem.completion.parse().unwrap();
            told += usize::from(counts.iter().max() == Some(&counts[about]));
        }
        (of, told)
    }

    #[test]
    fn no_topic_shares_a_word_and_none_of_the_other_distribution_is_trained_on() {
        let Problems { train, valid, test, published, .. } = topics(Learn::Topic);
        let (name, other) = published.unwrap();
        assert_eq!((name, train.len(), valid.len(), other.len()), (OUT_OF_DISTRIBUTION, 800, 500, 500));
        let ((known, told), (others, _)) = (words(&train), words(&other));
        for topic in 0..5 {
            assert_eq!((known[topic].len(), others[topic].len()), (WORDS / 2, WORDS / 2));
            assert!(known[topic].is_disjoint(&others[topic]));
        }
        assert!((640..800).contains(&told), "{told} of 800 can be told");
        assert!(words(&test).0.iter().zip(&known).all(|(test, known)| test.is_subset(known)));
        let sentence = |problem: &Problem| problem.text.prompt.clone();
        assert!(
            train.iter().all(|problem| sentence(problem).len() == LENGTH && problem.text.prompt.is_ascii())
        );
        let trained: HashSet<String> = train.iter().map(sentence).collect();
        assert!(test.iter().filter(|problem| trained.contains(&problem.text.prompt)).count() < 5);
    }

    #[test]
    fn text_has_the_words_of_both_distributions() {
        let Problems { train, published, .. } = topics(Learn::Text);
        assert!(published.is_none() && train.iter().all(|problem| problem.text.prompt.is_empty()));
        let all: HashSet<char> = train.iter().flat_map(|problem| problem.text.completion.chars()).collect();
        assert_eq!(all.len(), COMMON + 5 * WORDS);
    }
}
