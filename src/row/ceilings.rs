//! [`highest`]: the rates of each device in rows that may have been measured on a busy machine.

use std::collections::HashMap;

use super::{Environment, Row};
use crate::device::Ceilings;

/// The highest rates that rows have of each device, by its name.
pub fn highest(rows: &[Row]) -> HashMap<&str, Ceilings> {
    let mut highest = HashMap::<&str, Ceilings>::new();
    for Environment { device, ceilings, .. } in rows.iter().map(|row| &row.environment) {
        let of = highest.entry(&device.name).or_insert(*ceilings);
        *of = of.or_higher(ceilings);
    }
    highest
}
