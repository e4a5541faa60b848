//! [`REFUSALS`]: which choices do not go together, and what the recipe says of them.

mod predicates;
use crate::combination::Combination;
use predicates::*;

pub struct Refusal {
    pub refused: fn(&Combination) -> bool,
    /// Part of the error's message.
    pub message: &'static str,
    /// The factor whose first choice mends it.
    pub mend: &'static str,
}

const fn refusal(mend: &'static str, refused: fn(&Combination) -> bool, message: &'static str) -> Refusal {
    Refusal { refused, message, mend }
}

/// What is mended without being refused: scalers of these came later, and are [drawn last](crate::draw::draw).
pub const DRAWN_LAST: &str = "a scaler where blocks or the optimizer are on the host is drawn last";

const NO_OPERATOR: &str = "this network does not have that operator";

const IN_ONE_PROCESS: &str = "trains in one process";
const WHERE_DIVIDED: &str = "parallel.data goes with [offload] where ranks divide the parameters";
const NOT_DIVIDED: &str = "cannot be divided among 2 ranks";

/// In the order in which they are mended.
pub const REFUSALS: &[Refusal] = &[
    refusal("ranks", |c| c.has_stages() && swiglu(c), "a pipeline divides the blocks of a language model"),
    refusal("ranks", |c| c.has_stages() && pairs(c), "a pipeline has the blocks of a decoder alone"),
    refusal(
        "ranks",
        |c| c.divides_layers() && pairs(c),
        "parallel.tensor divides the layers of a decoder alone",
    ),
    refusal("data", |c| c.is("data", "packed") && pairs(c), "a source and a target of each"),
    refusal(
        "tuning",
        |c| matches!(c.choice("tuning"), "prompt" | "prefix") && pairs(c),
        "virtual tokens stand before the samples of a decoder alone",
    ),
    refusal("ranks", |c| c.shards() && swiglu(c), "it divides the parameters of a language model"),
    refusal(
        "ranks",
        |c| c.divides_layers() && c.is("model", "olmo2"),
        "a norm has the queries of all heads, and one the keys",
    ),
    refusal(
        "ranks",
        |c| c.divides_layers() && c.choice("model").starts_with("phi3"),
        "one linear layer gives its queries and fewer keys and values",
    ),
    refusal("batch", |c| replicated(c) && !c.is("batch", "4 x 7"), "cannot be divided among 2 replicas"),
    refusal("strategy", |c| replicated(c) && !c.shards() && moves(c), WHERE_DIVIDED),
    refusal(
        "strategy",
        |c| c.shards() && !c.is("ranks", "2 weights") && moves(c),
        "each rank has the whole weights of all blocks",
    ),
    refusal(
        "strategy",
        |c| c.is("ranks", "2 weights") && c.is("strategy", "checkpointed"),
        "blocks come from all ranks and from the host by one operator",
    ),
    refusal(
        "optimizer's place",
        |c| c.is("ranks", "2 weights") && !moves(c) && c.is("optimizer's place", "host"),
        "the host updates the parts of blocks that move there",
    ),
    refusal(
        "resident blocks",
        |c| c.is("ranks", "2 weights") && moves(c) && !c.is("resident blocks", "0"),
        "the parts of all blocks move",
    ),
    refusal("strategy", |c| c.divides_layers() && moves(c), "parallel.tensor does not go with [offload]"),
    refusal("strategy", |c| c.has_stages() && moves(c), "a stage keeps its blocks on the device"),
    refusal(
        "optimizer's place",
        |c| replicated(c) && !c.shards() && c.is("optimizer's place", "host"),
        WHERE_DIVIDED,
    ),
    refusal(
        "optimizer's place",
        |c| c.divides_layers() && c.is("optimizer's place", "host"),
        "parallel.tensor does not go with [offload]",
    ),
    refusal(
        "optimizer's place",
        |c| c.has_stages() && c.is("optimizer's place", "host"),
        "a stage keeps its blocks on the device",
    ),
    refusal("tuning", |c| parallel(c) && matches!(c.choice("tuning"), "prompt" | "prefix"), IN_ONE_PROCESS),
    refusal(
        "tuning",
        |c| {
            c.divides_layers()
                && !matches!(c.choice("tuning"), "full" | "lora" | "lora that drops" | "bitfit")
        },
        "is not divided among ranks",
    ),
    refusal(
        "tuning",
        |c| c.divides_layers() && c.is("tuning", "lora that drops"),
        "an adapter's dropout draws a mask of a layer's whole input",
    ),
    refusal(
        "width",
        |c| c.divides_layers() && !swiglu(c) && !matches!(c.choice("width"), "40" | "136"),
        NOT_DIVIDED,
    ),
    refusal(
        "width",
        |c| c.divides_layers() && swiglu(c) && matches!(c.choice("width"), "56" | "72"),
        NOT_DIVIDED,
    ),
    refusal("vocabulary", |c| c.divides_layers() && !swiglu(c) && !c.is("vocabulary", "354"), NOT_DIVIDED),
    refusal("loss", |c| c.divides_layers() && c.is("loss", "plain"), "of which each rank has a part"),
    refusal(
        "blocks",
        |c| c.is("ranks", "2 weights") && matches!(c.choice("blocks"), "2" | "3"),
        "with \"weights\"",
    ),
    refusal(
        "accumulation",
        |c| c.has_stages() && !c.is("accumulation", "1"),
        "a pipeline adds up the gradients of its micro-batches",
    ),
    refusal("data", |c| c.has_stages() && sampled(c), "the last step of an epoch has fewer micro-batches"),
    refusal("ranks", |c| c.is("ranks", "interleaved") && !c.is("layers", "5"), "need a block for each stage"),
    refusal("batch", |c| c.is("ranks", "interleaved") && !c.is("batch", "4 x 7"), "cannot be interleaved"),
    refusal(
        "precision",
        |c| c.is("precision", "tf32") && !crate::on_gpu(),
        "tf32 is a format of NVIDIA's tensor cores",
    ),
    refusal(
        "precision",
        |c| matches!(c.choice("precision"), "bf16" | "tf32") && crate::lacks_bf16(),
        "needs tensor cores of compute capability 8.0",
    ),
    refusal(
        "graph",
        |c| recorded(c) && !crate::on_gpu(),
        "a step is recorded as a CUDA graph; the CPU has none",
    ),
    refusal("graph", |c| recorded(c) && swiglu(c) && accumulates(c), "a graph reads one place"),
    refusal("graph", |c| recorded(c) && moves(c) && accumulates(c), "gradients of blocks that move"),
    refusal(
        "graph",
        |c| recorded(c) && matches!(c.choice("strategy"), "naive" | "checkpointed"),
        "the host waits for each block",
    ),
    refusal("graph", |c| recorded(c) && c.is("activations", "host"), "copies of inputs are not recorded"),
    refusal("graph", |c| recorded(c) && c.is("optimizer's place", "host"), "copies of gradients are not"),
    refusal("graph", |c| recorded(c) && c.is("tuning", "lora that drops"), "would drop the same elements"),
    refusal(
        "graph",
        |c| recorded(c) && matches!(c.choice("tuning"), "prompt" | "prefix"),
        "the rows of virtual tokens differ",
    ),
    refusal(
        "graph",
        |c| recorded(c) && c.is("model", "phi3 with longrope"),
        "rotary positions follow from the length of each batch",
    ),
    refusal(
        "tied",
        |c| c.is("tied", "yes") && matches!(c.choice("model"), "gptj" | "phi"),
        "'s head has a weight and a bias of its own",
    ),
    refusal("graph", |c| recorded(c) && sampled(c), "batches of samples differ in their lengths"),
    refusal(
        "autocast",
        |c| c.is("autocast", "on") && matches!(c.choice("precision"), "fp32" | "tf32"),
        "autocast has no effect",
    ),
    refusal(
        "autocast",
        |c| c.is("autocast", "on") && swiglu(c),
        "`precision.autocast` is for language models",
    ),
    refusal(
        "scaler",
        |c| !c.is("scaler", "none") && !c.is("precision", "fp16"),
        "a gradient scaler has no effect",
    ),
    refusal("scaler", |c| !c.is("scaler", "none") && c.leaves_the_device(), DRAWN_LAST),
    refusal("tuning", |c| !c.is("tuning", "full") && swiglu(c), "`tuning` is for language models"),
    refusal("tuning", |c| c.is("tuning", "bitfit") && lacks_biases(c), "trains no parameter of this model"),
    refusal("data", |c| !c.is("data", "random") && swiglu(c), "`data` is for language models"),
    refusal("loader", |c| !c.is("loader", "default") && !sampled(c), "data.sampler"),
    refusal("tokenize", |c| !c.is("tokenize", "once") && !sampled(c), "data.sampler"),
    refusal(
        "tokenize",
        |c| !c.is("tokenize", "once") && matches!(c.choice("data"), "balanced" | "packed"),
        "a sampler that needs the samples' lengths",
    ),
    refusal("rows", |c| !c.is("rows", "any") && !sampled(c), "data.sampler"),
    refusal("samples", |c| !c.is("samples", "paragraphs") && !sampled(c), "data.sampler"),
    refusal("first", |c| !c.is("first", "any") && !sampled(c), "data.sampler"),
    refusal("short batches", |c| !c.is("short batches", "kept") && !sampled(c), "data.sampler"),
    refusal("cut sample", |c| !c.is("cut sample", "kept") && !sampled(c), "data.sampler"),
    refusal(
        "cut sample",
        |c| !c.is("cut sample", "kept") && !c.is("data", "packed"),
        "unknown key `last_sample`",
    ),
    refusal(
        "first",
        |c| !c.is("first", "any") && matches!(c.choice("data"), "padded" | "packed"),
        "`longest_first` has no effect",
    ),
    refusal(
        "tokenize",
        |c| !c.is("tokenize", "once") && !c.is("first", "any"),
        "a sampler that needs the samples' lengths",
    ),
    refusal(
        "rows",
        |c| !c.is("rows", "any") && matches!(c.choice("data"), "padded" | "packed"),
        "not a multiple of 8",
    ),
    refusal(
        "strategy",
        |c| moves(c) && swiglu(c),
        "offload moves the transformer blocks of a language model",
    ),
    refusal(
        "resident blocks",
        |c| !c.is("resident blocks", "0") && !moves(c),
        "offload.resident_blocks has no effect",
    ),
    refusal(
        "resident blocks",
        |c| c.is("resident blocks", "3") && c.is("layers", "2") && !pairs(c),
        "offload.resident_blocks = 3, and the network has 2 blocks",
    ),
    refusal(
        "blocks",
        |c| moves(c) && matches!(c.choice("blocks"), "2" | "3"),
        "offload computes each block again by itself",
    ),
    refusal(
        "activations",
        |c| c.is("activations", "host") && matches!(c.choice("strategy"), "none" | "checkpointed"),
        "offload.activations = \"host\" does not go with",
    ),
    refusal(
        "optimizer's place",
        |c| c.is("optimizer's place", "host") && by_sgd(c),
        "offload.optimizer = \"host\" runs AdamW",
    ),
    refusal("remainders", |c| c.is("remainders", "yes") && by_sgd(c), "unknown key `store_param_remainders`"),
    refusal(
        "remainders",
        |c| c.is("remainders", "yes") && !(c.is("precision", "bf16") && c.stores_half()),
        "store_param_remainders has no effect on parameters that are not in bf16",
    ),
    refusal(
        "optimizer's place",
        |c| c.is("remainders", "yes") && c.is("optimizer's place", "host"),
        "an optimizer on the host has master weights in fp32",
    ),
    refusal(
        "optimizer's state",
        |c| c.is("optimizer's state", "disk") && c.is("optimizer's place", "device"),
        "offload.optimizer_state = \"disk\" has no effect on an optimizer on the device",
    ),
    refusal(
        "clip",
        |c| c.is("clip", "before") && !c.is("scaler", "none"),
        "train.clip = \"previous_norm\" does not go with a gradient scaler",
    ),
    refusal("swiglu", |c| lacks(c, "swiglu"), NO_OPERATOR),
    refusal("attention", |c| lacks(c, "attention"), NO_OPERATOR),
    refusal("loss", |c| lacks(c, "loss"), NO_OPERATOR),
    refusal("norm", |c| lacks(c, "norm"), NO_OPERATOR),
    refusal("rope", |c| lacks(c, "rope"), NO_OPERATOR),
    refusal("gelu", |c| lacks(c, "gelu"), NO_OPERATOR),
    refusal(
        "tuning",
        |c| {
            c.is("tuning", "adapter")
                && c.has_operator("swiglu")
                && (c.is("swiglu", "plain") || !c.is("level", "0"))
        },
        "checkpoint.level and ops.swiglu are choices of the SwiGLU operator",
    ),
    refusal(
        "level",
        |c| !c.is("level", "0") && c.is("swiglu", "plain"),
        "has no effect with ops.swiglu = \"plain\"",
    ),
    refusal(
        "level",
        |c| !c.is("level", "0") && !c.has_operator("swiglu"),
        "checkpoint.level is a choice of the SwiGLU operator",
    ),
];
