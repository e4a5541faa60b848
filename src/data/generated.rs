//! Short stories drawn from a seed. Words agree in number and gender, and people and things come back later in a story,
//! so that a small model has something to learn.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::words::WORDS;
use super::{Split, random_stream};
use crate::common::text::fnv1a;

/// Of this many stories, one is for validation and one for testing.
const CLASSES: u64 = 20;

/// Stories of a split, at least `bytes` long together and by less than one story longer.
///
/// The text itself decides to which split a story belongs, so no story is in two of them.
pub fn stories(seed: u64, split: Split, bytes: u64) -> Vec<String> {
    let mut rng = random_stream(seed, split as u64);
    let mut stories = Vec::new();
    let mut total = 0;
    while total < bytes {
        let story = story(&mut rng);
        if split_of(&story) == split {
            total += story.len() as u64;
            stories.push(story);
        }
    }
    stories
}

/// Sentences of a paragraph, on average.
const SENTENCES: f64 = 6.0;

/// The same sentences in paragraphs of very different lengths, as real text has them: each sentence is
/// the last of its paragraph with the same probability.
pub fn paragraphs(stories: &[String], seed: u64, split: Split) -> Vec<String> {
    let mut rng = random_stream(seed, 8 + split as u64);
    let mut paragraphs = vec![String::new()];
    for sentence in stories.iter().flat_map(|story| story.split_inclusive(". ")) {
        let last = paragraphs.last_mut().expect("never empty");
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(sentence.trim_end());
        if rng.random_bool(1.0 / SENTENCES) {
            paragraphs.push(String::new());
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

fn split_of(story: &str) -> Split {
    // A low bit of FNV depends on the lower bits alone.
    match (fnv1a(story) >> 32) % CLASSES {
        0 => Split::Valid,
        1 => Split::Test,
        _ => Split::Train,
    }
}

/// A person of the story; both genders occur equally often.
struct Person {
    name: &'static str,
    /// she, her, her; he, him, his.
    subject: &'static str,
    object: &'static str,
    possessive: &'static str,
}

fn pick<'w, T>(rng: &mut ChaCha8Rng, words: &'w [T]) -> &'w T {
    words.choose(rng).expect("no list of words is empty")
}

fn person(rng: &mut ChaCha8Rng) -> Person {
    if rng.random_bool(0.5) {
        Person { name: pick(rng, &WORDS.women).as_str(), subject: "she", object: "her", possessive: "her" }
    } else {
        Person { name: pick(rng, &WORDS.men).as_str(), subject: "he", object: "him", possessive: "his" }
    }
}

/// With its article: an old lamp, a lamp.
fn a(phrase: &str) -> String {
    let vowel = phrase.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {phrase}", if vowel { "an" } else { "a" })
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

/// Somebody loses a thing, asks somebody else, and the thing is found where it was said to be.
fn story(rng: &mut ChaCha8Rng) -> String {
    let hero = person(rng);
    let friend = loop {
        let other = person(rng);
        if other.name != hero.name {
            break other;
        }
    };
    let [thing, things] = pick(rng, &WORDS.things);
    let look = pick(rng, &WORDS.looks);
    let several = rng.random_bool(0.4);
    let (lost, it, was) = if several {
        (format!("{} {look} {things}", pick(rng, &WORDS.numbers)), "them", "were")
    } else {
        (a(&format!("{look} {thing}")), "it", "was")
    };
    let named = format!("the {look} {}", if several { things } else { thing });
    let spot = pick(rng, &WORDS.spots);
    let (Person { name, subject, object, possessive }, other) = (&hero, friend.name);
    let she = capital(subject);

    let mut text = vec![format!(
        "{name} was {} who lived {}.",
        a(&format!("{} {}", pick(rng, &WORDS.natures), pick(rng, &WORDS.trades))),
        pick(rng, &WORDS.places)
    )];
    text.push(format!("{she} had {lost}, and {subject} loved {it} very much."));
    if rng.random_bool(0.6) {
        text.push(habit(rng));
    }
    text.push(format!("{}, {named} {was} gone.", pick(rng, &WORDS.times)));
    text.push(format!(
        "{name} was {} and {} {it} all day.",
        pick(rng, &WORDS.troubles),
        pick(rng, &WORDS.searches)
    ));
    text.push(format!(
        "So {subject} went to {possessive} friend {other}, who was {}.",
        a(&format!("{} {}", pick(rng, &WORDS.natures), pick(rng, &WORDS.trades)))
    ));
    text.push(match rng.random_range(0..3) {
        0 => format!("\"I saw {named} {spot},\" {other} told {object}."),
        1 => format!("\"Have you looked {spot}?\" asked {other}."),
        _ => format!("{} said to {name}: \"Go and look {spot}.\"", capital(friend.subject)),
    });
    if rng.random_bool(0.5) {
        text.push(habit(rng));
    }
    text.push(format!("They went there together, and {named} {was} {spot}."));
    text.push(format!(
        "{name} was {} and gave {other} {}.",
        pick(rng, &WORDS.joys),
        a(&format!("{} {}", pick(rng, &WORDS.looks), pick(rng, &WORDS.things)[0]))
    ));
    text.push(pick(rng, &WORDS.ends).to_string());
    text.join(" ")
}

/// What animals do: The old cats sleep under the bed.
fn habit(rng: &mut ChaCha8Rng) -> String {
    let ([animal, animals], [does, do_]) = (pick(rng, &WORDS.animals), pick(rng, &WORDS.habits));
    let (look, spot) = (pick(rng, &WORDS.looks), pick(rng, &WORDS.spots));
    match rng.random_range(0..3) {
        0 => format!("{} {look} {animal} {does} {spot}.", pick(rng, &["The", "Every", "That"])),
        1 => format!("{} {look} {animals} {do_} {spot}.", pick(rng, &["The", "Many", "Those"])),
        _ => format!("{} {animals} {do_} {spot}.", capital(pick(rng, &WORDS.numbers).as_str())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seed_gives_one_corpus_of_the_size_asked_for() {
        let first = stories(1, Split::Train, 100_000);
        assert_eq!(first, stories(1, Split::Train, 100_000));
        assert_ne!(first, stories(2, Split::Train, 100_000));
        let bytes: usize = first.iter().map(String::len).sum();
        assert!((100_000..102_000).contains(&bytes), "{bytes}");
        assert!(first.iter().all(|story| story.is_ascii() && story.len() > 300));
    }

    #[test]
    fn no_story_is_in_two_splits() {
        let train: HashSet<_> = stories(1, Split::Train, 1_000_000).into_iter().collect();
        for seed in [1, 2] {
            for split in [Split::Valid, Split::Test] {
                let held_out = stories(seed, split, 50_000);
                assert!(held_out.len() > 50);
                assert!(held_out.iter().all(|story| !train.contains(story)));
            }
        }
    }

    #[test]
    fn paragraphs_have_the_same_sentences_and_lengths_far_apart() {
        let stories = stories(1, Split::Train, 100_000);
        let paragraphs = paragraphs(&stories, 1, Split::Train);
        assert_eq!(paragraphs.join(" "), stories.join(" "));
        let mut lengths: Vec<usize> = paragraphs.iter().map(String::len).collect();
        lengths.sort_unstable();
        let at = |share: f64| lengths[(share * lengths.len() as f64) as usize];
        assert!(at(0.9) > 10 * at(0.1), "{} and {}", at(0.1), at(0.9));
    }

    #[test]
    fn articles_and_numbers_agree() {
        for story in stories(3, Split::Train, 200_000) {
            let words: Vec<&str> = story.split([' ', '.', ',']).collect();
            for pair in words.windows(2) {
                let vowel = pair[1].starts_with(['a', 'e', 'i', 'o', 'u']);
                assert!(!(pair[0] == "a" && vowel || pair[0] == "an" && !vowel), "{pair:?} in {story}");
            }
            let plural = WORDS.numbers.iter().any(|n| story.contains(&format!("had {n} ")));
            assert_eq!(story.contains(" were gone."), plural, "{story}");
        }
    }
}
