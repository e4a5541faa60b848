//! The environment of a row: runner, device and its ceilings, system, date.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use itertools::Itertools;
use sha2::{Digest, Sha256};
use sysinfo::System;
use time::UtcDateTime;
use time::format_description::well_known::Rfc3339;

use super::build;
use super::process::this_program;
use crate::common::text::hex;
use crate::common::{Compute, DeviceId, cache};
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
    let info = device.info();
    let ceilings = measured_ceilings(device, &info, &types, cancel).unwrap_or_default();
    Environment { ceilings, ..without_ceilings(info) }
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

/// How long the rates of a GPU are remembered. They take seconds, and what else runs on its host may change.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// The ceilings of a device; of a GPU those of the last hour, if there are any. `None` if they cannot be measured; the report
/// then has no shares of ceilings. `info`: of the device, which takes a context of a GPU to ask.
pub fn measured_ceilings(
    device: DeviceId,
    info: &DeviceInfo,
    types: &[Compute],
    cancel: &AtomicBool,
) -> Option<Ceilings> {
    let folder = (device != DeviceId::Cpu).then(|| cache::folder("rates")).flatten();
    let Some(folder) = folder else { return measure_ceilings(device, types, cancel) };
    let DeviceInfo { name, threads, driver, compute_capability, .. } = info;
    let measured =
        format!("{} {device} {name} {threads} {driver:?} {compute_capability:?} {types:?}", build::SOURCES);
    let file = format!("{}.json", hex(&Sha256::digest(measured)[..16]));
    let known = remembered(&folder.join(&file), REMEMBERED);
    known.or_else(|| {
        let ceilings = measure_ceilings(device, types, cancel)?;
        cache::keep(&folder, &file, &serde_json::to_vec(&ceilings).expect("plain data"));
        Some(ceilings)
    })
}

/// What a file has that is younger than `age`.
fn remembered(file: &Path, age: Duration) -> Option<Ceilings> {
    let written = fs::metadata(file).ok()?.modified().ok()?;
    let is_young = written.elapsed().is_ok_and(|elapsed| elapsed < age);
    is_young.then(|| serde_json::from_slice(&fs::read(file).ok()?).ok()).flatten()
}

/// The ceilings that `runner ceilings` measures. It is a process of its own, so that the memory of a GPU's libraries is
/// free again for the cells.
fn measure_ceilings(device: DeviceId, types: &[Compute], cancel: &AtomicBool) -> Option<Ceilings> {
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
    fn rates_are_remembered_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        let (hour, no_time) = (Duration::from_secs(3600), Duration::ZERO);
        assert_eq!(remembered(&file, hour), None, "there is no file");
        let ceilings = Ceilings { copy: Some(2e12), ..Ceilings::default() };
        fs::write(&file, serde_json::to_vec(&ceilings).unwrap()).unwrap();
        assert_eq!((remembered(&file, hour), remembered(&file, no_time)), (Some(ceilings), None));
        fs::write(&file, "{").unwrap();
        assert_eq!(remembered(&file, hour), None, "it is cut off");
    }

    #[test]
    fn now_is_the_present() {
        assert!(
            now().as_str() > "2025-01-01T00:00:00Z" && now().len() == 20 && now().ends_with('Z'),
            "{}",
            now()
        );
    }
}
