//! Devices: which ones there are, what they are called and how much they hold. Only this folder
//! calls CUDA.

mod allocation;
mod capability;
mod cards;
mod cpu;
pub mod cuda;
pub mod elements;
mod filler;
mod host;
mod mirror;
mod random;
mod staging;
mod store;
mod target;
mod timer;
mod zeros;

use std::collections::BTreeMap;
use std::ffi::CStr;

use burn::tensor::{DType, Device};
use serde::{Deserialize, Serialize};

pub use capability::{Capability, Feature};
pub use cards::{Card, Slice};
pub use filler::Filler;
pub use host::{HostMemory, Loan, beyond_host_limit, require_host_memory};
pub use mirror::Mirror;
pub use random::{drawing, random};
pub use staging::{Staging, integers};
pub use store::{BlockStore, Buffers, Side, StoreSize};
pub use target::Target;
pub use timer::{Moment, Timer};
pub use zeros::{is_cuda, zeros};

use crate::common::{Compute, DeviceId};
use crate::keys::Rule;
pub use crate::measure::{Ceilings, trace};
use crate::measure::{CpuMeter, Meter, alloc};

/// What a device is, as rows and `runner devices` show it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// `cpu`, `cuda:0`: as a recipe writes it.
    pub id: String,
    /// The maker's name.
    pub name: String,
    /// Bytes of memory, in all and free for a cell.
    pub memory_total: u64,
    pub memory_available: u64,
    /// Physical cores (CPU) or multiprocessors (GPU).
    pub cores: usize,
    /// Threads of the host.
    pub threads: usize,
    /// For a CUDA device the driver's version, the CUDA version that it supports, and the device's
    /// compute capability.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cuda: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub compute_capability: Option<String>,
}

/// What an estimate of few bytes may be low.
const LEAST_ROOM: u64 = 1 << 20;

impl DeviceId {
    /// Every device of this machine.
    pub fn all() -> Vec<Self> {
        std::iter::once(Self::Cpu).chain((0..cuda::count()).map(Self::Cuda)).collect()
    }

    /// The device a recipe's `device` value names; `auto` is the first GPU, or the CPU
    /// where there is none.
    ///
    /// # Errors
    /// A rule that lists the devices of this machine, or says what a GPU needs to be used.
    pub fn resolve(name: &str) -> Result<Self, Rule> {
        let device = Self::listed(name)?;
        let Self::Cuda(ordinal) = device else { return Ok(device) };
        let lack = |cuda::libraries::Lack { what, remedy }| {
            let remedy = format!("{remedy}; or use device = \"cpu\"");
            Rule::elsewhere(&["device"], format!("{device} cannot be used: {what}"), remedy)
        };
        cuda::libraries::require(ordinal).map(|()| device).map_err(lack)
    }

    fn listed(name: &str) -> Result<Self, Rule> {
        let have = Self::all();
        if name == "auto" {
            return Ok(have.get(1).copied().unwrap_or(Self::Cpu));
        }
        have.iter().copied().find(|id| id.to_string() == name).ok_or_else(|| {
            let have: Vec<String> = have.iter().map(|id| format!("\"{id}\"")).collect();
            let gpu = Self::gpu(name).is_some();
            let what = match gpu && have.len() == 1 {
                true => "no NVIDIA driver with a device was found",
                false => "no such device",
            };
            let rule = Rule::new(
                &["device"],
                format!("the device \"{name}\" is not there: {what}"),
                format!("use \"auto\" or one of: {}; GPUs are called \"cuda:0\" and so on", have.join(", ")),
            );
            Rule { elsewhere: gpu, ..rule }
        })
    }

    /// The same for a device that need not be here.
    pub fn named(name: &str) -> Self {
        Self::gpu(name).unwrap_or_else(|| Self::resolve(name).unwrap_or(Self::Cpu))
    }

