//! Running cells: each in a process of its own, each leaving one row.

pub mod protocol;
