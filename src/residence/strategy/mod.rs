//! [`Strategy`]: how blocks come to the device and leave it. Each strategy is a file with its keys and its [`Movement`].

mod checkpointed;
mod function;
mod naive;
mod overlap;
mod resident;

use std::sync::Arc;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use checkpointed::Checkpointed;
pub use function::Function;
pub use naive::Naive;
pub use overlap::Overlap;
pub use resident::resident;

use super::Offloaded;
use super::offloaded::Compute;
use crate::keys::Section;
use crate::keys::section::{kinds, section};

kinds! {
    /// `offload.strategy`
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
    )]
    #[serde(rename_all = "lowercase")]
    #[strum(serialize_all = "lowercase", const_into_str)]
    pub enum Strategy: Moves {
        None(NoMovement),
        Naive(Naive),
        Checkpointed(Checkpointed),
        Function(Function),
        Overlap(Overlap),
    }
}

/// Common to all strategies.
pub trait Moves {
    /// `None`: blocks stay on the device.
    fn movement(&self) -> Option<Arc<dyn Movement>>;
}

impl<M: Movement + Clone + 'static> Moves for M {
    fn movement(&self) -> Option<Arc<dyn Movement>> {
        Some(Arc::new(self.clone()))
    }
}

section! {
    /// Blocks stay on the device.
    #[derive(Copy, Default, Eq)]
    pub struct NoMovement: Section::of("offload", "strategy", &["none"]) => {}
}

impl Moves for NoMovement {
    fn movement(&self) -> Option<Arc<dyn Movement>> {
        None
    }
}

impl Default for Strategy {
    fn default() -> Self {
        Self::None(NoMovement {})
    }
}

impl Strategy {
    /// Each with the defaults of its keys.
    ///
    /// # Panics
    /// When a key of one has no default.
    pub fn all() -> impl Iterator<Item = Self> {
        let names = |section: &'static Section| {
            let names = section.kind.map_or(&[][..], |kind| kind.values);
            names.iter().map(|name| json!({ *name: section.defaults::<Value>() }))
        };
        let all = Self::SECTIONS.iter().flat_map(names);
        all.map(|strategy| serde_json::from_value(strategy).expect("its keys have defaults"))
    }
}

/// How the blocks of one strategy move.
pub trait Movement: Send + Sync {
    /// Slots on the device for the weights of blocks that move.
    fn buffers(&self) -> usize {
        1
    }

    /// Whether the host waits for each copy and each block.
    fn host_waits(&self) -> bool {
        false
    }

    /// How many blocks are copied ahead of their turns, with so many slots; `None`: a block that moves is in its slot only
    /// during its turn.
    fn ahead(&self, _slots: usize) -> Option<usize> {
        None
    }

    /// Why a block's input cannot wait on the host for backward; `None` if it can.
    fn input_stays(&self) -> Option<&'static str> {
        None
    }

    /// Computes x, [tokens, hidden_size], through one block; backward brings the block in again.
    fn forward(&self, blocks: &Offloaded, block: usize, x: Tensor<2>, compute: Compute) -> Tensor<2> {
        function::offloaded(blocks, block, x, compute)
    }
}
