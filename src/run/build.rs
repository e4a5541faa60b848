//! [`Build`]: which program runs a cell, and which one measured a row. Burn decides on kernel fusion when it is
//! compiled, so `runner` and `runner-fused` are in one folder, and each starts the one that a cell needs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use itertools::Itertools;
use miette::{Result, miette};

use crate::device::cuda;
use crate::recipe::Cell;
use crate::row::Row;
use crate::words::{DeviceId, text::and};

/// Hash of the sources and the profile this program was built from.
pub const SOURCES: &str = env!("RUNNER_BUILD");
/// The commit of these sources, `-dirty` where they have changed since; empty when unknown.
pub const COMMIT: &str = env!("RUNNER_COMMIT");

/// What the user should know of finished rows that another build measured; `None` where there are none.
pub fn stale_notice<'r>(rows: impl Iterator<Item = &'r Row>) -> Option<String> {
    let stale: Vec<&str> = rows
        .filter(|row| row.environment.build != SOURCES)
        .map(|row| row.environment.commit.as_str())
        .collect();
    let rows = match stale.len() {
        0 => return None,
        1 => "1 finished row is of another build of the runner".to_string(),
        n => format!("{n} finished rows are of other builds of the runner"),
    };
    let builds = and(stale.into_iter().unique().map(|commit| match commit {
        "" => "of an unknown commit".to_string(),
        commit => format!("of commit {commit}"),
    }));
    Some(format!("{rows}, {builds}; --stale measures such cells again"))
}

/// A build of the runner, as `runner build` prints it: the programs that one run starts come from the same sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    fused: bool,
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, build {SOURCES}", self.name(), env!("CARGO_PKG_VERSION"))?;
        if COMMIT.is_empty() { Ok(()) } else { write!(f, ", commit {COMMIT}") }
    }
}

impl Build {
    /// This program's.
    pub fn own() -> Self {
        Self { fused: cuda::FUSED }
    }

    /// The one that computes as the cell asks; on the CPU all do.
    pub fn of(cell: &Cell) -> Self {
        match cell.device_id() {
            DeviceId::Cpu => Self::own(),
            DeviceId::Cuda(_) => Self { fused: cell.ops.fusion },
        }
    }

    fn name(self) -> &'static str {
        if self.fused { "runner-fused" } else { "runner" }
    }

    /// Its file, given this program's.
    pub fn beside(self, own: &Path) -> PathBuf {
        if self == Self::own() { own.into() } else { own.with_file_name(self.name()) }
    }

    /// Asks the file which build it is.
    ///
    /// # Errors
    /// When it is not there, or not this build of this program's sources.
    pub fn check(self, file: &Path) -> Result<()> {
        let told = Command::new(file).arg("build").stdin(Stdio::null()).output();
        let why = match told.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()) {
            Ok(told) if told == self.to_string() => return Ok(()),
            Ok(told) => format!("{} is \"{told}\", and this run needs \"{self}\"", file.display()),
            Err(e) => format!("{} cannot be started: {e}", file.display()),
        };
        let profile = if cfg!(debug_assertions) { "" } else { " --release" };
        let feature = if self.fused { " --features fusion" } else { "" };
        Err(miette!(
            help =
                format!("build it beside this program: cargo build{profile}{feature} --bin {}", self.name()),
            "Burn decides on kernel fusion when it is compiled, so cells with ops.fusion = {} have a program of \
             their own; {why}",
            self.fused
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing;
    use std::os::unix::fs::PermissionsExt;

    /// The build that this program is not.
    fn other() -> Build {
        Build { fused: !cuda::FUSED }
    }

    /// The error of checking a file with this content; `None` without an error.
    fn checked(script: Option<&str>) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = other().beside(&folder.path().join("this"));
        if let Some(script) = script {
            std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        }
        other().check(&file).err().map(|e| format!("{e} {}", e.help().unwrap()))
    }

    #[test]
    fn a_gpu_cell_runs_in_the_build_that_it_asks_for_and_a_cpu_cell_in_any() {
        let mut cell = testing::recipe().cells[0].clone();
        assert_eq!(Build::of(&cell), Build::own());
        cell.device = "cuda:0".into();
        assert_eq!(Build::of(&cell).name(), "runner");
        cell.ops.fusion = true;
        assert_eq!(Build::of(&cell).name(), "runner-fused");
        let own = Path::new("/some/where/runner");
        assert_eq!(Build::own().beside(own), own);
        assert_eq!(other().beside(own).parent(), own.parent());
    }

    #[test]
    fn a_missing_program_is_named_with_the_command_that_builds_it() {
        let error = checked(None).unwrap();
        for part in [other().name(), "cannot be started", "cargo build", &format!("--bin {}", other().name())]
        {
            assert!(error.contains(part), "missing `{part}` in {error}");
        }
    }

    #[test]
    fn a_program_of_other_sources_or_of_another_build_is_refused() {
        assert_eq!(checked(Some(&format!("test $1 = build && echo '{}'", other()))), None);
        assert!(checked(Some("echo runner 0.0.1")).unwrap().contains("is \"runner 0.0.1\""));
        let changed = other().to_string().replace(SOURCES, "0123456789ab");
        assert!(checked(Some(&format!("echo '{changed}'"))).unwrap().contains("this run needs"));
        assert!(checked(Some(&format!("echo '{}'", Build::own()))).unwrap().contains("this run needs"));
    }
}
