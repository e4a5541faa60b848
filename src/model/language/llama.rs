//! Llama (Touvron et al. 2023) and Qwen2 (Yang et al. 2024): RMSNorm, rotary positions, grouped
//! queries and SwiGLU; Qwen2 has biases on q, k and v.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::parts::{Embedding, Linear, RmsNorm};
use super::stack::{Block, Context, build, through};
use super::{Cache, Computation, LanguageNetwork, Shape, Tokens, attend, batch_bytes};
use crate::model::Outline;
use crate::model::config::LlamaConfig;
use crate::ops::attention::{self, HeadSizes, Heads};
use crate::ops::autocast::weight;
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::{self, WeightLayout};
use crate::ops::residual::residual;
use crate::ops::rope::{self, Rotation, rope};
use crate::ops::swiglu::{self, swiglu};
use crate::ops::{cross_entropy, embedding, norm};
use crate::params::source::Source;
use crate::residence::{Blocks, Placement};

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
    /// `None`: `model.layers` holds them.
    #[module(skip)]
    offloaded: Option<Blocks>,
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
    /// Positions up to `positions` can be read. The blocks go where `placement` says.
    pub fn new(
        config: &LlamaConfig,
        positions: usize,
        source: &Source,
        computation: Computation,
        placement: Option<Placement>,
    ) -> Self {
        let hidden = config.hidden_size;
        let embed_tokens = Embedding::new(source, "model.embed_tokens", config.vocab_size, hidden);
        let (layers, offloaded) = build(config, config.num_hidden_layers, source, placement);
        let norm = RmsNorm::new(source, "model.norm", hidden, config.rms_norm_eps);
        Self {
            model: Decoder { embed_tokens, layers, norm },
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
            offloaded,
        }
    }
}

impl Block for Layer {
    type Config = LlamaConfig;

    const PREFIX: &'static str = "model.layers";

    fn new(config: &LlamaConfig, block: usize, source: &Source) -> Self {
        let name = format!("{}.{block}", Self::PREFIX);
        let (hidden, inner, bias) = (config.hidden_size, config.intermediate_size, config.attention_bias);
        let queries = config.num_attention_heads * config.head_dim;
        let keys = config.num_key_value_heads * config.head_dim;
        let norm = |part: &str| RmsNorm::new(source, &format!("{name}.{part}"), hidden, config.rms_norm_eps);
        let linear = |part: &str, outputs: usize, inputs: usize, bias: bool| {
            Linear::new(source, &format!("{name}.{part}"), outputs, inputs, bias)
        };
        Self {
            input_layernorm: norm("input_layernorm"),
            self_attn: Attention {
                q_proj: linear("self_attn.q_proj", queries, hidden, bias),
                k_proj: linear("self_attn.k_proj", keys, hidden, bias),
                v_proj: linear("self_attn.v_proj", keys, hidden, bias),
                o_proj: linear("self_attn.o_proj", hidden, queries, false),
            },
            post_attention_layernorm: norm("post_attention_layernorm"),
            mlp: Mlp {
                gate_proj: linear("mlp.gate_proj", inner, hidden, false),
                up_proj: linear("mlp.up_proj", inner, hidden, false),
                down_proj: linear("mlp.down_proj", hidden, inner, false),
            },
        }
    }

    fn forward(
        &self,
        block: usize,
        x: Tensor<2>,
        context: &Context<LlamaConfig>,
        cache: Option<&mut Cache>,
    ) -> Tensor<2> {
        let Context { computation, heads, mask, positions, rotation, .. } = context;
        let rotation = rotation.as_ref().expect("given by the network");
        let normal = self.input_layernorm.forward(x.clone(), computation);
        let Attention { q_proj, k_proj, v_proj, o_proj } = &self.self_attn;
        let turn = |x| rope(x, rotation, positions, computation.ops.rope);
        let q = turn(q_proj.forward(normal.clone(), computation));
        let k = turn(k_proj.forward(normal.clone(), computation));
        let v = v_proj.forward(normal, computation);
        let o = attend(block, [q, k, v], *heads, mask, computation, cache);
        let x = residual(x, o_proj.forward(o, computation));
        let normal = self.post_attention_layernorm.forward(x.clone(), computation);
        residual(x, self.mlp.forward(normal, computation))
    }
}

impl LanguageNetwork for Llama {
    fn layers(&self) -> usize {
        self.config.num_hidden_layers
    }

    fn offloaded(&self) -> Option<&Blocks> {
        self.offloaded.as_ref()
    }

    fn computation(&self) -> &Computation {
        &self.computation
    }

    fn hidden(&self, tokens: &Tokens, cache: Option<&mut Cache>) -> Tensor<2> {
        let heads = Heads {
            batch: tokens.batch,
            sequence: tokens.sequence,
            kv_heads: self.config.num_key_value_heads,
            group: self.config.num_attention_heads / self.config.num_key_value_heads,
            head_dim: self.config.head_dim,
        };
        let x = self.model.embed_tokens.forward(&tokens.ids);
        let context = Context::new(&self.config, self.computation, heads, tokens, Some(&self.rotation));
        let x = through(&self.model.layers, self.offloaded.as_ref(), x, context, cache);
        self.model.norm.forward(x, &self.computation)
    }

    fn head(&self) -> &Param<Tensor<2>> {
        self.lm_head.as_ref().map_or(&self.model.embed_tokens.weight, |head| &head.weight)
    }
}

impl Mlp {
    fn forward(&self, x: Tensor<2>, computation: &Computation) -> Tensor<2> {
        let [gate, up, down] = [&self.gate_proj, &self.up_proj, &self.down_proj].map(|l| weight(&l.weight));
        let Computation { arithmetic, ops, level } = *computation;
        swiglu(x, gate, up, down, WeightLayout::OutIn, level, ops.swiglu, arithmetic)
    }
}

/// The operators in the order of [`Block::forward`].
pub fn outline(config: &LlamaConfig, setting: &Setting) -> Outline {
    let [vocab, hidden, inner, heads, kv_heads, head_dim] = [
        config.vocab_size,
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
    ]
    .map(|size| size as u64);
    let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
    let linear = |inputs, outputs, bias| dense::cost(setting, [inputs, outputs], bias, WeightLayout::OutIn);
    let projection = |columns| linear(hidden, columns, config.attention_bias);
    let turned =
        |heads| Cost::sequence(&[projection(heads * head_dim), rope::cost(setting, heads, head_dim)]);
    let norm = || norm::cost(setting, hidden, 1);
    let tied = config.tie_word_embeddings;
    Outline {
        first: vec![embedding::cost(setting, [vocab, hidden], tied)],
        block: vec![
            Cost::residual(&[
                norm(),
                Cost::fan(&[turned(heads), turned(kv_heads), projection(keys)]),
                attention::cost(setting, HeadSizes { heads, kv_heads, head_dim }),
                linear(queries, hidden, false),
            ]),
            Cost::residual(&[norm(), swiglu::cost(setting, [hidden, inner], WeightLayout::OutIn)]),
        ],
        blocks: config.num_hidden_layers,
        last: vec![norm(), cross_entropy::cost(setting, [vocab, hidden], tied)],
        batch: batch_bytes(setting),
        // Cosines and sines of every position.
        tables: setting.sequence * head_dim * 4,
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
