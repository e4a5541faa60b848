//! Training: the network, data and optimizer of a cell, its steps and their measurement.

mod build;
mod cell;
mod change;
mod clock;
mod feed;
mod outcome;
pub mod protocol;
mod ranks;
mod records;
mod saving;
mod serve;
mod step;
mod steps;
mod training;
mod watch;

pub use build::{Build, placement};
pub use cell::{train, train_alone};
pub use change::{Change, Damage, RefillsEarly, change};
pub use feed::{Feed, on_device};
pub use saving::remove_states;
pub use serve::serve;
pub use step::{BeforeUpdate, End, share};
pub use training::Training;
pub use watch::Watch;

#[cfg(test)]
mod scaled_tests;
