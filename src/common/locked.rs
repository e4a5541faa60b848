//! A lock that outlives a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the mutex holds, also where a thread panicked while it held the lock: for values that no panic leaves half changed.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
