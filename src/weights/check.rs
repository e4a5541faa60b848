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
                problems.push(format!("  missing: {name} {shape:?}"));
                continue;
            };
            if view.shape != *shape {
                problems.push(format!("  wrong shape: {name} is {:?}, expected {shape:?}", view.shape));
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
                _ => problems.push(format!("  unexpected: {name}")),
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
