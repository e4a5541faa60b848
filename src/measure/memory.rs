//! Time and peak memory of each phase of a step.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::alloc;

/// Bytes, measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The most live bytes at any moment of any step, above what the process held before the
    /// network was built. Exact: every tensor allocation is counted.
    pub live_peak: u64,
    /// The same, by phase.
    pub forward_peak: u64,
    pub backward_peak: u64,
    pub optimizer_peak: u64,
    /// Live bytes between forward and backward: weights, optimizer state, batch, and what the
    /// checkpoint level keeps.
    pub after_forward: u64,
    /// The operating system's figure for the whole process at its highest.
    pub process_rss_peak: Option<u64>,
}

/// A phase of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Forward,
    Backward,
    Optimizer,
}

impl Phase {
    pub const ALL: [Self; 3] = [Self::Forward, Self::Backward, Self::Optimizer];
}

/// Times the phases of each step and follows their memory.
pub struct PhaseMeter {
    /// Live bytes before the network was built.
    base: usize,
    memory: MemoryUse,
    seconds: [f64; 3],
}

impl PhaseMeter {
    /// Starts counting memory from here; call it before the network is built.
    pub fn new() -> Self {
        Self { base: alloc::live(), memory: MemoryUse::default(), seconds: [0.0; 3] }
    }

    /// Runs one phase. The CPU backend computes when it is called, so the clock around the call
    /// is the phase's time.
    pub fn run<T>(&mut self, phase: Phase, work: impl FnOnce() -> T) -> T {
        alloc::reset_peak();
        let start = Instant::now();
        let result = work();
        self.seconds[phase as usize] = start.elapsed().as_secs_f64();
        let peak = alloc::peak().saturating_sub(self.base) as u64;
        let memory = &mut self.memory;
        let of_phase = match phase {
            Phase::Forward => &mut memory.forward_peak,
            Phase::Backward => &mut memory.backward_peak,
            Phase::Optimizer => &mut memory.optimizer_peak,
        };
        *of_phase = peak.max(*of_phase);
        memory.live_peak = memory.live_peak.max(peak);
        if phase == Phase::Forward {
            let live = alloc::live().saturating_sub(self.base) as u64;
            memory.after_forward = memory.after_forward.max(live);
        }
        result
    }

    /// Seconds of a phase in the last step.
    pub fn seconds(&self, phase: Phase) -> f64 {
        self.seconds[phase as usize]
    }

    /// The peaks so far.
    pub fn memory(&self) -> MemoryUse {
        MemoryUse { process_rss_peak: process_peak_rss(), ..self.memory }
    }
}

impl Default for PhaseMeter {
    fn default() -> Self {
        Self::new()
    }
}

/// The most resident bytes this process had (VmHWM); `None` where there is no /proc.
pub fn process_peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