    /// The GPU of this name, here or not.
    fn gpu(name: &str) -> Option<Self> {
        name.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok()).map(Self::Cuda)
    }

    /// The Burn device.
    pub fn burn(self) -> Device {
        match self {
            Self::Cpu => Device::flex(),
            Self::Cuda(ordinal) => cuda::Gpu::open(ordinal).burn(),
        }
    }

    /// Bytes of a GPU that the driver keeps for a process besides what the process asks for: its context and the code of
    /// its kernels, 0.61 to 0.70 GB on an H200 by the driver's figure.
    pub fn context_bytes(self) -> u64 {
        match self {
            Self::Cpu => 0,
            Self::Cuda(_) => 650_000_000,
        }
    }

    /// The part of a limit that tensors can have for certain, by their estimate. The context takes some of the limit, pools
    /// hold more than is in use, near a limit 3 to 10 % more (rows of an H200 whose tensors take at least 70 % of theirs), and
    /// an estimate may be 3 % low, or 1 MiB.
    pub fn room(self, limit: u64) -> u64 {
        let tensors = limit.saturating_sub(self.context_bytes());
        (tensors / 113 * 100).min(tensors.saturating_sub(LEAST_ROOM))
    }

    /// The least limit with room for so many bytes of tensors, as [`room`](Self::room) has it.
    pub fn limit_for(self, tensors: u64) -> u64 {
        let pools = tensors.div_ceil(100).saturating_mul(113);
        pools.max(tensors.saturating_add(LEAST_ROOM)).saturating_add(self.context_bytes())
    }

    /// Has the backend allocate what it keeps until the process ends (threads, packing buffers), so that a
    /// cell's memory counts tensors alone. `compute` is the type of the matrix products to come.
    pub fn warm_up(self, compute: Compute) {
        match self {
            Self::Cpu => cpu::warm_up(compute),
            Self::Cuda(ordinal) => _ = cuda::Gpu::open(ordinal),
        }
    }

    pub fn info(self) -> DeviceInfo {
        match self {
            Self::Cpu => cpu::info(),
            Self::Cuda(ordinal) => cuda::info(ordinal),
        }
    }

    /// Measures the steps of a cell on this device; counts memory from here on.
    pub fn meter(self) -> Box<dyn Meter> {
        match self {
            Self::Cpu => Box::new(CpuMeter::start()),
            Self::Cuda(ordinal) => Box::new(cuda::CudaMeter::new(cuda::Gpu::open(ordinal))),
        }
    }

    /// Until the guard is dropped, this process can hold no more than `bytes` of the device's memory, as on a
    /// smaller device; of a GPU the driver's figure counts, with what the driver keeps itself.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn limit_memory(self, bytes: u64) -> Result<MemoryLimit, String> {
        match self {
            Self::Cpu => {
                alloc::set_limit(bytes);
                Ok(MemoryLimit(None))
            }
            Self::Cuda(ordinal) => {
                let rest = bytes.saturating_sub(self.context_bytes());
                cuda::Ballast::leaving(cuda::Gpu::open(ordinal), rest).map(MemoryLimit)
            }
        }
    }

    /// Records the kernels and copies of `work`, and on the CPU its operators.
    ///
    /// # Errors
    /// When the device keeps no records, as where another profiler takes them.
    pub fn record(self, work: impl FnOnce()) -> Result<Vec<trace::Activity>, String> {
        match self {
            Self::Cpu => Ok(trace::HostRecording::of(work)),
            Self::Cuda(ordinal) => {
                let recording = cuda::Recording::start(cuda::Gpu::open(ordinal))?;
                work();
                Ok(recording.stop())
            }
        }
    }

    /// Notes a place in a recording; without one it does nothing.
    pub fn mark(self, mark: trace::Mark) {
        match self {
            Self::Cpu => trace::HostRecording::mark(mark),
            Self::Cuda(ordinal) => cuda::Gpu::open(ordinal).mark(mark),
        }
    }

    /// Names what is issued until the range is dropped in the timelines of profilers; `None` where
    /// nobody would see it.
    pub fn range(self, name: &'static CStr) -> Option<cuda::Range> {
        match self {
            Self::Cpu => None,
            Self::Cuda(ordinal) => cuda::Range::enter(cuda::Gpu::open(ordinal), name),
        }
    }

    /// Which way each part of the work takes on this device.
    pub fn paths(self) -> BTreeMap<String, String> {
        let paths = match self {
            Self::Cpu => vec![
                ("fp32", format!("cpu-kernels, {}", cpu_kernels::vectors())),
                ("matmul of fewer bits", "gemm (burn-flex)".into()),
                ("time", "host clock".into()),
            ],
            Self::Cuda(ordinal) => cuda::Gpu::open(ordinal).paths(),
        };
        paths.into_iter().map(|(part, path)| (part.to_string(), path)).collect()
    }

    /// Measures the device's ceilings for these compute types; takes about a second.
    pub fn ceilings(self, types: &[Compute]) -> Ceilings {
        match self {
            Self::Cpu => cpu::ceilings(types),
            Self::Cuda(ordinal) if !cuda::capability(ordinal).has(Feature::Kernels) => Ceilings::default(),
            Self::Cuda(ordinal) => cuda::ceilings(cuda::Gpu::open(ordinal), types),
        }
    }
}

/// Keeps a limit on device memory in force. A GPU's held-back memory is freed when it is dropped.
pub struct MemoryLimit(Option<cuda::Ballast>);

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if self.0.is_none() {
            alloc::set_limit(u64::MAX);
        }
    }
}

/// What to change in a recipe whose cell finds no memory on its device.
pub const LESS_MEMORY: &str = "lower train.batch_size or train.seq_len, set checkpoint.level = 1 or \
                               checkpoint.blocks = 1, or move blocks to the host with offload.strategy";

/// The message for the user when an error or a panic came from a full device or a full host.
pub fn out_of_memory(error: &str) -> Option<String> {
    cuda::out_of_memory(error).or_else(|| host::out_of_host_memory(error))
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
        Compute::Fp32 | Compute::Tf32 => DType::F32,
        Compute::Bf16 => DType::BF16,
        Compute::Fp16 => DType::F16,
    }
}
