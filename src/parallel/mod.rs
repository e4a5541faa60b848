//! How a step is divided: replicas and stages of the network, and schedules of what each does.

mod config;
mod groups;
mod replicas;
pub mod schedule;
pub mod stage;
mod tensor;

pub use config::{DataReduce, Parallel};
pub use groups::Groups;
pub use replicas::Replicas;
pub use tensor::{TensorRanks, whole};
