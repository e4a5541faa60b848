//! [`Combination`]: a choice of each factor, the recipe it makes, and the plain ways it is compared with.

use std::fmt;
use std::path::PathBuf;

use runner::recipe::{Cell, Recipe, RecipeError, Source};

use crate::factors::{Choice, FACTORS, factor};

/// By factor, the number of its choice.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Combination(pub Vec<usize>);

impl Combination {
    pub fn choice(&self, name: &str) -> &'static str {
        self.of(factor(name)).0
    }

    fn of(&self, factor: usize) -> &'static Choice {
        &FACTORS[factor].choices[self.0[factor]]
    }

    /// What a key has in the choice of a factor.
    pub fn line(&self, name: &str, key: &str) -> Option<&'static str> {
        self.of(factor(name)).1.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    pub fn is(&self, name: &str, choice: &str) -> bool {
        self.choice(name) == choice
    }

    /// The same with the first choice of these factors.
    #[must_use]
    pub fn plain(&self, names: &[&str]) -> Self {
        let mut plain = self.clone();
        names.iter().for_each(|name| plain.0[factor(name)] = 0);
        plain
    }

    /// The same with another choice of a factor.
    #[must_use]
    pub fn with(&self, name: &str, choice: &str) -> Self {
        let place = factor(name);
        let number = FACTORS[place].choices.iter().position(|(known, _)| *known == choice);
        let mut with = self.clone();
        with.0[place] = number.unwrap_or_else(|| panic!("{name} has no choice {choice}"));
        with
    }

    /// Whether replicas divide something among them.
    pub fn shards(&self) -> bool {
        matches!(self.choice("ranks"), "2 states" | "2 gradients" | "2 weights")
    }

    /// Whether blocks are on several ranks.
    pub fn has_stages(&self) -> bool {
        matches!(self.choice("ranks"), "gpipe" | "1f1b" | "interleaved")
    }

    /// Whether layers are divided.
    pub fn divides_layers(&self) -> bool {
        matches!(self.choice("ranks"), "2 of a layer" | "2 x 2")
    }

    /// The same work without anything that only moves data or computes a block again as it was.
    pub fn at_rest(&self) -> Self {
        let rest = self.plain(&[
            "blocks",
            "strategy",
            "resident blocks",
            "activations",
            "optimizer's state",
            "loader",
            "waiting",
            "graph",
        ]);
        // The host updates parts of whole weights, but none of those that stay divided on the device.
        match rest.is("ranks", "2 weights") && rest.is("optimizer's place", "host") {
            true => rest.with("ranks", "2 gradients"),
            false => rest,
        }
    }

    /// The same work by operators composed of Burn's, nothing recomputed, nothing moved, in one process. The optimizer
    /// runs on the device unless weights are stored in half precision: on the host they have fp32 masters.
    pub fn by_hand(&self) -> Self {
        let mut plain = self.at_rest().plain(&["level"]);
        match self.choice("tuning") {
            // Replicas and micro-batches drop elements of their own.
            // Those that divide nothing keep the optimizer on the device.
            "lora that drops" if self.shards() => {
                let on_host = self.stores_half() && self.is("optimizer's place", "host");
                plain = plain.with("ranks", if on_host { "2 states" } else { "2 replicas" });
            }
            "lora that drops" => {}
            _ => plain = plain.plain(&["ranks"]),
        }
        let operators = self.operators().into_iter();
        // The MLP with adapters has no SwiGLU.
        let ops = operators.filter(|name| !(self.is("tuning", "adapter") && *name == "swiglu"));
        // Packed samples are one sequence to the composed attention: that is another test's.
        ops.for_each(|name| plain.0[factor(name)] = 1);
        match self.stores_half() {
            true => plain,
            false => plain.plain(&["optimizer's place"]),
        }
    }

    /// The same work in fp32.
    pub fn in_fp32(&self) -> Self {
        self.plain(&["precision", "autocast", "scaler", "remainders"])
    }

    /// Whether every sum has one order wherever the blocks are, and every number is rounded alike. The norm over gradients
    /// is not, nor are the gradients that Burn adds up where a composed operator uses a tensor several times; and moments
    /// of few bits are rounded by their place, which is within a block or within a parameter.
    pub fn adds_in_one_order(&self) -> bool {
        let in_blocks = ["swiglu", "attention", "norm", "rope", "gelu"];
        !matches!(self.choice("clip"), "hard" | "before")
            && !self.rounds_by_place()
            && in_blocks.iter().all(|operator| self.is(operator, "custom"))
    }

    /// Whether moments are rounded in another way than at rest.
    pub fn rounds_by_place(&self) -> bool {
        self.has_compact_moments() && !self.is("strategy", "none")
    }

    /// Whether blocks or their optimizer are on the host.
    pub fn leaves_the_device(&self) -> bool {
        !self.is("strategy", "none") || self.is("optimizer's place", "host")
    }

    /// Whether the optimizer keeps moments in fewer than 32 bits.
    pub fn has_compact_moments(&self) -> bool {
        matches!(self.choice("optimizer"), "adamw8bit" | "adamw_bf16")
    }

    /// Whether weights are stored in 16 bits.
    pub fn stores_half(&self) -> bool {
        matches!(self.choice("precision"), "bf16" | "fp16") && self.is("autocast", "off")
    }

    /// The recipe, on a device.
    pub fn recipe(&self, device: &str) -> String {
        let mut lines = vec!["title = 'combination'".to_string(), format!("device = '{device}'")];
        for place in 0..FACTORS.len() {
            for (key, value) in self.of(place).1 {
                if *key == "pipeline" {
                    let chunks = if *value == "'interleaved'" { ", chunks = 2" } else { "" };
                    // A sequence each.
                    let (parts, _) = self.choice("batch").split_once(' ').expect("a number of them");
                    lines.push(format!(
                        "parallel.pipeline = {{ stages = 2, schedule = {value}, micro_batches = {parts}{chunks} }}"
                    ));
                } else {
                    lines.extend(self.model_line(key, value));
                }
            }
        }
        let has = |key: &str| self.family().is_some_and(|f| f.section.keys.iter().any(|k| k.name == key));
        if has("max_position_embeddings") {
            lines.push("model.max_position_embeddings = 72".into());
        }
        if !self.is("data", "random") {
            // A tokenizer of few tokens: every model knows them.
            lines.push("data.size = '24 KiB'".into());
            lines.push("data.vocab_size = 300".into());
        }
        lines.push(format!("measure.warmup = {}", if device == "cpu" { 0 } else { 2 }));
        lines.push("measure.steps = 3".into());
        lines.join("\n")
    }

    pub fn cell(&self, device: &str) -> Result<Cell, RecipeError> {
        let source = Source { path: PathBuf::from("combination.toml"), text: self.recipe(device) };
        Recipe::parse(&source).map(|recipe| recipe.cells.into_iter().next().expect("a recipe has a cell"))
    }
}

/// What is not plain.
impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen = FACTORS.iter().zip(&self.0).filter(|(_, choice)| **choice > 0);
        let words: Vec<String> =
            chosen.map(|(factor, choice)| format!("{} {}", factor.name, factor.choices[*choice].0)).collect();
        f.write_str(&words.join(", "))
    }
}
