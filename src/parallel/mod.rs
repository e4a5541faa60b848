//! How a step is divided: replicas and stages of the network, and schedules of what each does.

mod config;
mod replicas;
pub mod schedule;
pub mod stage;

pub use config::{DataReduce, Parallel};
pub use replicas::Replicas;
