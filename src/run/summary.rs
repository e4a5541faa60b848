//! [`Summary`]: the counts of a run's cells, and its exit code.

use std::fmt;

use super::interrupt::EXIT_INTERRUPTED;

/// `EX_UNAVAILABLE` of sysexits.h: some cells need another machine.
const EXIT_ELSEWHERE: u8 = 69;

/// Counts of the chosen cells; of a cell with several processes each counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Measured by this run.
    pub ran: usize,
    /// Finished earlier or by another run.
    pub finished_earlier: usize,
    /// Still without a row.
    pub left: usize,
    /// Skipped, since they need other hardware.
    pub elsewhere: usize,
    /// Rows by status, including those of earlier runs.
    pub ok: usize,
    pub oom: usize,
    pub failed: usize,
    pub diverged: usize,
    /// Measured cells whose weights or log could not be saved.
    pub unsaved: usize,
    pub interrupted: bool,
}

impl Summary {
    /// 0: done; 1: a cell failed, diverged or could not save; 42: every failure was out of memory; 69: cells need other
    /// hardware; 130: interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self { interrupted: true, .. } => EXIT_INTERRUPTED,
            s if s.failed + s.diverged + s.unsaved > 0 => 1,
            s if s.oom > 0 => 42,
            s if s.elsewhere > 0 => EXIT_ELSEWHERE,
            _ => 0,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} measured, {} finished earlier", self.ran, self.finished_earlier)?;
        if self.left > 0 {
            write!(f, ", {} still to measure", self.left)?;
        }
        for (count, name) in [
            (self.oom, "out of memory"),
            (self.failed, "failed"),
            (self.diverged, "diverged"),
            (self.unsaved, "not saved"),
            (self.elsewhere, "skipped for other hardware"),
        ] {
            if count > 0 {
                write!(f, ", {count} {name}")?;
            }
        }
        if self.interrupted { f.write_str("; interrupted") } else { Ok(()) }
    }
}
