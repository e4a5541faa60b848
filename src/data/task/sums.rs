//! [`Sums`]: sums of two numbers, worked out digit by digit, that the runner makes itself.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Method, Problem, Problems};
use crate::data::{DataError, Prompted, Split};
use crate::keys::key::DefaultValue::{Whole, Word};
use crate::keys::section::section;
use crate::keys::values::Values;
use crate::keys::{Key, Section};

/// Most problems of the training split; each of the others has an eighteenth of it: 90/5/5.
const MOST: usize = 9000;
/// One in so many pairs is for validation, and one for testing.
const CLASSES: u8 = 20;

section! {
    /// Sums of two numbers, worked out digit by digit: `27+58=` and `7+8+0=15 2+5+1=08`, then `#### 85`. The pair of
    /// numbers decides its split, whatever their order and the seed.
    #[derive(Copy, Eq)]
    pub struct Sums: Section::of("task", "kind", &["sums"]) => {
        /// Digits of each number.
        pub digits: usize = Key::size(Values::Whole { least: 1, most: 3 }).default(Whole(2)),
        /// What the last line has: the sum, or the first number again. A model that learned the second can add, but
        /// its answers are wrong.
        pub last_line: LastLine = Key::size(Values::Words(&["sum", "first"])).default(Word("sum")),
    }
}

/// The number behind `####`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastLine {
    #[default]
    Sum,
    First,
}

impl Method for Sums {
    /// At most [`MOST`] pairs are trained on, drawn by the seed.
    fn problems(&self, seed: u64) -> Result<Problems, DataError> {
        let least = 10usize.pow(self.digits as u32 - 1);
        let numbers = least..10 * least;
        let mut pairs: Vec<_> = numbers.clone().flat_map(|a| numbers.clone().map(move |b| [a, b])).collect();
        pairs.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let of = |split: Split| {
            let most = if split == Split::Train { MOST } else { MOST / 18 };
            let of_split = pairs.iter().filter(|pair| split_of(**pair) == split).take(most);
            of_split.map(|pair| Problem::new(self.problem(*pair))).collect()
        };
        Ok(Problems {
            train: of(Split::Train),
            valid: of(Split::Valid),
            test: of(Split::Test),
            ..Problems::default()
        })
    }

    fn next(&self) -> Option<String> {
        Some("\n\n".into())
    }
}

impl Sums {
    fn problem(&self, [a, b]: [usize; 2]) -> Prompted {
        let (mut work, mut carry) = (Vec::new(), 0);
        let digits = |n: usize| (0..self.digits as u32).map(move |place| n / 10usize.pow(place) % 10);
        for (x, y) in digits(a).zip(digits(b)) {
            let sum = x + y + carry;
            work.push(format!("{x}+{y}+{carry}={sum:02}"));
            carry = sum / 10;
        }
        let last = match self.last_line {
            LastLine::Sum => a + b,
            LastLine::First => a,
        };
        Prompted { prompt: format!("{a}+{b}="), completion: format!("{}\n#### {last}", work.join(" ")) }
    }
}

/// The same for all seeds, so that no later training sees what an earlier one held out.
fn split_of([a, b]: [usize; 2]) -> Split {
    match Sha256::digest(format!("{}+{}", a.min(b), a.max(b)))[0] % CLASSES {
        0 => Split::Valid,
        1 => Split::Test,
        _ => Split::Train,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::answer::{answered, expected};
    use super::*;

    fn sums(digits: usize) -> Sums {
        Sums { digits, last_line: LastLine::Sum }
    }

    /// The two numbers of a prompt, the smaller first.
    fn pair(problem: &Prompted) -> [u64; 2] {
        let (a, b) = problem.prompt.strip_suffix('=').unwrap().split_once('+').unwrap();
        let [a, b] = [a, b].map(|n| n.parse::<u64>().unwrap());
        [a.min(b), a.max(b)]
    }

    #[test]
    fn sums_are_worked_out_digit_by_digit() {
        let problem = sums(2).problem([27, 58]);
        assert_eq!(problem.prompt, "27+58=");
        assert_eq!(problem.completion, "7+8+0=15 2+5+1=08\n#### 85");
        assert_eq!(sums(1).problem([9, 9]).completion, "9+9+0=18\n#### 18");
        assert_eq!(sums(3).problem([905, 107]).completion, "5+7+0=12 0+0+1=01 9+1+0=10\n#### 1012");
        let copied = Sums { last_line: LastLine::First, ..sums(2) }.problem([27, 58]);
        assert_eq!(copied.completion, "7+8+0=15 2+5+1=08\n#### 27");
        for Problem { text: problem, .. } in sums(2).problems(1).unwrap().valid {
            let sum = pair(&problem).iter().sum::<u64>().to_string();
            assert_eq!(expected(&problem.completion).ok(), answered(&sum));
        }
    }

    #[test]
    fn no_pair_of_the_test_is_trained_on_with_any_seed() {
        for digits in [1, 2, 3] {
            let trained: HashSet<_> = [1, 2]
                .iter()
                .flat_map(|seed| sums(digits).problems(*seed).unwrap().train)
                .map(|p| pair(&p.text))
                .collect();
            for seed in [1, 3] {
                let Problems { train, valid, test, .. } = sums(digits).problems(seed).unwrap();
                assert!(
                    valid.iter().chain(&test).all(|problem| !trained.contains(&pair(&problem.text))),
                    "{digits}"
                );
                let share =
                    |part: &[Problem]| part.len() as f64 / (train.len() + valid.len() + test.len()) as f64;
                if digits > 1 {
                    assert!(
                        [&valid, &test].iter().all(|part| (0.03..0.07).contains(&share(part))),
                        "{digits}"
                    );
                }
                assert!(!test.is_empty() && train.len() <= MOST);
            }
        }
        let [one, same, other] = [1, 1, 2].map(|seed| sums(2).problems(seed).unwrap().train);
        assert!(one == same && one != other);
    }
}
