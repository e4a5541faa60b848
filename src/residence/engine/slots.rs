//! [`Slots`]: which block is in which slot on the device, and which slot a block takes.
//!
//! Slots for weights come before slots for gradients. Of each kind, slots through which blocks move come before those of
//! resident blocks, which have one each.

use super::Pass;

/// Slots through which gradients leave: one is computed while the other is sent.
pub const GRADIENT_SLOTS: usize = 2;

pub struct Slots {
    /// By slot for weights: the block that it holds or is being filled with.
    holds: Vec<Option<usize>>,
    /// Slots through which weights move; and gradients.
    moving: usize,
    moving_gradients: usize,
    /// By block: its number among the resident ones.
    resident: Vec<Option<usize>>,
    /// Whether gradients of resident blocks stay with them.
    keeps_gradients: bool,
    /// How often a slot for moving gradients was taken.
    sent: usize,
}

impl Slots {
    /// `resident`: by block, whether it stays. `moving`: most slots for the weights of the others. `trains`: whether blocks
    /// have gradients.
    pub fn new(resident: &[bool], moving: usize, keeps_gradients: bool, trains: bool) -> Self {
        let mut count = 0;
        let mut number = |stays: &bool| {
            count += usize::from(*stays);
            stays.then(|| count - 1)
        };
        let numbers: Vec<_> = resident.iter().map(&mut number).collect();
        let moving = moving.min(resident.len() - count);
        let sends = trains && (moving > 0 || !keeps_gradients);
        Self {
            holds: vec![None; moving + count],
            moving,
            moving_gradients: if sends { GRADIENT_SLOTS } else { 0 },
            resident: numbers,
            keeps_gradients: trains && keeps_gradients,
            sent: 0,
        }
    }

    /// Slots for weights.
    pub fn weights(&self) -> usize {
        self.holds.len()
    }

    /// Slots for gradients.
    pub fn gradients(&self) -> usize {
        self.moving_gradients + if self.keeps_gradients { self.holds.len() - self.moving } else { 0 }
    }

    /// Slots through which weights move.
    pub fn moving(&self) -> usize {
        self.moving
    }

    pub fn is_resident(&self, block: usize) -> bool {
        self.resident[block].is_some()
    }

    /// The slot that holds a block, if one does.
    pub fn of(&self, block: usize) -> Option<usize> {
        match self.resident[block] {
            Some(number) => Some(self.moving + number).filter(|slot| self.holds[*slot].is_some()),
            None => self.holds[..self.moving].iter().position(|held| *held == Some(block)),
        }
    }

    /// The slot in which a resident block's gradients stay.
    pub fn kept_gradients(&self, block: usize) -> Option<usize> {
        let number = self.resident[block].filter(|_| self.keeps_gradients)?;
        Some(self.holds.len() + self.moving_gradients + number)
    }

    /// The slot for the gradients of a block: its own, or the next through which gradients move.
    pub fn for_gradients(&mut self, block: usize) -> usize {
        self.kept_gradients(block).unwrap_or_else(|| {
            self.sent += 1;
            self.holds.len() + self.sent % self.moving_gradients
        })
    }

    /// The next blocks after `block` that no slot holds: among the next `ahead` blocks that move, or one more if `block` is
    /// resident and leaves all slots to them.
    pub fn missing(&self, block: usize, pass: Pass, ahead: usize) -> Vec<usize> {
        let mut left = ahead + usize::from(self.is_resident(block));
        let mut missing = Vec::new();
        for next in (1..).map_while(|turns| pass.next(block, turns, self.resident.len())) {
            if !self.is_resident(next) {
                let Some(fewer) = left.checked_sub(1) else { break };
                left = fewer;
            }
            missing.extend(self.of(next).is_none().then_some(next));
        }
        missing
    }

    /// Takes a slot for a block: its own, or of the slots that hold none of the blocks from `current` up to `block` the one
    /// whose block is needed last.
    pub fn take(&mut self, block: usize, current: usize, pass: Pass) -> usize {
        let turns = |held: usize| pass.turns(current, held, self.resident.len());
        let wanted = turns(block).expect("blocks are loaded ahead");
        let free = |held: usize| turns(held).is_none_or(|turns| turns >= wanted);
        let distance = |held: usize| match pass {
            Pass::Inference => turns(held).unwrap_or(0),
            // The next pass goes the other way.
            Pass::Forward | Pass::Backward => held.abs_diff(block),
        };
        let rank = |slot: &usize| match self.holds[*slot] {
            None => (true, usize::MAX),
            Some(held) => (free(held), distance(held)),
        };
        let slot = match self.resident[block] {
            Some(number) => self.moving + number,
            None => (0..self.moving).max_by_key(rank).expect("there is a slot"),
        };
        self.holds[slot] = Some(block);
        slot
    }

    /// By slot for weights: the block that it holds.
    pub fn held(&self) -> &[Option<usize>] {
        &self.holds
    }

    /// Notes what slots hold, as [`held`](Self::held) gives it.
    pub fn hold(&mut self, held: &[Option<usize>]) {
        self.holds.copy_from_slice(held);
    }

    /// Marks the content of a slot as stale.
    pub fn empty(&mut self, slot: usize) {
        self.holds[slot] = None;
    }

    /// Whether no slot through which blocks move holds a block.
    pub fn are_empty(&self) -> bool {
        self.holds[..self.moving].iter().all(Option::is_none)
    }
}
