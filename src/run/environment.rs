//! Where and with what a row is measured: runner, device and its ceilings, system, date.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sysinfo::System;

use super::build;
use crate::device::{Ceilings, DeviceId};
use crate::recipe::Recipe;
use crate::row::Environment;
use crate::words::Compute;

/// Seconds the ceilings may take: one, and on a GPU some more for its libraries to load.
const CEILINGS_LIMIT: Duration = Duration::from_secs(120);

/// Measures a device's ceilings for the compute types of the recipe's cells there and notes the rest.
/// The device should be idle.
pub fn measure_environment(recipe: &Recipe, device: DeviceId) -> Environment {
    let mut types: Vec<Compute> = Vec::new();
    for cell in recipe.cells.iter().filter(|cell| cell.device_id() == device) {
        if !types.contains(&cell.precision.compute) {
            types.push(cell.precision.compute);
        }
    }
    Environment {
        runner_version: env!("CARGO_PKG_VERSION").into(),
        commit: build::COMMIT.into(),
        build: build::SOURCES.into(),
        device: device.info(),
        ceilings: ceilings(device, &types).unwrap_or_default(),
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
    // A clock before 1970 is wrong anyway; the row then shows 1970.
    rfc3339(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()))
}

/// `seconds` since 1970-01-01T00:00:00Z.
fn rfc3339(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day counted from 1970-01-01 (Howard Hinnant, "chrono-compatible
/// low-level date algorithms"). Years begin in March here, so that the leap day is the last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds as `date -u -d ... +%s` prints them.
    #[test]
    fn dates_around_leap_days_and_centuries() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_795_246_200, "2026-11-21T07:30:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), date);
        }
    }

    #[test]
    fn now_is_the_present() {
        assert!(now().as_str() > "2025-01-01T00:00:00Z" && now().ends_with('Z'), "{}", now());
    }
}
