//! [`DecoderSizes`]: the sizes of a decoder.

/// The sizes that decide a decoder's memory and arithmetic.
#[derive(Clone, Copy, Debug)]
pub struct DecoderSizes {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layers: usize,
    /// Query and key heads, and the elements of one.
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Longest sequence, in tokens.
    pub max_positions: usize,
    /// Whether its MLP is a gated one of three matrices, and so one operator.
    pub gated: bool,
    pub tied: bool,
    /// Whether Hugging Face's programs have this model too, and so can read its weights.
    pub portable: bool,
    /// All parameters; 0 where they have not been counted.
    pub parameters: u64,
}
