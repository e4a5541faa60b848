//! GPT-2 (Radford et al. 2019): LayerNorm, absolute positions, multi-head attention and a GELU MLP.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::parts::{Conv1d, Embedding, LayerNorm, Linear};
use super::stack::{self, Context, build, through};
use super::{Cache, Computation, LanguageNetwork, Shape, Tokens, attend, batch_bytes};
use crate::model::Outline;
use crate::model::config::{Gpt2Config, Positions};
use crate::ops::attention::{self, HeadSizes, Heads, attention_packed};
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::{self, WeightLayout};
use crate::ops::embedding::{self, Ids};
use crate::ops::gelu::{self, gelu};
use crate::ops::residual::residual;
use crate::ops::{cross_entropy, norm};
use crate::params::source::Source;
use crate::residence::{Blocks, Placement};

#[derive(Module, Debug)]
pub struct Gpt2 {
    transformer: Transformer,
    /// `None`: the embedding.
    lm_head: Option<Linear>,
    #[module(skip)]
    config: Gpt2Config,
    #[module(skip)]
    computation: Computation,
    #[module(skip)]
    sinusoids: Option<PositionalEncoding>,
    /// `None`: `transformer.h` holds them.
    #[module(skip)]
    offloaded: Option<Blocks>,
}

#[derive(Module, Debug)]
struct Transformer {
    wte: Embedding,
    /// `None`: sinusoidal positions.
    wpe: Option<Embedding>,
    h: Vec<Block>,
    ln_f: LayerNorm,
}

#[derive(Module, Debug)]
struct Block {
    ln_1: LayerNorm,
    attn: Attention,
    ln_2: LayerNorm,
    mlp: Mlp,
}

#[derive(Module, Debug)]
struct Attention {
    c_attn: Conv1d,
    c_proj: Conv1d,
}

#[derive(Module, Debug)]
struct Mlp {
    c_fc: Conv1d,
    c_proj: Conv1d,
}

impl Gpt2 {
    /// Positions up to `positions` can be read where they are sinusoidal; learned ones are as many as
    /// the configuration says. The blocks go where `placement` says.
    pub fn new(
        config: &Gpt2Config,
        positions: usize,
        source: &Source,
        computation: Computation,
        placement: Option<Placement>,
    ) -> Self {
        let hidden = config.hidden_size;
        let learned = config.positions == Positions::Learned;
        let wte = Embedding::new(source, "transformer.wte", config.vocab_size, hidden);
        let wpe = learned
            .then(|| Embedding::new(source, "transformer.wpe", config.max_position_embeddings, hidden));
        let (h, offloaded) = build(config, config.num_hidden_layers, source, placement);
        let ln_f = LayerNorm::new(source, "transformer.ln_f", hidden, config.layer_norm_eps);
        Self {
            transformer: Transformer { wte, wpe, h, ln_f },
            lm_head: (!config.tie_word_embeddings)
                .then(|| Linear::new(source, "lm_head", config.vocab_size, hidden, false)),
            config: config.clone(),
            computation,
            sinusoids: (!learned)
                .then(|| PositionalEncoding::new(positions, hidden, &source.device().clone().inner())),
            offloaded,
        }
    }

    /// Token and position embeddings added, in the type they are stored in.
    fn embed(&self, tokens: &Tokens) -> Tensor<2> {
        let x = self.transformer.wte.forward(&tokens.ids);
        // Sines and cosines are of size 1: the tokens' vectors are brought to theirs, as in the paper.
        let x = if self.sinusoids.is_some() { x * (self.config.hidden_size as f64).sqrt() } else { x };
        match (&self.transformer.wpe, &self.sinusoids) {
            (Some(learned), _) => residual(x, learned.forward(&tokens.positions)),
            (None, Some(table)) => residual(x, table.forward(&tokens.positions)),
            (None, None) => unreachable!("positions are learned or sinusoidal"),
        }
    }
}

impl stack::Block for Block {
    type Config = Gpt2Config;

    const PREFIX: &'static str = "transformer.h";

    fn new(config: &Gpt2Config, block: usize, source: &Source) -> Self {
        let name = format!("{}.{block}", Self::PREFIX);
        let (hidden, inner, depth) = (config.hidden_size, config.intermediate_size, config.num_hidden_layers);
        let norm =
            |part: &str| LayerNorm::new(source, &format!("{name}.{part}"), hidden, config.layer_norm_eps);
        let conv = |part: &str, inputs: usize, outputs: usize, depth: Option<usize>| {
            Conv1d::new(source, &format!("{name}.{part}"), inputs, outputs, depth)
        };
        Self {
            ln_1: norm("ln_1"),
            attn: Attention {
                c_attn: conv("attn.c_attn", hidden, 3 * hidden, None),
                c_proj: conv("attn.c_proj", hidden, hidden, Some(depth)),
            },
            ln_2: norm("ln_2"),
            mlp: Mlp {
                c_fc: conv("mlp.c_fc", hidden, inner, None),
                c_proj: conv("mlp.c_proj", inner, hidden, Some(depth)),
            },
        }
    }

