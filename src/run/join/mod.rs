//! `runner join`: a launcher has started one process for each rank, on one host or several. The first leads, and each starts
//! a process for its rank of every cell.

mod follower;
mod launched;
mod leader;
mod reading;
mod wire;

pub use follower::follow;
pub use launched::Launched;
pub use leader::Leader;
