//! Running cells: each runs in its own process, or one for each rank, and leaves one row.

mod again;
mod bars;
mod build;
mod cells;
mod child_output;
mod claim;
mod environment;
mod executor;
mod interrupt;
mod join;
mod lines;
mod lock;
mod log;
mod losses;
mod merge;
mod options;
mod pace;
mod process;
mod progress;
mod ranks;
mod results;
mod row_files;
mod shard;
mod store;
mod summary;
#[cfg(test)]
pub(crate) mod testing;
mod threads;
mod variables;
mod verdict;

pub use again::{EXIT_TRY_AGAIN, TryAgain};
pub use build::stale_notice;
pub use cells::{Session, run_cells};
pub use environment::{measure_environment, measured_ceilings, without_ceilings};
pub use executor::{Executor, Job, Outcome, memory_limit};
pub use interrupt::{install as install_interrupt, report_large_files};
pub use join::{Launched, Leader, follow};
pub use merge::{Keep, merge};
pub use options::Options;
pub use process::ProcessExecutor;
pub use progress::{Label, Progress, console};
pub use results::{Results, resolve_auto, resolve_graphs};
pub use shard::Shard;
pub use store::{Loaded, Store};
pub use summary::Summary;
pub use threads::require_threads;