    fn forward(
        &self,
        block: usize,
        x: Tensor<2>,
        context: &Context<Gpt2Config>,
        cache: Option<&mut Cache>,
    ) -> Tensor<2> {
        let Context { config, computation, heads, mask, .. } = context;
        let hidden = config.hidden_size;
        let qkv = self.attn.c_attn.forward(self.ln_1.forward(x.clone(), computation), computation);
        let o = match cache {
            None => attention_packed(qkv, *heads, mask, computation.arithmetic, computation.ops.attention),
            Some(cache) => {
                let parts = [0, 1, 2].map(|part| qkv.clone().narrow(1, part * hidden, hidden));
                attend(block, parts, *heads, mask, computation, Some(cache))
            }
        };
        let x = residual(x, self.attn.c_proj.forward(o, computation));
        let inner = self.mlp.c_fc.forward(self.ln_2.forward(x.clone(), computation), computation);
        residual(x, self.mlp.c_proj.forward(gelu(inner, computation.ops.gelu), computation))
    }
}

impl LanguageNetwork for Gpt2 {
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
        let hidden = self.config.hidden_size;
        let heads = Heads {
            batch: tokens.batch,
            sequence: tokens.sequence,
            kv_heads: self.config.num_attention_heads,
            group: 1,
            head_dim: hidden / self.config.num_attention_heads,
        };
        let context = Context::new(&self.config, self.computation, heads, tokens, None);
        let x = self.embed(tokens);
        let x = through(&self.transformer.h, self.offloaded.as_ref(), x, context, cache);
        self.transformer.ln_f.forward(x, &self.computation)
    }

    fn head(&self) -> &Param<Tensor<2>> {
        self.lm_head.as_ref().map_or(&self.transformer.wte.weight, |head| &head.weight)
    }
}

/// The operators in the order of [`stack::Block::forward`].
pub fn outline(config: &Gpt2Config, setting: &Setting) -> Outline {
    let [vocab, hidden, inner] =
        [config.vocab_size, config.hidden_size, config.intermediate_size].map(|size| size as u64);
    let heads = config.num_attention_heads as u64;
    let sizes = HeadSizes { heads, kv_heads: heads, head_dim: hidden / heads };
    let conv = |inputs, outputs| dense::cost(setting, [inputs, outputs], true, WeightLayout::InOut);
    let norm = || norm::cost(setting, hidden, 2);
    let (positions, tables) = match config.positions {
        Positions::Learned => {
            let rows = config.max_position_embeddings as u64;
            (embedding::cost(setting, [rows, hidden], false), 0)
        }
        Positions::Sinusoidal => (Cost::default(), setting.sequence * hidden * 4),
    };
    let tied = config.tie_word_embeddings;
    Outline {
        first: vec![Cost::sum(embedding::cost(setting, [vocab, hidden], tied), positions)],
        block: vec![
            Cost::residual(&[
                norm(),
                conv(hidden, 3 * hidden),
                attention::cost(setting, sizes),
                conv(hidden, hidden),
            ]),
            Cost::residual(&[norm(), conv(hidden, inner), gelu::cost(setting, inner), conv(inner, hidden)]),
        ],
        blocks: config.num_hidden_layers,
        last: vec![norm(), cross_entropy::cost(setting, [vocab, hidden], tied)],
        batch: batch_bytes(setting),
        tables,
    }
}

pub fn shape(config: &Gpt2Config) -> Shape {
    Shape {
        vocab_size: config.vocab_size,
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        layers: config.num_hidden_layers,
        heads: config.num_attention_heads,
        kv_heads: config.num_attention_heads,
        head_dim: config.head_dim(),
        gated: false,
        tied: config.tie_word_embeddings,
        parameters: config.parameters(),
    }
}

/// Sinusoidal positions (Vaswani et al. 2017), added to √hidden_size times the tokens' vectors: PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) the
/// cosine.
#[derive(Clone, Debug)]
pub struct PositionalEncoding {
    /// [positions, hidden_size] in fp32.
    table: Tensor<2>,
}

impl PositionalEncoding {
    pub fn new(positions: usize, hidden_size: usize, device: &Device) -> Self {
        let value = |p: usize, column: usize| {
            let angle = p as f64 / 10_000f64.powf((column / 2 * 2) as f64 / hidden_size as f64);
            (if column.is_multiple_of(2) { angle.sin() } else { angle.cos() }) as f32
        };
        let values: Vec<f32> =
            (0..positions).flat_map(|p| (0..hidden_size).map(move |column| value(p, column))).collect();
        let data = TensorData::new(values, [positions, hidden_size]);
        Self { table: Tensor::from_data(data, (device, DType::F32)) }
    }

    /// [tokens, hidden_size]
    pub fn forward(&self, positions: &Ids) -> Tensor<2> {
        positions.expect_rows(self.table.dims()[0], "positions");
        self.table.clone().select(0, positions.ids.clone())
    }
}
