//! Where and with what a row is measured: runner, device and its ceilings, system, date.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use itertools::Itertools;
use sysinfo::System;
use time::UtcDateTime;
use time::format_description::well_known::Rfc3339;

use super::build;
use crate::device::{Ceilings, DeviceInfo};
use crate::recipe::Recipe;
use crate::row::Environment;
use crate::words::{Compute, DeviceId};

/// Seconds the ceilings may take: one, and on a GPU some more for its libraries to load.
const CEILINGS_LIMIT: Duration = Duration::from_secs(120);

/// Measures a device's ceilings for the compute types of the recipe's cells there and notes the rest.
/// The device should be idle.
pub fn measure_environment(recipe: &Recipe, device: DeviceId) -> Environment {
    let here =
        recipe.cells.iter().enumerate().filter(|(position, _)| !recipe.elsewhere.contains_key(position));
    let cells = here.map(|(_, cell)| cell).filter(|cell| cell.device_id() == device);
    let types: Vec<Compute> = cells.map(|cell| cell.precision.compute).unique().collect();
    Environment { ceilings: ceilings(device, &types).unwrap_or_default(), ..without_ceilings(device.info()) }
}

/// The environment of what is not measured on a device.
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

/// The ceilings as `runner ceilings` measures them: in a process of its own, so that what a GPU's
/// libraries take of its memory is free again for the cells. `None` when that process fails; the
/// report then shows no shares of them.
fn ceilings(device: DeviceId, types: &[Compute]) -> Option<Ceilings> {
    let mut child = Command::new(std::env::current_exe().ok()?)
        .args(["ceilings", &device.to_string()])
        .args(types.iter().map(|compute| compute.into_str()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + CEILINGS_LIMIT;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() > deadline {
            // It may hang in the driver; what it would have said is not needed.
            let _ = child.kill();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // A line of JSON fits a pipe, so the process could end before it was read.
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
