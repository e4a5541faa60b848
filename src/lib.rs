//! `runner`: declarative experiments on training large language models in little memory.
//!
//! `recipe` turns a TOML file into checked cells; `run` gives each cell a process of its own,
//! which `train` builds and `measure` measures into a `row`; `report` turns rows into tables,
//! charts and documents.

pub mod advise;
pub mod cli;
pub mod commands;
pub mod common;
pub mod data;
pub mod device;
pub mod estimate;
pub mod keys;
pub mod measure;
pub mod model;
pub mod ops;
pub mod optim;
pub mod parallel;
pub mod params;
#[cfg(test)]
mod portability_tests;
pub mod precision;
pub mod recipe;
pub mod report;
pub mod residence;
pub mod row;
pub mod run;
pub mod train;
pub mod verify;
pub mod world;

/// Counts every allocation, so that a cell's live peak on the CPU is exact.
#[global_allocator]
static ALLOCATOR: measure::alloc::Counting = measure::alloc::Counting;
