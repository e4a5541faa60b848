//! Llama (Touvron et al. 2023) and Qwen2 (Yang et al. 2024): RMSNorm, rotary positions, grouped
//! queries and SwiGLU; Qwen2 has biases on q, k and v.

use burn::module::Module;
use burn::tensor::Tensor;

use super::memory::Shape;
use super::parts::{Embedding, Linear, RmsNorm};
use super::{Cache, Computation, LanguageNetwork, Tokens, attend};
use crate::model::config::LlamaConfig;
use crate::model::source::Source;
use crate::ops::attention::Heads;
use crate::ops::dense::WeightLayout;
use crate::ops::residual::residual;
use crate::ops::rope::{Rotation, rope};
use crate::ops::swiglu::swiglu;

#[derive(Module, Debug)]
pub struct Llama {
    model: Decoder,
    /// `None`: the embedding.
    lm_head: Option<Linear>,
    #[module(skip)]
    config: LlamaConfig,
    #[module(skip)]
    computation: Computation,
    #[module(skip)]
    rotation: Rotation,
}

#[derive(Module, Debug)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
}

#[derive(Module, Debug)]
struct Layer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

#[derive(Module, Debug)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
}

#[derive(Module, Debug)]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Llama {
    /// Positions up to `positions` can be read.
    pub fn new(config: &LlamaConfig, positions: usize, source: &Source, computation: Computation) -> Self {
        let hidden = config.hidden_size;
        let norm = |name: &str| RmsNorm::new(source, name, hidden, config.rms_norm_eps);
        let layer = |i: usize| {
            let name = format!("model.layers.{i}");
            let linear = |part: &str, outputs: usize, inputs: usize, bias: bool| {
                Linear::new(source, &format!("{name}.{part}"), outputs, inputs, bias)
            };
            let queries = config.num_attention_heads * config.head_dim;
            let keys = config.num_key_value_heads * config.head_dim;
            let (bias, inner) = (config.attention_bias, config.intermediate_size);
            Layer {
                input_layernorm: norm(&format!("{name}.input_layernorm")),
                self_attn: Attention {
                    q_proj: linear("self_attn.q_proj", queries, hidden, bias),
                    k_proj: linear("self_attn.k_proj", keys, hidden, bias),
                    v_proj: linear("self_attn.v_proj", keys, hidden, bias),
                    o_proj: linear("self_attn.o_proj", hidden, queries, false),
                },
                post_attention_layernorm: norm(&format!("{name}.post_attention_layernorm")),
                mlp: Mlp {
                    gate_proj: linear("mlp.gate_proj", inner, hidden, false),
                    up_proj: linear("mlp.up_proj", inner, hidden, false),
                    down_proj: linear("mlp.down_proj", hidden, inner, false),
                },
            }
        };
        Self {
            model: Decoder {
                embed_tokens: Embedding::new(source, "model.embed_tokens", config.vocab_size, hidden),
                layers: (0..config.num_hidden_layers).map(layer).collect(),
                norm: norm("model.norm"),
            },
            lm_head: (!config.tie_word_embeddings)
                .then(|| Linear::new(source, "lm_head", config.vocab_size, hidden, false)),
            config: config.clone(),
            computation,
            rotation: Rotation::new(
                positions,
                config.head_dim,
                config.rope_theta,
                &source.device().clone().inner(),
            ),
        }
    }
}

impl LanguageNetwork for Llama {
    fn layers(&self) -> usize {
        self.model.layers.len()
    }

    fn computation(&self) -> &Computation {
        &self.computation
    }

    fn hidden(&self, tokens: &Tokens, mut cache: Option<&mut Cache>) -> Tensor<2> {
        let heads = Heads {
            batch: tokens.batch,
            sequence: tokens.sequence,
            kv_heads: self.config.num_key_value_heads,
            group: self.config.num_attention_heads / self.config.num_key_value_heads,
            head_dim: self.config.head_dim,
        };
        let mut x = self.model.embed_tokens.forward(&tokens.ids);
        for (i, layer) in self.model.layers.iter().enumerate() {
            let computation = &self.computation;
            let normal = layer.input_layernorm.forward(x.clone(), computation);
            let Attention { q_proj, k_proj, v_proj, o_proj } = &layer.self_attn;
            let turn = |x| rope(x, &self.rotation, &tokens.positions.ids, computation.ops.rope);
            let q = turn(q_proj.forward(normal.clone(), computation));
            let k = turn(k_proj.forward(normal.clone(), computation));
            let v = v_proj.forward(normal, computation);
            let o = attend(i, [q, k, v], heads, &tokens.mask, computation, cache.as_deref_mut());
            x = residual(x, o_proj.forward(o, computation));
            let normal = layer.post_attention_layernorm.forward(x.clone(), computation);
            x = residual(x, layer.mlp.forward(normal, computation));
        }
        self.model.norm.forward(x, &self.computation)
    }

    fn head(&self) -> Tensor<2> {
        self.lm_head.as_ref().map_or_else(|| self.model.embed_tokens.weight.val(), |head| head.weight.val())
    }
}

impl Mlp {
    fn forward(&self, x: Tensor<2>, computation: &Computation) -> Tensor<2> {
        let [gate, up, down] = [&self.gate_proj, &self.up_proj, &self.down_proj].map(|l| l.weight.val());
        let Computation { arithmetic, ops, level } = *computation;
        swiglu(x, gate, up, down, WeightLayout::OutIn, level, ops.swiglu, arithmetic)
    }
}

pub fn shape(config: &LlamaConfig) -> Shape {
    Shape {
        vocab_size: config.vocab_size,
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        layers: config.num_hidden_layers,
        heads: config.num_attention_heads,
        kv_heads: config.num_key_value_heads,
        head_dim: config.head_dim,
        gated: true,
        tied: config.tie_word_embeddings,
        parameters: config.parameters(),
    }
}
