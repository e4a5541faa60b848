//! Replicas that divide the optimizer's state, gradients, and weights among them (Rajbhandari et al. 2020, "ZeRO: Memory
//! Optimizations Toward Training Trillion Parameter Models").

mod blocks;
mod bucket;
mod config;
mod cost;
mod kept;
mod module;
mod regions;
#[cfg(test)]
mod tests;

pub use blocks::ShardedBlocks;
pub use config::{Shard, Sharding};
pub use cost::ShardSizes;
pub use module::ShardedModule;
