//! Whether a folder holds exactly the tensors that a model expects.

use std::collections::{BTreeMap, BTreeSet};

use super::convert::Float;
use super::{Weights, WeightsError};

/// The output projection, which is absent where it is the embedding.
const HEAD: &str = "lm_head.weight";
/// Endings of the embeddings that a head can be tied to.
const EMBEDDINGS: [&str; 2] = ["embed_tokens.weight", "wte.weight"];
/// Endings of constants that older files carry along: causal masks and rotary frequencies.
const BUFFERS: [&str; 3] = [".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"];

/// The keys of config.json that give the sizes of a tensor, by a part of its name; the first counts.
const SIZED_BY: [(&str, &str); 9] = [
    ("embed_tokens.", "vocab_size, hidden_size"),
    ("lm_head.", "vocab_size, hidden_size"),
    (".wte.", "vocab_size, n_embd"),
    (".wpe.", "n_positions, n_embd"),
    (".self_attn.", "num_attention_heads, num_key_value_heads, head_dim, hidden_size"),
    (".mlp.c_", "n_inner, n_embd"),
    (".mlp.", "intermediate_size, hidden_size"),
    ("transformer.", "n_embd"),
    ("model.", "hidden_size"),
];

/// The keys of config.json that say whether there is such a tensor.
fn named_by(name: &str) -> &'static str {
    match name {
        HEAD => " (tie_word_embeddings)",
        _ if name.contains("layers.") => " (num_hidden_layers)",
        _ if name.contains(".h.") || name.starts_with("h.") => " (n_layer)",
        _ => "",
    }
}

fn sized_by(name: &str) -> String {
    let found = SIZED_BY.iter().find(|(part, _)| name.contains(part));
    found.map_or_else(String::new, |(_, keys)| format!(" ({keys})"))
}

impl Weights {
    /// Compares with the tensors of a model, as name and shape.
    ///
    /// Buffers of older files are ignored; a head beside the embedding it is tied to may stand in
    /// the file if the two are equal.
    ///
    /// # Errors
    /// Every missing, extra, wrongly shaped or unreadable tensor, in one error.
    pub fn check(&self, expected: &[(String, Vec<usize>)]) -> Result<(), WeightsError> {
        let mut problems = Vec::new();
        let mut used = BTreeSet::new();
        for (name, shape) in expected {
            let Some(view) = self.find(name) else {
                problems.push(format!("  missing: {name} {shape:?}{}", named_by(name)));
                continue;
            };
            if view.shape != *shape {
                let (found, keys) = (view.shape, sized_by(name));
                problems.push(format!("  wrong shape: {name} is {found:?}, expected {shape:?}{keys}"));
            } else if Float::of(view.dtype).is_none() {
                problems
                    .push(format!("  wrong dtype: {name} is {:?}, expected F32, F16 or BF16", view.dtype));
            }
            used.insert(view.name);
        }
        let shapes: BTreeMap<_, _> = expected.iter().map(|(name, shape)| (name.as_str(), shape)).collect();
        for name in self.names().filter(|name| !used.contains(*name)) {
            if BUFFERS.iter().any(|ending| name.ends_with(ending)) {
                continue;
            }
            let embedding = shapes.keys().find(|n| EMBEDDINGS.iter().any(|ending| n.ends_with(ending)));
            match embedding {
                Some(embedding) if name == HEAD => {
                    if !self.equal(HEAD, embedding) {
                        problems.push(format!(
                            "  {HEAD} is not equal to {embedding}, but the model ties the two: set \
                             tie_word_embeddings to false in config.json if the head is its own"
                        ));
                    }
                }
                _ => problems.push(format!("  unexpected: {name}{}", named_by(name))),
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(WeightsError::Mismatch { folder: self.folder().to_path_buf(), problems })
    }

    fn equal(&self, a: &str, b: &str) -> bool {
        match (self.find(a), self.find(b)) {
            (Some(a), Some(b)) => a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes,
            _ => false,
        }
    }
}
