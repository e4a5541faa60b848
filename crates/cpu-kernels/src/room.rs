//! [`Room`]: memory that a thread works in and keeps.

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::ptr::NonNull;
use std::slice;

/// Bytes of a line of the caches: vectors that cross none are loaded faster.
const LINE: usize = 64;

/// Numbers that begin with a line of the caches. They come from the system: a program that counts its tensors' memory
/// leaves out what threads keep.
pub struct Room {
    first: NonNull<f32>,
    length: usize,
}

// SAFETY: the memory is the room's own.
unsafe impl Send for Room {}
// SAFETY: as above.
unsafe impl Sync for Room {}

impl Room {
    pub const EMPTY: Self = Self { first: NonNull::dangling(), length: 0 };

    /// `length` numbers, with whatever was there before.
    pub fn numbers(&mut self, length: usize) -> &mut [f32] {
        if self.length < length {
            *self = Self::new(length);
        }
        // SAFETY: the room has as many numbers and more, which were 0 before they were written.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), length) }
    }

    /// The first of the numbers that were there last.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn written(&self, length: usize) -> &[f32] {
        assert!(length <= self.length);
        // SAFETY: as above.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), length) }
    }

    fn new(length: usize) -> Self {
        let layout = Self::layout(length);
        // SAFETY: the layout has a size, since more numbers are wanted than none.
        let first = unsafe { System.alloc_zeroed(layout) };
        let Some(first) = NonNull::new(first.cast()) else { handle_alloc_error(layout) };
        Self { first, length }
    }

    fn layout(length: usize) -> Layout {
        let bytes = length.checked_mul(size_of::<f32>()).expect("memory has an end");
        Layout::from_size_align(bytes, LINE).expect("memory has an end")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: allocated by `new` with this layout.
            unsafe { System.dealloc(self.first.as_ptr().cast(), Self::layout(self.length)) };
        }
    }
}
