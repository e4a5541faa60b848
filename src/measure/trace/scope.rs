//! [`Scope`]: says which operator issues work, to whoever records.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::common::locked;

/// Receives the scopes of a recording, in the order in which work is issued.
pub trait Follower: Send + Sync {
    /// What is issued from here on belongs to `operator`.
    fn enter(&self, operator: &'static str);

    /// The scope that was entered last ends; the one around it goes on.
    fn leave(&self);
}

static FOLLOWED: AtomicBool = AtomicBool::new(false);
static FOLLOWER: Mutex<Option<Arc<dyn Follower>>> = Mutex::new(None);

/// Reports the scopes from here on to `new` alone; with `None` to nobody.
pub fn follow(new: Option<Arc<dyn Follower>>) {
    FOLLOWED.store(new.is_some(), Relaxed);
    *locked(&FOLLOWER) = new;
}

/// What is issued until it is dropped belongs to an operator. Scopes nest: the innermost counts.
pub struct Scope(Arc<dyn Follower>);

impl Scope {
    /// `None` while nobody records; that costs one read of a flag.
    pub fn enter(operator: &'static str) -> Option<Self> {
        if !FOLLOWED.load(Relaxed) {
            return None;
        }
        let follower = locked(&FOLLOWER).clone()?;
        follower.enter(operator);
        Some(Self(follower))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.0.leave();
    }
}
