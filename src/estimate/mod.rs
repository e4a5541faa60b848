//! What a step of a cell needs, from its settings alone: memory by its parts, operations, and bytes between ranks. The costs
//! of single operators lie beside them ([`crate::ops::cost`]); here they are folded over a network and its ranks.

mod account;
mod cell;
mod costs;
mod pools;
mod stages;
mod step;
mod work;
mod workload;

pub use account::Account;
pub use costs::{Adapted, Costs, Load};
pub use pools::{NCCL, most as most_driver_memory};
pub use workload::Workload;
