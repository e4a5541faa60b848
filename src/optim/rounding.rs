//! What random rounding differs by from tensor to tensor, and from rank to rank.

use burn::module::ParamId;

/// The number of the tensor whose state is kept under `id`, which follows from a name: the same in every run.
pub fn number(id: ParamId) -> u32 {
    (id.val() ^ (id.val() >> 32)) as u32
}

/// The seed of a rank's own parts: the first rank has the step's.
pub fn seed_of_rank(seed: u64, rank: usize) -> u64 {
    seed ^ (rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
