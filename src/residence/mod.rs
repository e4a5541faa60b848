//! `[offload]`: transformer blocks whose weights and gradients live on the host and come to the device
//! only for their turn. Embedding, final norm and head stay on the device.

mod activations;
mod blocks;
mod config;
mod cost;
mod engine;
mod floor;
mod layout;
mod operator;

pub use blocks::{Blocks, Compute};
pub use config::{Memory, Offload, Placement, Strategy};
pub use cost::Moved;

#[cfg(test)]
mod tests;
