//! Training: the network, data and optimizer of a cell, its steps and their measurement.

mod build;
mod cell;
mod change;
mod clock;
mod feed;
mod outcome;
pub mod protocol;
mod ranks;
mod saving;
mod serve;
mod step;
mod steps;
mod training;

pub use build::{Build, placement};
pub use cell::train;
pub use change::{Change, Damage, RefillsEarly, change};
pub use feed::{Feed, on_device};
pub use saving::remove_states;
pub use serve::serve;
pub use step::{BeforeUpdate, End, share};
pub use training::Training;

#[cfg(test)]
mod scaled_tests;
