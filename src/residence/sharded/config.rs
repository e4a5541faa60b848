//! [`Shard`]: what replicas divide among them; [`Sharding`]: which ranks do so.

use serde::{Deserialize, Serialize};

use crate::world::ProcessGroup;

/// `parallel.shard`: the stages of ZeRO (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion
/// Parameter Models").
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Shard {
    /// Each replica has everything.
    #[default]
    None,
    /// The optimizer's state.
    Optimizer,
    /// The gradients too.
    Gradients,
    /// The weights of blocks too.
    Weights,
}

impl Shard {
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// The replicas that divide a model among them, including this one.
#[derive(Clone, Debug)]
pub struct Sharding {
    pub shard: Shard,
    pub ranks: ProcessGroup,
}

impl Sharding {
    /// `None` if each replica has everything.
    pub fn of(shard: Shard, ranks: &ProcessGroup) -> Option<Self> {
        (ranks.size() > 1 && !shard.is_none()).then(|| Self { shard, ranks: ranks.clone() })
    }
}
