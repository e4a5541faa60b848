//! [`MODELS`]: the networks, and what each of them has. Windows are shorter than most sequences, and bounds are near the first
//! scores and logits, so that they bend them.

use runner::model::families::Family;

use crate::combination::Combination;
use crate::factors::Factor;

/// How many there were when combinations got their numbers: those behind them have [numbers of their
/// own](crate::draw::LATER).
pub const FIRST_MODELS: usize = 5;

pub const MODELS: Factor = factor!(
    "model",
    ["llama", "model.kind" = "'llama'"],
    ["qwen2", "model.kind" = "'qwen2'"],
    ["gpt2", "model.kind" = "'gpt2'"],
    ["gpt2 with sinusoids", "model.kind" = "'gpt2'", "model.positions" = "'sinusoidal'"],
    ["swiglu", "model.kind" = "'swiglu'"],
    ["gptj", "model.kind" = "'gptj'", "model.rotary_dim" = "6"],
    ["qwen3", "model.kind" = "'qwen3'", "model.head_dim" = "26"],
    [
        "qwen2 with windows",
        "model.kind" = "'qwen2'",
        "model.sliding_window" = "5",
        "layer_types" = "",
        "model.rope_scaling" =
            r#"'{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}'"#,
    ],
    [
        "llama with biases",
        "model.kind" = "'llama'",
        "model.attention_bias" = "true",
        "model.mlp_bias" = "true",
        "model.rope_scaling" = r#"'''{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 16}'''"#,
    ],
    ["mistral", "model.kind" = "'mistral'", "model.sliding_window" = "5"],
    ["gemma", "model.kind" = "'gemma'"],
    [
        "gemma2",
        "model.kind" = "'gemma2'",
        "model.sliding_window" = "5",
        "model.query_pre_attn_scalar" = "11",
        "model.attn_logit_softcapping" = "0.02",
        "model.final_logit_softcapping" = "0.2",
    ],
    [
        "gemma3",
        "model.kind" = "'gemma3_text'",
        "model.sliding_window" = "9",
        "layer_types" = "",
        "model.query_pre_attn_scalar" = "11",
    ],
    ["phi3", "model.kind" = "'phi3'", "model.sliding_window" = "6", "rotary" = ""],
    [
        "phi3 with longrope",
        "model.kind" = "'phi3'",
        "model.head_dim" = "8",
        "model.rope_scaling" = r#"'''{"rope_type": "longrope", "original_max_position_embeddings": 12,
            "short_factor": [1.0, 1.1, 1.3, 1.6], "long_factor": [3.0, 9.0, 4.0, 6.0]}'''"#,
    ],
    ["phi", "model.kind" = "'phi'", "rotary" = ""],
    ["smollm3", "model.kind" = "'smollm3'", "no_rope_layers" = ""],
    ["olmo2", "model.kind" = "'olmo2'"],
    [
        "granite",
        "model.kind" = "'granite'",
        "model.embedding_multiplier" = "3.0",
        "model.attention_multiplier" = "0.21",
        "model.residual_multiplier" = "0.4",
        "model.logits_scaling" = "2.5",
    ],
    ["gpt_neox", "model.kind" = "'gpt_neox'", "rotary" = ""],
    [
        "gpt_neox in sequence",
        "model.kind" = "'gpt_neox'",
        "model.use_parallel_residual" = "false",
        "rotary" = "",
    ],
    ["opt", "model.kind" = "'opt'"],
    ["starcoder2", "model.kind" = "'starcoder2'", "model.sliding_window" = "7"],
    [
        "gpt2 with relu",
        "model.kind" = "'gpt2'",
        "model.activation" = "'relu'",
        "model.scale_attn_by_inverse_layer_idx" = "true",
    ],
    [
        "t5",
        "model.kind" = "'t5'",
        "model.head_dim" = "14",
        "model.num_decoder_layers" = "3",
        "model.relative_attention_num_buckets" = "12",
        "model.relative_attention_max_distance" = "17",
    ],
    [
        "t5 with a gate",
        "model.kind" = "'t5'",
        "model.activation" = "'gated-gelu'",
        "model.head_dim" = "9",
        "model.num_decoder_layers" = "1",
    ],
);

impl Combination {
    /// The family of its language model.
    pub fn family(&self) -> Option<&'static Family> {
        let kind = self.line("model", "model.kind").expect("every model has a kind");
        Family::of_kind(kind.trim_matches('\''))
    }

    /// The operators of its network, by their names in `[ops]`.
    pub fn operators(&self) -> Vec<&'static str> {
        let all = self.family().map_or(&["swiglu"][..], |family| family.operators);
        // An MLP with biases is linear layers and their gate.
        let opened = self.line("model", "model.mlp_bias").is_some();
        let without = match self.choice("model") {
            "t5" => "swiglu",
            "t5 with a gate" => "gelu",
            _ if opened => "swiglu",
            _ => "",
        };
        all.iter().filter(|name| **name != without).copied().collect()
    }

    pub fn has_operator(&self, name: &str) -> bool {
        self.operators().contains(&name)
    }

    /// Whether its MLP has the activation ReLU.
    pub fn has_relu(&self) -> bool {
        matches!(self.choice("model"), "opt" | "gpt2 with relu" | "t5")
    }

    /// The lines of a key of a model that depend on other choices.
    pub fn model_line(&self, key: &str, value: &str) -> Option<String> {
        let has = |key| self.family().is_some_and(|f| f.section.keys.iter().any(|known| known.name == key));
        let layers = || {
            let layers = self.choice("layers").parse().expect("a number of layers");
            (0..layers).map(|layer: usize| !layer.is_multiple_of(3))
        };
        let of_layers =
            |words: [&'static str; 2]| layers().map(|first| words[usize::from(!first)]).collect::<Vec<_>>();
        Some(match key {
            "heads" if self.family().is_none() => return None,
            "heads" => format!("model.num_attention_heads = {value}"),
            "kv_heads" if !has("num_key_value_heads") => return None,
            "kv_heads" => format!("model.num_key_value_heads = {value}"),
            "model.vocab_size" if self.family().is_none() => return None,
            "model.tie_word_embeddings" if !has("tie_word_embeddings") => return None,
            // About half of each head, in pairs.
            "rotary" => {
                let size = |key| self.line("width", key).and_then(|text| text.parse::<usize>().ok());
                let head = size("model.hidden_size").zip(size("heads")).map(|(all, heads)| all / heads);
                let head = head.expect("sizes of heads");
                format!("model.partial_rotary_factor = {}", (head / 4 * 2) as f64 / head as f64)
            }
            "layer_types" => {
                let types = of_layers(["\"sliding_attention\"", "\"full_attention\""]);
                format!("model.layer_types = '[{}]'", types.join(", "))
            }
            "no_rope_layers" => format!("model.no_rope_layers = '[{}]'", of_layers(["1", "0"]).join(", ")),
            "targets" => format!("tuning.target_modules = '{}'", self.targets()),
            _ => format!("{key} = {value}"),
        })
    }

    /// The linear layers with LoRA; where the MLP is one operator, those of attention.
    fn targets(&self) -> &'static str {
        match self.choice("model") {
            "llama" | "qwen2" => "q_proj, v_proj",
            "gpt2" | "gpt2 with sinusoids" => "c_attn, c_fc",
            "t5 with a gate" => "q, v, o",
            _ if self.has_operator("swiglu") => "k_proj, o_proj",
            _ => "all-linear",
        }
    }
}
