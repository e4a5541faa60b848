//! [`Movement`]: how the blocks of one strategy come to the device and leave it. A strategy is one file.

mod checkpointed;
mod function;
mod naive;
mod overlap;
mod resident;

use burn::tensor::Tensor;

use super::Offloaded;
use super::config::Strategy;
use super::offloaded::Compute;
pub use resident::resident;

pub trait Movement: Send + Sync {
    /// Whether the host waits for each copy and each block.
    fn host_waits(&self) -> bool {
        false
    }

    /// Blocks that are copied before their turn, with so many slots; `None`: a block that moves is in its slot
    /// during its turn alone, and else until another needs the slot.
    fn ahead(&self, _slots: usize) -> Option<usize> {
        None
    }

    /// x [tokens, hidden_size] through one block, whose backward brings it in again.
    fn forward(&self, blocks: &Offloaded, block: usize, x: Tensor<2>, compute: Compute) -> Tensor<2> {
        function::offloaded(blocks, block, x, compute)
    }
}

impl Strategy {
    /// `None`: blocks stay on the device.
    pub fn movement(self) -> Option<&'static dyn Movement> {
        match self {
            Self::None => None,
            Self::Naive => Some(&naive::Naive),
            Self::Checkpointed => Some(&checkpointed::Checkpointed),
            Self::Function => Some(&function::Function),
            Self::Overlap => Some(&overlap::Overlap),
        }
    }
}
