//! How a step is divided: replicas and stages of the network, and schedules of what each does.

mod config;
mod pipeline;
mod replicas;
pub mod schedule;
pub mod stage;

pub use config::{DataReduce, Parallel};
pub use pipeline::Pipeline;
pub use replicas::Replicas;
