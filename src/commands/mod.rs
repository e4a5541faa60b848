//! What each command does; `main.rs` is the flow between them.

pub mod devices;
pub mod generate;
pub mod keys;
pub mod plan;
pub mod recipes;
pub mod run;
