//! [`FACTORS`]: what a recipe may choose, as factors with their options. The first option of a factor is the
//! plain one. Sizes are multiples of nothing.

use crate::models::MODELS;

/// A choice: a name for messages, and the recipe's lines as TOML, a dotted key each.
pub type Choice = (&'static str, &'static [(&'static str, &'static str)]);

pub struct Factor {
    pub name: &'static str,
    pub choices: &'static [Choice],
}

impl Factor {
    /// How many choices there were when combinations got their numbers: others are only [drawn last](crate::draw::draw).
    pub fn first_choices(&self) -> usize {
        if self.name == "scaler" { 3 } else { self.choices.len() }
    }
}

macro_rules! factor {
    ($name:literal, $([$choice:literal $(, $key:literal = $value:literal)* $(,)?]),+ $(,)?) => {
        Factor { name: $name, choices: &[$(($choice, &[$(($key, $value)),*])),+] }
    };
}

/// Hidden size, heads, heads of keys, and the MLP's inner size: head sizes 10, 14, 12, 20, 34 and 36.
const WIDTHS: Factor = factor!(
    "width",
    ["40", "model.hidden_size" = "40", "heads" = "4", "kv_heads" = "2", "model.intermediate_size" = "100"],
    ["56", "model.hidden_size" = "56", "heads" = "4", "kv_heads" = "1", "model.intermediate_size" = "77"],
    ["72", "model.hidden_size" = "72", "heads" = "6", "kv_heads" = "3", "model.intermediate_size" = "333"],
    ["100", "model.hidden_size" = "100", "heads" = "5", "kv_heads" = "5", "model.intermediate_size" = "1408"],
    ["136", "model.hidden_size" = "136", "heads" = "4", "kv_heads" = "2", "model.intermediate_size" = "152"],
    ["108", "model.hidden_size" = "108", "heads" = "3", "kv_heads" = "3", "model.intermediate_size" = "236"],
);

