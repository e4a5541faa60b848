//! Training: a cell's network, data and optimizer, stepped and measured.

mod cell;
mod clock;
mod outcome;
mod pipeline;
mod training;

pub use cell::serve;
pub use pipeline::train;
pub use training::{BeforeUpdate, Training};
