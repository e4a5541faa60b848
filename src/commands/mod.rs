//! What each command does; `main.rs` is the flow between them.

pub mod devices;
pub mod generate;
pub mod keys;
pub mod plan;
pub mod profile;
pub mod recipes;
pub mod run;

use clap::Args;

use crate::recipe::Setting;

/// Settings of recipe keys
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Use this value for a recipe key, in every cell, as train.batch_size=4; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Setting>,
}
