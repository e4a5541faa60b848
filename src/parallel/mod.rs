//! How a step is divided: stages of the network, and schedules of what each does.

pub mod schedule;
pub mod stage;
