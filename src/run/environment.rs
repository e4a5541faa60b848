//! The environment of a row: runner, device and its ceilings, system, date.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use itertools::Itertools;
use sysinfo::System;
use time::UtcDateTime;
use time::format_description::well_known::Rfc3339;

use super::build;
use super::process::this_program;
use crate::common::{Compute, DeviceId};
use crate::device::{Ceilings, DeviceInfo};
use crate::recipe::Recipe;
use crate::row::Environment;

/// How long the ceilings may take. They take a second, and on a GPU some more to load its libraries.
const CEILINGS_LIMIT: Duration = Duration::from_secs(120);

/// The environment of a device, with its ceilings for the compute types of the recipe's cells there. The device should be
/// idle. Returns soon after `cancel` is set.
pub fn measure_environment(recipe: &Recipe, device: DeviceId, cancel: &AtomicBool) -> Environment {
    let here =
        recipe.cells.iter().enumerate().filter(|(position, _)| !recipe.elsewhere.contains_key(position));
    let cells = here.map(|(_, cell)| cell).filter(|cell| cell.device_id() == device);
    let types: Vec<Compute> = cells.map(|cell| cell.precision.compute).unique().collect();
    let ceilings = measured_ceilings(device, &types, cancel).unwrap_or_default();
    Environment { ceilings, ..without_ceilings(device.info()) }
}

/// The environment of a row that has no measurement.
pub fn without_ceilings(device: DeviceInfo) -> Environment {
    Environment {
        runner_version: env!("CARGO_PKG_VERSION").into(),
        commit: build::COMMIT.into(),
        build: build::SOURCES.into(),
        device,
        ceilings: Ceilings::default(),
        operating_system: System::long_os_version().unwrap_or_else(|_| std::env::consts::OS.into()),
        date: now(),
    }
}

/// The ceilings that `runner ceilings` measures. It is a process of its own, so that the memory of a GPU's libraries is
/// free again for the cells. `None` if that process fails; the report then has no shares of ceilings.
pub fn measured_ceilings(device: DeviceId, types: &[Compute], cancel: &AtomicBool) -> Option<Ceilings> {
    let mut child = Command::new(this_program().ok()?)
        .args(["ceilings", &device.to_string()])
        .args(types.iter().map(|compute| compute.into_str()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + CEILINGS_LIMIT;
    while child.try_wait().ok()?.is_none() {
        if cancel.load(Relaxed) || Instant::now() > deadline {
            // It is not waited for, since it may hang in the driver.
            let _ = child.kill();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // A pipe holds the line of JSON, so the process could end before it is read.
    serde_json::from_reader(child.stdout.take()?).ok()
}

/// The time in UTC, RFC 3339, to the second.
pub fn now() -> String {
    let second = UtcDateTime::now().truncate_to_second();
    second.format(&Rfc3339).expect("the present is a year of four digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_is_the_present() {
        assert!(
            now().as_str() > "2025-01-01T00:00:00Z" && now().len() == 20 && now().ends_with('Z'),
            "{}",
            now()
        );
    }
}
