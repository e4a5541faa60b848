//! GPT-J (Wang and Komatsuzaki 2021): attention and a GELU MLP read the same LayerNorm, and both are added to the residual
//! stream. Rotary positions turn a part of each head, in pairs of neighbours. The head has a bias.

use burn::module::Module;
use burn::tensor::Tensor;
use serde_json::{Map, Value, json};

use super::Family;
use crate::keys::Section;
use crate::keys::key::DefaultValue::{Depends, Number, Whole};
use crate::keys::values::{COUNT, LAYERS, POSITIVE};
use crate::model::config::{ConfigFile, dimensions, head_dim, size, tied};
use crate::model::language::parts::{Linear, Norm, NormKind, adds_residual, linear_cost};
use crate::model::language::{Block, Context, LayerCache, Outline, Positions, RotaryAttention, RotarySizes};
use crate::ops::cost::{Cost, Setting};
use crate::ops::dense::WeightLayout;
use crate::ops::gelu;
use crate::ops::rope::Pairs;
use crate::ops::tensor_parallel::sum_cost;
use crate::params::source::Source;
use crate::params::split::Side;
use crate::params::table::Tuning;

dimensions! {
    /// Dimensions of a GPT-J decoder.
    GptJConfig, GptJKeys {
        /// Columns of the residual stream.
        hidden_size: usize = size(COUNT), "n_embd";
        /// Columns inside the MLP.
        intermediate_size: usize = size(COUNT).default(Depends("4 x hidden_size")), "n_inner";
        /// Transformer blocks.
        num_hidden_layers: usize = size(LAYERS).called("layers"), "n_layer";
        /// Heads.
        num_attention_heads: usize = size(COUNT).called("heads"), "n_head";
        /// How many elements of each head rotary positions turn, from the first on; even.
        rotary_dim: usize = size(COUNT).default(Whole(64)), "rotary_dim";
        /// Rows of the token embedding.
        vocab_size: usize =
            size(COUNT).called("vocabulary").follows(&["model.preset", "data.vocab_size"]), "vocab_size";
        /// Longest sequence, in tokens.
        max_position_embeddings: usize =
            size(COUNT).default(Whole(2048)).called("longest sequence"), "n_positions";
        /// Added to the variance before its root.
        layer_norm_eps: f64 = size(POSITIVE).default(Number(1e-5)), "layer_norm_epsilon";
        /// Whether the output projection is the embedding. It never is in GPT-J, so only false is taken.
        tie_word_embeddings: bool = tied(false), "tie_word_embeddings";
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct GptJ;

/// Base of the rotary wavelengths.
const THETA: f64 = 10_000.0;

impl GptJConfig {
    fn attention(&self) -> RotarySizes {
        let sizes = self.sizes();
        let pairs = Pairs { head_dim: sizes.head_dim, turned: self.rotary_dim, neighbours: true };
        sizes.rotary(pairs, false)
    }
}

impl Family for GptJ {
    const KIND: &'static str = "gptj";

    const PRESETS: &'static [(&'static str, &'static str)] =
        &[("gpt-j-6b", include_str!("presets/gpt-j-6b.json"))];

    const SECTION: Section = Section::of("model", "kind", &["gptj"]).with(
        "Attention and a GELU MLP that read the same LayerNorm, rotary positions on a part of each head, and a head with a \
         bias.",
        GptJKeys::KEYS,
    );

    const IN_FILE: &'static [&'static str] = GptJKeys::IN_FILE;

    const OPERATORS: &'static [&'static str] = &["gelu", "attention", "loss", "norm", "rope"];

    const LAYOUT: WeightLayout = WeightLayout::OutIn;

    type Config = GptJConfig;
    type Keys = GptJKeys;
    type Block = Layer;

    fn complete(keys: &mut GptJKeys) -> Result<(), String> {
        let [hidden_size, heads] =
            [keys.hidden_size, keys.num_attention_heads].map(Option::unwrap_or_default);
        let head_dim = head_dim(hidden_size, heads)?;
        let turned = keys.rotary_dim.unwrap_or_default();
        if !turned.is_multiple_of(2) || turned > head_dim {
            return Err(format!(
                "rotary_dim {turned} of heads of {head_dim} elements: rotary positions turn elements in pairs; make \
                 it even and at most {head_dim}"
            ));
        }
        if keys.tie_word_embeddings == Some(true) {
            return Err(
                "tie_word_embeddings is true, and GPT-J's head has a weight and a bias of its own; remove the key"
                    .into(),
            );
        }
        keys.intermediate_size.get_or_insert(4 * hidden_size);
        Ok(())
    }

    fn read(file: &ConfigFile, _written: &mut Map<String, Value>) -> Result<(), String> {
        if file.has("rotary_dim") && file.get("rotary_dim").is_none() {
            return Err("rotary_dim is null, which transformers does not load either; write how many elements of each head \
                        rotary positions turn"
                .into());
        }
        file.only("rotary", json!(true))?;
        file.only("activation_function", json!("gelu_new"))
    }

    fn write(_: &GptJConfig, file: &mut Map<String, Value>) {
        file.insert("architectures".into(), json!(["GPTJForCausalLM"]));
        file.insert("activation_function".into(), json!("gelu_new"));
    }

    fn outline(config: &GptJConfig) -> Outline {
        Outline {
            shape: config.sizes(),
            tokens: "transformer.wte",
            blocks: "transformer.h",
            norm: "transformer.ln_f",
            norm_kind: NormKind::Layer(config.layer_norm_eps),
            positions: Positions::Rotary { pairs: config.attention().pairs, theta: THETA },
            head_bias: true,
        }
    }

    fn block_operators(config: &GptJConfig, setting: &Setting, tuning: &Tuning) -> Vec<Cost> {
        let [hidden, inner] = [config.hidden_size, config.intermediate_size].map(|size| size as u64);
        let inner = setting.part(inner);
        let linear = |layer, sizes, bias| linear_cost(setting, tuning, layer, sizes, bias, Self::LAYOUT);
        let sizes = config.attention().of_rank(setting);
        let [columns, _] = sizes.columns();
        let [projections, attended] = RotaryAttention::cost(setting, tuning, &sizes);
        let attention = [projections, attended, linear(("out_proj", Side::Inputs), [columns, hidden], false)];
        let mlp = [
            linear(("fc_in", Side::Outputs { parts: 1 }), [hidden, inner], true),
            gelu::cost(setting, inner),
            linear(("fc_out", Side::Inputs), [inner, hidden], true),
        ];
        let summed = |layers: &[Cost]| [layers, &sum_cost(setting, hidden, setting.element())].concat();
        let both = Cost::branches(&[&summed(&attention), &summed(&mlp)]);
        let in_product = ["out_proj", "fc_out"].iter().all(|name| adds_residual(setting, tuning, name));
        vec![Cost::residual(&[Self::outline(config).norm_cost(setting), vec![both]].concat(), in_product)]
    }
}

