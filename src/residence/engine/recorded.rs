//! The engine between passes that are recorded once and replayed.
//!
//! A graph repeats copies from and to the same places. So every replay begins with the blocks in the slots in which the
//! recording began, and leaves them where it ended.

use super::Engine;
use crate::device::Side;
use crate::residence::ParameterStore;
use crate::residence::turns::SlotState;

impl Engine {
    pub(super) fn return_slots(&mut self, held: &[Option<usize>]) {
        self.take_summed();
        for (slot, wanted) in held.iter().enumerate() {
            match *wanted {
                same if same == self.slots.held()[slot] => {}
                None => self.release(slot),
                Some(block) => self.fill(slot, Side::Weights, block, self.size.elements),
            }
        }
        self.slots.hold(held);
        self.settle();
    }

    pub(super) fn join_graph(&mut self, SlotState { held, summed, squares }: &SlotState) {
        self.slots.hold(held);
        self.summed.clone_from(summed);
        self.squares.clone_from(squares);
        self.store.join();
    }
}
