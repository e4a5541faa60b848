//! Whether a folder holds exactly the tensors that a model expects.

use std::collections::BTreeSet;

use super::{Weights, float};
use crate::params::table::{Entry, Group, Table};

/// The output projection, which is absent where it is the embedding, and what its parameters begin with.
pub const HEAD: &str = "lm_head.weight";
const OF_HEAD: &str = "lm_head.";
/// Endings of the embeddings that a head can be tied to.
const EMBEDDINGS: [&str; 3] = ["embed_tokens.weight", "wte.weight", "shared.weight"];
/// The last parts of names of constants that older files carry along: causal masks, rotary frequencies and positions.
const BUFFERS: [&str; 8] = [
    "masked_bias",
    "inv_freq",
    "original_inv_freq",
    "cos_cached",
    "sin_cached",
    "embed_positions",
    "scale_attn",
    "position_ids",
];
/// GPT-2's and GPT-J's causal mask; their layers of attention have no bias of this name.
const MASK: &str = ".attn.bias";
/// A table that T5's first files have, and no model reads.
const UNUSED: &str = ".EncDecAttention.relative_attention_bias.weight";

/// Problems that an error lists.
const MOST: usize = 20;

/// The keys of config.json that give the sizes of a tensor, by a part of its name; the first counts.
const SIZED_BY: [(&str, &str); 14] = [
    ("relative_attention_bias.", "relative_attention_num_buckets, num_heads"),
    ("shared.", "vocab_size, d_model"),
    ("DenseReluDense.", "d_ff, d_model"),
    (".layer.", "num_heads, d_kv, d_model"),
    ("embed_tokens.", "vocab_size, hidden_size"),
    ("lm_head.", "vocab_size, hidden_size"),
    (".wte.", "vocab_size, n_embd"),
    (".wpe.", "n_positions, n_embd"),
    (".self_attn.", "num_attention_heads, num_key_value_heads, head_dim, hidden_size"),
    (".mlp.c_", "n_inner, n_embd"),
    (".mlp.fc_", "n_inner, n_embd"),
    (".mlp.", "intermediate_size, hidden_size"),
    ("transformer.", "n_embd"),
    ("model.", "hidden_size"),
];

/// The keys of config.json that say whether there is such a tensor.
fn named_by(name: &str) -> &'static str {
    match name {
        HEAD => " (tie_word_embeddings)",
        _ if name.starts_with("encoder.block.") => " (num_layers)",
        _ if name.starts_with("decoder.block.") => " (num_decoder_layers)",
        _ if name.contains("layers.") => " (num_hidden_layers)",
        _ if name.contains(".h.") || name.starts_with("h.") => " (n_layer)",
        _ => "",
    }
}

/// Whether it is an embedding that a head can be tied to.
pub fn is_embedding(name: &str) -> bool {
    EMBEDDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether it is a constant that follows from the model's sizes.
fn is_buffer(name: &str) -> bool {
    name.ends_with(MASK)
        || name.ends_with(UNUSED)
        || name.rsplit('.').next().is_some_and(|last| BUFFERS.contains(&last))
}

fn sized_by(name: &str) -> String {
    let found = SIZED_BY.iter().find(|(part, _)| name.contains(part));
    found.map_or_else(String::new, |(_, keys)| format!(" ({keys})"))
}

impl Weights {
    /// Compares with the parameters of a model; those of adapters are in its files where training was interrupted.
    ///
    /// Buffers of older files and parts that read other than text are ignored. A file may have a head that is `tied` to the
    /// embedding if the two are equal, or the head alone.
    ///
    /// # Errors
    /// Every missing, extra, wrongly shaped or unreadable tensor, in one error.
    pub fn check(&self, expected: &Table, tied: bool) -> Result<(), String> {
        let (mut problems, used) = self.problems(expected, tied);
        let unused =
            self.names().filter(|name| !used.contains(*name) && !is_buffer(name) && !self.is_other(name));
        problems.extend(unused.filter_map(|name| self.unexpected(name, expected)));
        if problems.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the weights in {} do not fit the model that its config.json describes:\n{}\n{}",
            self.folder.display(),
            shortened(&problems, MOST),
            self.help(expected, tied),
        ))
    }

    /// What is wrong with the expected tensors, and the stored ones that fit.
    fn problems(&self, expected: &Table, tied: bool) -> (Vec<String>, BTreeSet<&str>) {
        let (mut problems, mut used) = (Vec::new(), BTreeSet::new());
        for entry @ Entry { name, shape, group, .. } in &expected.entries {
            let found = self.stored(name).filter(|(stored, _)| tied || name == HEAD || *stored != HEAD);
            let (Some((stored, _)), Some(tensor)) = (found, self.get(name)) else {
                if !group.is_added() {
                    problems.push(format!("  missing: {name} {shape:?}{}", named_by(name)));
                }
                continue;
            };
            // A state of training has packed weights as they are.
            if tensor.shape() != shape && tensor.shape() != entry.stored_shape() {
                let (found, keys) = (tensor.shape(), sized_by(name));
                problems.push(format!("  wrong shape: {name} is {found:?}, expected {shape:?}{keys}"));
            } else if float(tensor.dtype()).is_none() {
                let found = tensor.dtype();
                problems.push(format!("  wrong dtype: {name} is {found:?}, expected F32, F16 or BF16"));
            }
            used.insert(stored);
        }
        (problems, used)
    }

    /// What is wrong with a stored tensor that no parameter takes its values from.
    fn unexpected(&self, name: &str, expected: &Table) -> Option<String> {
        // A classifier is in its place.
        if name.starts_with(OF_HEAD) && expected.entries.iter().any(|e| e.group == Group::Classifier) {
            return None;
        }
        let embedding =
            expected.entries.iter().map(|entry| entry.name.as_str()).find(|name| is_embedding(name));
        match embedding.filter(|_| name == HEAD || is_embedding(name)) {
            None => Some(format!("  unexpected: {name}{}", named_by(name))),
            Some(embedding) if self.equal(name, embedding) => None,
            Some(embedding) if name == HEAD => Some(format!(
                "  {HEAD} is not equal to {embedding}, but the model ties the two: set tie_word_embeddings to false \
                 in config.json if the head is its own"
            )),
            Some(embedding) => {
                Some(format!("  {name} is not equal to {embedding}, and the model has one of them"))
            }
        }
    }

    /// What to change if something is wrong.
    fn help(&self, expected: &Table, tied: bool) -> String {
        let headless = !tied && self.is_bare() && self.get(HEAD).is_none();
        if headless && expected.entries.iter().any(|entry| entry.name == HEAD) {
            return "the file was saved from the model without its head: save it from AutoModelForCausalLM"
                .into();
        }
        let config = self.folder.join("config.json");
        format!(
            "correct the keys of {}, or take the config.json that belongs to the weights",
            config.display()
        )
    }

    fn equal(&self, a: &str, b: &str) -> bool {
        let contents = |name| self.get(name).map(|t| (t.dtype(), t.shape().to_vec(), t.data()));
        contents(a).is_some() && contents(a) == contents(b)
    }
}

/// The first problems, one a line, and how many more there are.
pub fn shortened(problems: &[String], most: usize) -> String {
    let mut lines = problems[..problems.len().min(most)].to_vec();
    let more = problems.len() - lines.len();
    lines.extend((more > 0).then(|| format!("  and {more} more")));
    lines.join("\n")
}
