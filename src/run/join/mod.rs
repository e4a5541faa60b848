//! Ranks that a launcher has started, on one host or several, each with a process of its own for every cell: the first leads.

mod follower;
mod launched;
mod leader;
mod wire;

pub use follower::follow;
pub use launched::Launched;
pub use leader::Leader;
