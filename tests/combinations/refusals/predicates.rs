//! What several refusals ask of a combination.

use crate::combination::Combination;

pub fn swiglu(c: &Combination) -> bool {
    c.is("model", "swiglu")
}

/// Whether the network has an encoder and a decoder.
pub fn pairs(c: &Combination) -> bool {
    c.choice("model").starts_with("t5")
}

pub fn moves(c: &Combination) -> bool {
    !c.is("strategy", "none")
}

pub fn sampled(c: &Combination) -> bool {
    !matches!(c.choice("data"), "random" | "blocks")
}

/// Whether an operator is plain in a network that does not have it.
pub fn lacks(c: &Combination, operator: &str) -> bool {
    c.is(operator, "plain") && !c.has_operator(operator)
}

/// Whether no layer of the network has a bias.
pub fn lacks_biases(c: &Combination) -> bool {
    let without = ["llama", "qwen3", "mistral", "gemma", "gemma2", "gemma3", "smollm3", "olmo2", "granite"];
    without.contains(&c.choice("model")) || c.choice("model").starts_with("phi3") || pairs(c)
}

pub fn by_sgd(c: &Combination) -> bool {
    matches!(c.choice("optimizer"), "sgd" | "momentum")
}

pub fn parallel(c: &Combination) -> bool {
    !c.is("ranks", "one")
}

pub fn recorded(c: &Combination) -> bool {
    c.is("graph", "yes")
}

pub fn accumulates(c: &Combination) -> bool {
    !c.is("accumulation", "1")
}

pub fn replicated(c: &Combination) -> bool {
    c.shards() || matches!(c.choice("ranks"), "2 replicas" | "2 x 2")
}
