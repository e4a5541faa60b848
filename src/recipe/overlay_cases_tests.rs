//! Changes of a section, and what the recipe has then.

use std::collections::BTreeMap;

/// Sections of a small recipe, as inline tables by their dotted paths.
pub fn base() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("title", "\"t\""),
        ("device", "\"cpu\""),
        (
            "model",
            "{ kind = \"qwen2\", vocab_size = 257, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 4, \
             num_attention_heads = 2, num_key_value_heads = 1, \
             max_position_embeddings = 64, tie_word_embeddings = false }",
        ),
        ("train.batch_size", "4"),
        ("train.seq_len", "32"),
        ("train.optimizer", "{ kind = \"adamw\", lr = 1e-3, weight_decay = 0.2 }"),
        ("precision.compute", "\"fp32\""),
        ("data.corpus", "\"generated\""),
        ("data.size", "\"64 KiB\""),
    ])
}

/// A setting, the section it is in, and what the base has of this section and of others.
pub struct Case {
    pub section: &'static str,
    pub before: &'static [(&'static str, &'static str)],
    /// Keys and values in the section.
    pub change: &'static [(&'static str, &'static str)],
    /// What the base has then.
    pub after: &'static [(&'static str, &'static str)],
}

pub const CASES: &[Case] = &[
    Case {
        section: "train.optimizer",
        before: &[],
        change: &[("kind", "\"adamw\""), ("lr", "1e-4")],
        after: &[("train.optimizer", "{ kind = \"adamw\", lr = 1e-4 }")],
    },
    Case {
        section: "train.optimizer",
        before: &[],
        change: &[("momentum", "0.5"), ("lr", "0.1"), ("kind", "\"sgd\"")],
        after: &[("train.optimizer", "{ kind = \"sgd\", lr = 0.1, momentum = 0.5 }")],
    },
    Case {
        section: "train.optimizer",
        before: &[],
        change: &[("lr", "1e-4"), ("beta_2", "0.9")],
        after: &[("train.optimizer", "{ kind = \"adamw\", lr = 1e-4, weight_decay = 0.2, beta_2 = 0.9 }")],
    },
    // A section that does not say what it is has keys for all kinds.
    Case {
        section: "train.optimizer",
        before: &[("train.optimizer", "{ lr = 1e-3, weight_decay = 0.2 }")],
        change: &[("kind", "\"adamw8bit\"")],
        after: &[("train.optimizer", "{ kind = \"adamw8bit\", lr = 1e-3, weight_decay = 0.2 }")],
    },
    Case {
        section: "train.schedule",
        before: &[("train.schedule", "{ kind = \"cosine\", warmup_steps = 3, final_fraction = 0.5 }")],
        change: &[("kind", "\"cosine\""), ("warmup_steps", "2")],
        after: &[("train.schedule", "{ kind = \"cosine\", warmup_steps = 2 }")],
    },
    Case {
        section: "precision.scaler",
        before: &[
            ("precision.compute", "\"fp16\""),
            ("precision.autocast", "true"),
            ("precision.scaler", "{ kind = \"dynamic\", growth_interval = 7 }"),
        ],
        change: &[("kind", "\"dynamic\""), ("init_scale", "8")],
        after: &[("precision.scaler", "{ kind = \"dynamic\", init_scale = 8 }")],
    },
    Case {
        section: "tuning",
        before: &[("tuning", "{ method = \"lora\", rank = 4, alpha = 32 }")],
        change: &[("method", "\"lora\""), ("rank", "2")],
        after: &[("tuning", "{ method = \"lora\", rank = 2 }")],
    },
    Case {
        section: "tuning",
        before: &[("tuning", "{ method = \"lora\", rank = 4, alpha = 32 }")],
        change: &[("method", "\"bitfit\"")],
        after: &[("tuning", "{ method = \"bitfit\" }")],
    },
    Case {
        section: "offload",
        before: &[("offload", "{ strategy = \"overlap\", buffers = 3, activations = \"host\" }")],
        change: &[("strategy", "\"overlap\"")],
        after: &[("offload", "{ strategy = \"overlap\" }")],
    },
    Case {
        section: "offload",
        before: &[("offload", "{ strategy = \"overlap\", buffers = 3 }")],
        change: &[("activations", "\"host\"")],
        after: &[("offload", "{ strategy = \"overlap\", buffers = 3, activations = \"host\" }")],
    },
    Case {
        section: "parallel.pipeline",
        before: &[(
            "parallel.pipeline",
            "{ stages = 2, schedule = \"interleaved\", micro_batches = 2, chunks = 2 }",
        )],
        change: &[("stages", "2"), ("schedule", "\"gpipe\""), ("micro_batches", "4")],
        after: &[("parallel.pipeline", "{ stages = 2, schedule = \"gpipe\", micro_batches = 4 }")],
    },
    Case {
        section: "task",
        before: &[
            ("data.corpus", "\"task\""),
            ("data.sampler", "\"padded\""),
            ("data.size", ""),
            ("task", "{ kind = \"sums\", digits = 1, last_line = \"first\" }"),
        ],
        change: &[("kind", "\"sums\""), ("digits", "3")],
        after: &[("task", "{ kind = \"sums\", digits = 3 }")],
    },
    Case {
        section: "model",
        before: &[("data.corpus", ""), ("data.size", "")],
        change: &[
            ("kind", "\"swiglu\""),
            ("hidden_size", "4"),
            ("intermediate_size", "8"),
            ("num_hidden_layers", "1"),
        ],
        after: &[(
            "model",
            "{ kind = \"swiglu\", hidden_size = 4, intermediate_size = 8, num_hidden_layers = 1 }",
        )],
    },
    Case {
        section: "model",
        before: &[],
        change: &[("hidden_size", "16")],
        after: &[(
            "model",
            "{ kind = \"qwen2\", vocab_size = 257, hidden_size = 16, intermediate_size = 16, num_hidden_layers = 4, \
             num_attention_heads = 2, num_key_value_heads = 1, \
             max_position_embeddings = 64, tie_word_embeddings = false }",
        )],
    },
    // What is no sampler's stays.
    Case {
        section: "data",
        before: &[("data.sampler", "\"balanced\""), ("data.k", "4"), ("data.pad_to_multiple_of", "8")],
        change: &[("sampler", "\"packed\"")],
        after: &[("data.sampler", "\"packed\""), ("data.k", "")],
    },
    Case {
        section: "train",
        before: &[],
        change: &[("batch_size", "2"), ("clip_norm", "1.0")],
        after: &[("train.batch_size", "2"), ("train.clip_norm", "1.0")],
    },
];