#[derive(Module, Debug)]
pub struct Layer {
    ln_1: Norm,
    attn: Attention,
    mlp: Mlp,
}

#[derive(Module, Debug)]
struct Attention {
    heads: RotaryAttention,
    out_proj: Linear,
}

#[derive(Module, Debug)]
struct Mlp {
    fc_in: Linear,
    fc_out: Linear,
}

impl Block for Layer {
    type Config = GptJConfig;

    fn new(config: &GptJConfig, source: &Source) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (attention, mlp) = (source.at("attn"), source.at("mlp"));
        let linear = |source: &Source, name, side, sizes: [usize; 2], bias| {
            Linear::new(&source.at(name).divided_by(side), sizes[0], sizes[1], bias)
        };
        Self {
            ln_1: Norm::new(&source.at("ln_1"), hidden, NormKind::Layer(config.layer_norm_eps)),
            attn: Attention {
                heads: RotaryAttention::new(&attention, &config.attention()),
                out_proj: linear(&attention, "out_proj", Side::Inputs, [hidden, hidden], false),
            },
            mlp: Mlp {
                fc_in: linear(&mlp, "fc_in", Side::Outputs { parts: 1 }, [hidden, inner], true),
                fc_out: linear(&mlp, "fc_out", Side::Inputs, [inner, hidden], true),
            },
        }
    }

    fn forward(&self, x: Tensor<2>, context: &Context, cache: Option<LayerCache<'_>>) -> Tensor<2> {
        let computation = &context.computation;
        let normal = context.copied(self.ln_1.forward(x.clone(), computation));
        let o = self.attn.heads.forward(normal.clone(), context, cache);
        let x = self.attn.out_proj.forward_onto(x, o, context);
        let inner = self.mlp.fc_in.forward_gelu(normal, computation);
        self.mlp.fc_out.forward_onto(x, inner, context)
    }
}
