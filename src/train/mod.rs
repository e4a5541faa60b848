//! Training: a cell's network, data and optimizer, stepped and measured.

mod cell;
mod change;
mod clock;
mod outcome;
mod pipeline;
pub mod protocol;
mod training;

pub use cell::serve;
pub use change::{Change, Damage, change};
pub use pipeline::train;
pub use training::{BeforeUpdate, Training};
