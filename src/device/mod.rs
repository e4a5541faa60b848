//! Devices: which ones there are, what they are called and how much they hold. The only module
//! that may know a CUDA type.

mod cpu;

use std::fmt;

use burn::tensor::{DType, Device};
use serde::{Deserialize, Serialize};

use crate::measure::{CpuMeter, Meter};
use crate::recipe::{Cell, Compute, Rule};

/// A device that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceId {
    Cpu,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
        }
    }
}

/// What a device is, as rows and `runner devices` tell it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// `cpu`, `cuda:0`: as a recipe writes it.
    pub id: String,
    /// The maker's name.
    pub name: String,
    /// Bytes of memory in all, and free for a cell now.
    pub memory_total: u64,
    pub memory_available: u64,
    /// Physical cores (CPU) or multiprocessors (GPU).
    pub cores: usize,
    /// Threads that compute.
    pub threads: usize,
}

/// Rates measured on the device: what a cell's own rates are a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Operations per second of a large matrix product, by compute type; `None`: not measured.
    pub matmul_fp32: Option<f64>,
    pub matmul_bf16: Option<f64>,
    pub matmul_fp16: Option<f64>,
    /// Bytes per second of a large copy, bytes read and bytes written both counted.
    pub copy: Option<f64>,
}

impl Ceilings {
    pub fn matmul(&self, compute: Compute) -> Option<f64> {
        match compute {
            Compute::Fp32 => self.matmul_fp32,
            Compute::Bf16 => self.matmul_bf16,
            Compute::Fp16 => self.matmul_fp16,
        }
    }
}

impl DeviceId {
    /// Every device of this machine.
    pub fn all() -> Vec<Self> {
        vec![Self::Cpu]
    }

    /// The device a recipe's `device` value names; `auto` is the fastest there is.
    ///
    /// # Errors
    /// A rule that lists the devices of this machine.
    pub fn resolve(name: &str) -> Result<Self, Rule> {
        if name == "auto" {
            return Ok(Self::Cpu);
        }
        Self::all().into_iter().find(|id| id.to_string() == name).ok_or_else(|| {
            let have: Vec<String> = Self::all().iter().map(|id| format!("\"{id}\"")).collect();
            let what = match name.strip_prefix("cuda") {
                Some(_) => "this build has no CUDA backend",
                None => "no such device",
            };
            Rule::new(
                &["device"],
                format!("the device \"{name}\" is not there: {what}"),
                format!("use \"auto\" or one of: {}", have.join(", ")),
            )
        })
    }

    /// The Burn device.
    pub fn burn(self) -> Device {
        match self {
            Self::Cpu => Device::flex(),
        }
    }

    /// Lets the backend make what it keeps for good (threads, packing buffers), so that a cell's
    /// memory counts tensors alone. `compute` is the type of the matrix products to come.
    pub fn warm_up(self, compute: Compute) {
        match self {
            Self::Cpu => cpu::warm_up(compute),
        }
    }

    pub fn info(self) -> DeviceInfo {
        match self {
            Self::Cpu => cpu::info(),
        }
    }

    /// What follows the steps of a cell on this device; counts memory from here on.
    pub fn meter(self) -> Box<dyn Meter> {
        match self {
            Self::Cpu => Box::new(CpuMeter::new()),
        }
    }

    /// Measures the device's ceilings for these compute types; takes about a second.
    pub fn ceilings(self, types: &[Compute]) -> Ceilings {
        match self {
            Self::Cpu => cpu::ceilings(types),
        }
    }

    /// What cannot run on this device.
    pub(crate) fn check(self, _cell: &Cell) -> Result<(), Rule> {
        match self {
            Self::Cpu => Ok(()),
        }
    }
}

impl DeviceInfo {
    /// The name of the results folder: `Intel(R) Xeon(R) CPU @ 2.20GHz` → `intel-xeon-2.20ghz`.
    pub fn slug(&self) -> String {
        let name = self.name.to_lowercase().replace("(r)", " ").replace("(tm)", " ").replace('@', " ");
        let words: Vec<String> = name
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
            .filter(|word| !word.is_empty() && !["cpu", "processor", "nvidia"].contains(word))
            .map(str::to_string)
            .collect();
        let slug = words.join("-");
        match (self.id.as_str(), slug.is_empty()) {
            (id, true) => id.replace(':', "-"),
            ("cpu", false) => format!("cpu-{slug}"),
            _ => slug,
        }
    }
}

/// Burn's name of a compute type.
pub fn dtype(compute: Compute) -> DType {
    match compute {
        Compute::Fp32 => DType::F32,
        Compute::Bf16 => DType::BF16,
        Compute::Fp16 => DType::F16,
    }
}
