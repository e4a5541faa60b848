//! The words of the generated stories.

use std::sync::LazyLock;

use serde::Deserialize;

/// Singular and plural, or the same of a verb.
type Forms = [String; 2];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    pub women: Vec<String>,
    pub men: Vec<String>,
    pub trades: Vec<String>,
    pub natures: Vec<String>,
    pub places: Vec<String>,
    pub things: Vec<Forms>,
    pub looks: Vec<String>,
    pub animals: Vec<Forms>,
    pub habits: Vec<Forms>,
    pub spots: Vec<String>,
    pub numbers: Vec<String>,
    pub times: Vec<String>,
    /// Of somebody who lost something.
    pub troubles: Vec<String>,
    /// Of somebody who found it again.
    pub joys: Vec<String>,
    pub searches: Vec<String>,
    pub ends: Vec<String>,
}

pub static WORDS: LazyLock<Words> =
    LazyLock::new(|| toml::from_str(include_str!("words.toml")).expect("words.toml is valid"));
