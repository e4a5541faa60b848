//! End to end: everything a user does, through the binary.

mod bad_input;
mod checkpoint;
mod cluster;
mod commands;
mod cuda;
mod cuda_training;
mod data;
mod docs;
mod endings;
mod equivalence;
mod html;
mod inputs;
mod language;
mod memory;
mod offload;
mod place;
mod precision;
mod profile;
mod provenance;
mod ranks;
mod rows;
mod run;
mod task;
mod tuning;
mod virtual_tokens;
