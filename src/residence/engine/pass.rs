//! [`Pass`]: the direction in which blocks take their turns.

/// The direction in which blocks take their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Forward,
    Backward,
    /// Forward that is followed by the next forward.
    Inference,
}

impl Pass {
    /// The block `ahead` turns after `block`, of `count`.
    pub(super) fn next(self, block: usize, ahead: usize, count: usize) -> Option<usize> {
        match self {
            Self::Forward => Some(block + ahead).filter(|next| *next < count),
            Self::Backward => block.checked_sub(ahead),
            Self::Inference => Some((block + ahead) % count).filter(|_| ahead < count),
        }
    }

    /// Turns from `block` to `other`, of `count`; `None` if the turn of `other` was before.
    pub(super) fn turns(self, block: usize, other: usize, count: usize) -> Option<usize> {
        match self {
            Self::Forward => other.checked_sub(block),
            Self::Backward => block.checked_sub(other),
            Self::Inference => Some((other + count - block) % count),
        }
    }
}