pub const FACTORS: &[Factor] = &[
    MODELS,
    WIDTHS,
    factor!(
        "tied",
        ["no", "model.tie_word_embeddings" = "false"],
        ["yes", "model.tie_word_embeddings" = "true"],
    ),
    factor!(
        "vocabulary",
        ["354", "model.vocab_size" = "354"],
        ["311", "model.vocab_size" = "311"],
        ["1003", "model.vocab_size" = "1003"],
    ),
    factor!(
        "layers",
        ["3", "model.num_hidden_layers" = "3"],
        ["2", "model.num_hidden_layers" = "2"],
        ["5", "model.num_hidden_layers" = "5"],
    ),
    factor!(
        "batch",
        ["4 x 7", "train.batch_size" = "4", "train.seq_len" = "7"],
        ["3 x 33", "train.batch_size" = "3", "train.seq_len" = "33"],
        ["1 x 61", "train.batch_size" = "1", "train.seq_len" = "61"],
        ["5 x 12", "train.batch_size" = "5", "train.seq_len" = "12"],
    ),
    factor!(
        "level",
        ["0", "checkpoint.level" = "0"],
        ["0.5", "checkpoint.level" = "0.5"],
        ["1", "checkpoint.level" = "1"],
    ),
    factor!(
        "blocks",
        ["0"],
        ["1", "checkpoint.blocks" = "1"],
        ["2", "checkpoint.blocks" = "2"],
        ["3", "checkpoint.blocks" = "3"],
    ),
    factor!(
        "strategy",
        ["none"],
        ["naive", "offload.strategy" = "'naive'"],
        ["checkpointed", "offload.strategy" = "'checkpointed'"],
        ["function", "offload.strategy" = "'function'"],
        ["overlap 1", "offload.strategy" = "'overlap'", "offload.buffers" = "1"],
        ["overlap 2", "offload.strategy" = "'overlap'", "offload.buffers" = "2"],
        ["overlap 3", "offload.strategy" = "'overlap'"],
        ["overlap 4", "offload.strategy" = "'overlap'", "offload.buffers" = "4"],
    ),
    factor!(
        "resident blocks",
        ["0"],
        ["1", "offload.resident_blocks" = "1"],
        ["2", "offload.resident_blocks" = "2"],
        ["3", "offload.resident_blocks" = "3"],
        ["auto", "offload.resident_blocks" = "'auto'"],
    ),
    factor!("optimizer's place", ["device"], ["host", "offload.optimizer" = "'host'"]),
    factor!("optimizer's state", ["memory"], ["disk", "offload.optimizer_state" = "'disk'"]),
    factor!("activations", ["device"], ["host", "offload.activations" = "'host'"]),
    factor!(
        "precision",
        ["fp32", "precision.compute" = "'fp32'"],
        ["bf16", "precision.compute" = "'bf16'"],
        ["fp16", "precision.compute" = "'fp16'"],
        ["tf32", "precision.compute" = "'tf32'"],
    ),
    factor!("autocast", ["off"], ["on", "precision.autocast" = "true"]),
    factor!(
        "scaler",
        ["none"],
        ["static", "precision.scaler" = "{ kind = 'static', scale = 256 }"],
        ["dynamic", "precision.scaler" = "{ kind = 'dynamic', init_scale = 1024, growth_interval = 2 }"],
        // 1024, then 2^40, which is skipped, and 1024 again.
        [
            "skipping",
            "precision.scaler" = "{ kind = 'dynamic', init_scale = 1024, growth_interval = 1, \
                                  growth_factor = 1073741824.0, backoff_factor = 9.313225746154785e-10 }",
        ],
    ),
    factor!(
        "data",
        ["random"],
        ["blocks", "data.corpus" = "'generated'"],
        ["padded", "data.corpus" = "'generated'", "data.sampler" = "'padded'"],
        ["standard", "data.corpus" = "'generated'", "data.sampler" = "'standard'"],
        ["balanced", "data.corpus" = "'generated'", "data.sampler" = "'balanced'", "data.k" = "5"],
        ["packed", "data.corpus" = "'generated'", "data.sampler" = "'packed'"],
    ),
    factor!(
        "loader",
        ["default"],
        ["none", "data.num_workers" = "0"],
        ["two", "data.num_workers" = "2", "data.prefetch_factor" = "3", "data.pinned" = "false"],
    ),
    factor!("tokenize", ["once"], ["every step", "data.tokenize" = "'every_step'"]),
    factor!("rows", ["any"], ["of 8", "data.pad_to_multiple_of" = "8"]),
    factor!("samples", ["paragraphs"], ["documents", "data.samples" = "'documents'"]),
    factor!("first", ["any"], ["longest", "data.longest_first" = "true"]),
    factor!("short batches", ["kept"], ["dropped", "data.drop_last" = "true"]),
    factor!("cut sample", ["kept"], ["dropped", "data.last_sample" = "'drop'"]),
    factor!(
        "accumulation",
        ["1"],
        ["2", "train.accumulation_steps" = "2"],
        ["3", "train.accumulation_steps" = "3"],
    ),
    factor!(
        "clip",
        ["none"],
        ["hard", "train.clip_norm" = "0.05"],
        ["far", "train.clip_norm" = "1e3"],
        ["before", "train.clip_norm" = "0.05", "train.clip" = "'previous_norm'"],
    ),
    factor!(
        "schedule",
        ["constant"],
        ["cosine", "train.schedule" = "{ kind = 'cosine', warmup_steps = 1, final_fraction = 0.5 }"],
    ),
    factor!(
        "optimizer",
        [
            "adamw",
            "train.optimizer.kind" = "'adamw'",
            "train.optimizer.lr" = "0.02",
            "train.optimizer.epsilon" = "1e-3",
            "train.optimizer.weight_decay" = "0.1",
        ],
        ["sgd", "train.optimizer.kind" = "'sgd'", "train.optimizer.lr" = "0.1"],
        [
            "momentum",
            "train.optimizer.kind" = "'sgd'",
            "train.optimizer.lr" = "0.1",
            "train.optimizer.momentum" = "0.9",
            "train.optimizer.weight_decay" = "0.01",
        ],
        [
            "adamw8bit",
            "train.optimizer.kind" = "'adamw8bit'",
            "train.optimizer.lr" = "0.02",
            "train.optimizer.epsilon" = "1e-3",
            "train.optimizer.weight_decay" = "0.1",
        ],
        [
            "adamw_bf16",
            "train.optimizer.kind" = "'adamw_bf16'",
            "train.optimizer.lr" = "0.02",
            "train.optimizer.epsilon" = "1e-3",
            "train.optimizer.weight_decay" = "0.1",
        ],
    ),
    factor!("remainders", ["no"], ["yes", "train.optimizer.store_param_remainders" = "true"]),
    factor!("waiting", ["no"], ["each step", "train.sync_each_step" = "true"]),
    factor!("graph", ["no", "train.graph" = "false"], ["yes", "train.graph" = "true"]),
    factor!(
        "tuning",
        ["full"],
        ["lora", "tuning.method" = "'lora'", "tuning.rank" = "3", "targets" = ""],
        [
            "lora that drops",
            "tuning.method" = "'lora'",
            "tuning.rank" = "3",
            "tuning.dropout" = "0.1",
            "targets" = "",
        ],
        ["bitfit", "tuning.method" = "'bitfit'"],
        ["adapter", "tuning.method" = "'adapter'", "tuning.bottleneck" = "5"],
        ["prompt", "tuning.method" = "'prompt'", "tuning.num_virtual_tokens" = "5"],
        ["prefix", "tuning.method" = "'prefix'", "tuning.num_virtual_tokens" = "3"],
    ),
    factor!(
        "ranks",
        ["one"],
        ["2 replicas", "parallel.data" = "2"],
        ["2 states", "parallel.data" = "2", "parallel.shard" = "'optimizer'"],
        ["2 gradients", "parallel.data" = "2", "parallel.shard" = "'gradients'"],
        ["2 weights", "parallel.data" = "2", "parallel.shard" = "'weights'"],
        ["2 of a layer", "parallel.tensor" = "2"],
        ["2 x 2", "parallel.data" = "2", "parallel.tensor" = "2"],
        ["gpipe", "pipeline" = "'gpipe'"],
        ["1f1b", "pipeline" = "'1f1b'"],
        ["interleaved", "pipeline" = "'interleaved'"],
    ),
    factor!("swiglu", ["custom"], ["plain", "ops.swiglu" = "'plain'"]),
    factor!("attention", ["custom"], ["plain", "ops.attention" = "'plain'"]),
    factor!("fused attention", ["yes"], ["no", "ops.fused_attention" = "false"]),
    factor!("loss", ["custom"], ["plain", "ops.loss" = "'plain'"]),
    factor!("norm", ["custom"], ["plain", "ops.norm" = "'plain'"]),
    factor!("rope", ["custom"], ["plain", "ops.rope" = "'plain'"]),
    factor!("gelu", ["custom"], ["plain", "ops.gelu" = "'plain'"]),
];

/// The place of a factor in [`FACTORS`].
pub fn factor(name: &str) -> usize {
    FACTORS.iter().position(|factor| factor.name == name).unwrap_or_else(|| panic!("no factor {name}"))
}
