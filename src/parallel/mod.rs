//! How a cell's work is divided among ranks: replicas, divided layers, stages of a pipeline, and schedules.

mod buckets;
mod config;
mod division;
mod groups;
mod pipeline;
mod record;
mod replicas;
pub mod schedule;
pub mod stage;
mod stages;
mod tensor;

pub use config::{DataReduce, Engine, Parallel};
pub use division::Division;
pub use groups::Groups;
pub use pipeline::Pipeline;
pub use replicas::{RecordedBucket, Replicas};
pub use stages::Stages;
pub use tensor::{TensorRanks, whole};
