//! Training: the network, data and optimizer of a cell, its steps and their measurement.

mod build;
mod cell;
mod change;
mod clock;
mod feed;
mod outcome;
mod pipeline;
pub mod protocol;
mod ranks;
mod saving;
mod step;
mod steps;
mod training;

pub use build::{Build, placement};
pub use cell::serve;
pub use change::{Change, Damage, RefillsEarly, change};
pub use feed::{Feed, on_device};
pub use pipeline::train;
pub use step::{BeforeUpdate, End, share};
pub use training::Training;
