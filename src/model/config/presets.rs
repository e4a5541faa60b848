//! Published models by name, with the dimensions of their `config.json`.

use super::gpt2::Gpt2Keys;
use super::llama::LlamaKeys;

/// One size of a Llama-like family.
struct LlamaSize {
    kind: &'static str,
    name: &'static str,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    layers: usize,
    heads: usize,
    key_value_heads: usize,
    positions: usize,
    rope_theta: f64,
    rms_norm_eps: f64,
    tied: bool,
}

#[rustfmt::skip]
const LLAMA_LIKE: [LlamaSize; 5] = [
    LlamaSize {
        kind: "qwen2", name: "qwen2.5-0.5b", vocab_size: 151_936, hidden_size: 896,
        intermediate_size: 4864, layers: 24, heads: 14, key_value_heads: 2, positions: 32_768,
        rope_theta: 1e6, rms_norm_eps: 1e-6, tied: true,
    },
    LlamaSize {
        kind: "qwen2", name: "qwen2.5-1.5b", vocab_size: 151_936, hidden_size: 1536,
        intermediate_size: 8960, layers: 28, heads: 12, key_value_heads: 2, positions: 131_072,
        rope_theta: 1e6, rms_norm_eps: 1e-6, tied: true,
    },
    LlamaSize {
        kind: "qwen2", name: "qwen2.5-3b", vocab_size: 151_936, hidden_size: 2048,
        intermediate_size: 11_008, layers: 36, heads: 16, key_value_heads: 2, positions: 32_768,
        rope_theta: 1e6, rms_norm_eps: 1e-6, tied: true,
    },
    LlamaSize {
        kind: "qwen2", name: "qwen2.5-7b", vocab_size: 152_064, hidden_size: 3584,
        intermediate_size: 18_944, layers: 28, heads: 28, key_value_heads: 4, positions: 131_072,
        rope_theta: 1e6, rms_norm_eps: 1e-6, tied: false,
    },
    LlamaSize {
        kind: "llama", name: "smollm2-135m", vocab_size: 49_152, hidden_size: 576,
        intermediate_size: 1536, layers: 30, heads: 9, key_value_heads: 3, positions: 8192,
        rope_theta: 1e5, rms_norm_eps: 1e-5, tied: true,
    },
];

/// Name, hidden size, layers, heads.
const GPT2: [(&str, usize, usize, usize); 4] = [
    ("gpt2", 768, 12, 12),
    ("gpt2-medium", 1024, 24, 16),
    ("gpt2-large", 1280, 36, 20),
    ("gpt2-xl", 1600, 48, 25),
];

/// The presets of a kind of model.
pub fn names(kind: &str) -> Vec<&'static str> {
    let gpt2 = GPT2.iter().map(|(name, ..)| ("gpt2", *name));
    let all = LLAMA_LIKE.iter().map(|size| (size.kind, size.name)).chain(gpt2);
    all.filter(|(of, _)| *of == kind).map(|(_, name)| name).collect()
}

pub fn llama_like(kind: &str, name: &str) -> Option<LlamaKeys> {
    let size = LLAMA_LIKE.iter().find(|size| size.kind == kind && size.name == name)?;
    Some(LlamaKeys {
        vocab_size: Some(size.vocab_size),
        hidden_size: Some(size.hidden_size),
        intermediate_size: Some(size.intermediate_size),
        num_hidden_layers: Some(size.layers),
        num_attention_heads: Some(size.heads),
        num_key_value_heads: Some(size.key_value_heads),
        max_position_embeddings: Some(size.positions),
        rope_theta: Some(size.rope_theta),
        rms_norm_eps: Some(size.rms_norm_eps),
        tie_word_embeddings: Some(size.tied),
        ..LlamaKeys::default()
    })
}

pub fn gpt2(name: &str) -> Option<Gpt2Keys> {
    let (_, hidden, layers, heads) = GPT2.into_iter().find(|(preset, ..)| *preset == name)?;
    Some(Gpt2Keys {
        vocab_size: Some(50_257),
        hidden_size: Some(hidden),
        num_hidden_layers: Some(layers),
        num_attention_heads: Some(heads),
        ..Gpt2Keys::default()
    })
}
