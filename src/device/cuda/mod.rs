//! CUDA devices: streams, programs, products, copies, sums over ranks, traces. The kernels of operators and optimizers lie beside
//! those, in `ops` and `optim`.
//!
//! A [`Gpu`] is a device that this process has opened. It computes through Burn's CubeCL backend. Matrix products go
//! to cuBLASLt, on CubeCL's own stream and on the buffers of Burn's tensors.

mod activity;
mod address;
mod blas;
mod block;
mod ceilings;
mod collectives;
pub mod compiled;
mod copies;
mod driver;
mod events;
mod flat;
mod graph;
pub mod launch;
pub mod libraries;
mod lowered;
pub mod many;
mod matmul;
mod memory;
mod meter;
mod mirror;
pub mod nccl;
mod pinned;
pub mod program;
mod ranges;
mod scopes;
mod staging;
mod store;
mod stream;
pub mod tables;
mod tensors;
mod upload;

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use burn::tensor::{Device, StreamId};
use burn_cubecl::CubeDevice;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;

use super::DeviceInfo;
use crate::common::locked;
use crate::common::refusal::refuse;

pub use activity::Recording;
pub use address::out_of_memory;
use address::{Address, Server, address, located};
pub use blas::{Fp32Math, TuningAllowed};
pub use ceilings::ceilings;
pub use collectives::{Collectives, Crossed, Pending, Turn, UnderWay};
use copies::{CopyStream, Slot};
pub use driver::count;
use events::Later;
pub use events::{Event, Mark, Stamp};
pub use flat::{copied, part, put};
pub use graph::{Graph, Input, Place, Run, write_zeros};
pub use lowered::{capability, require_capability, shared_memory};
use many::copy;
pub use many::{TOGETHER, add, cast, parts_of_squares, squares};
pub use matmul::{Operand, Output, View, has_blas, matmul, matmul_bias};
pub use memory::{Ballast, LARGE, PeakObservation, Usage};
pub use meter::CudaMeter;
pub use mirror::CudaMirror;
use pinned::{PinnedArena, PinnedSlice};
pub use ranges::Range;
pub use staging::Staging;
pub use store::{CudaStore, Hold};
pub use stream::Path as StreamPath;
use tensors::within;
pub use tensors::{buffer, by_rows, empty, int_buffer, int_tensor, sizes, tensor, writable};
pub use upload::Uploader;

/// An opened device.
pub struct Gpu {
    pub(crate) ordinal: usize,
    device: CubeDevice,
    context: driver::Context,
    blas: Result<blas::Blas, String>,
    programs: program::Programs,
    /// The lane of each of CubeCL's streams: every thread has one.
    lanes: Mutex<HashMap<StreamId, &'static Lane>>,
}

/// A stream with the scratch memory of its matrix products.
struct Lane {
    stream: stream::Stream,
    /// Address of [`blas::WORKSPACE`] bytes.
    workspace: u64,
}

impl Gpu {
    /// The device `ordinal`, opened on first use.
    ///
    /// # Panics
    /// When there is no such device or the driver refuses it; with a [`Refusal`](crate::common::refusal::Refusal) where
    /// [`libraries::require`] says what is missing.
    pub fn open(ordinal: usize) -> &'static Self {
        static OPEN: Mutex<Vec<&'static Gpu>> = Mutex::new(Vec::new());
        let mut open = locked(&OPEN);
        if let Some(gpu) = open.iter().find(|gpu| gpu.ordinal == ordinal) {
            return gpu;
        }
        assert!(ordinal < count(), "cuda:{ordinal} is not there: the driver reports {} devices", count());
        libraries::require(ordinal).unwrap_or_else(|lack| refuse(lack));
        require_capability().unwrap_or_else(|reason| refuse(reason));
        // `subscribe` keeps the answer, and each stream asks for it again.
        let _ = stream::subscribe();
        let context = libraries::warm_compiler(|| driver::Context::retain(ordinal))
            .unwrap_or_else(|e| panic!("cuda:{ordinal} cannot be opened: {e}"));
        context.bind();
        // What CubeCL could not compile would end its own thread.
        libraries::compile_and_load(ordinal).unwrap_or_else(|lack| refuse(lack));
        let device = CubeDevice::cuda(ordinal).unwrap_or_else(|e| panic!("cuda:{ordinal}: {e:?}"));
        let blas = blas::Blas::new(ordinal);
        let programs = program::Programs::default();
        // A device stays open for the life of the process: streams and contexts refer to it.
        let gpu: &'static Self =
            Box::leak(Box::new(Self { ordinal, device, context, blas, programs, lanes: Mutex::default() }));
        gpu.lane();
        open.push(gpu);
        gpu
    }

    /// The opened device a tensor lives on; `None` when it is not a CUDA device.
    pub fn of(tensor: &CubeTensor) -> Option<&'static Self> {
        match &tensor.device {
            CubeDevice::Cuda(device) => Some(Self::open(device.index)),
            _ => None,
        }
    }

    /// Which way each part of the work takes.
    pub fn paths(&self) -> Vec<(&'static str, String)> {
        let stream = match self.stream_path() {
            StreamPath::Shared => "CubeCL's own, through CUPTI".into(),
            StreamPath::HostSynchronised(reason) => format!("separate, the host waits ({reason})"),
        };
        let matmul = match self.blas_version() {
            Ok(version) if self.blas.as_ref().is_ok_and(blas::Blas::measured) => {
                format!("cuBLASLt {version}, algorithm measured")
            }
            Ok(version) => format!("cuBLASLt {version}"),
            Err(reason) => format!("CubeCL ({reason})"),
        };
        let paths = vec![("matmul", matmul), ("stream", stream), ("time", "device events".into())];
        paths.into_iter().chain(lowered::path(self.ordinal).map(|path| ("capability", path))).collect()
    }

    /// The Burn device.
    pub fn burn(&self) -> Device {
        Device::cuda(self.ordinal)
    }

    /// How products on this thread's stream are ordered with Burn's kernels.
    pub fn stream_path(&self) -> &StreamPath {
        self.stream().path()
    }

    /// The version of cuBLASLt, or why there is none: products then take Burn's own kernels.
    pub fn blas_version(&self) -> Result<usize, &str> {
        self.blas.as_ref().map(|_| blas::Blas::version()).map_err(String::as_str)
    }

    /// Until the guard is dropped, times each new matrix product with several algorithms, and keeps the
    /// fastest in memory and on disk. Calls `on_tuned` after each product with the number tuned so far. `None`
    /// without cuBLASLt.
    pub fn allow_tuning(&self, on_tuned: fn(usize)) -> Option<TuningAllowed<'_>> {
        self.blas.as_ref().ok().map(|blas| blas.allow_tuning(on_tuned))
    }

    /// Waits until the device has done everything issued on this thread's stream.
    pub fn synchronize(&self) {
        self.stream().synchronize();
    }

    /// Gives unused memory of CubeCL's pools back to the driver.
    pub fn release_memory(&self) {
        // A refusal leaves the memory reserved, which `Usage` shows.
        let _ = self.client().memory_cleanup();
    }

    fn client(&self) -> Client {
        self.device.client()
    }

    /// This thread's stream.
    fn stream(&self) -> &'static stream::Stream {
        &self.lane().stream
    }

    /// The lane of this thread's stream, opened on first use.
    fn lane(&self) -> &'static Lane {
        let id = StreamId::current();
        let mut lanes = locked(&self.lanes);
        lanes.entry(id).or_insert_with(|| {
            let client = self.client();
            let stream = stream::Stream::open(client.clone(), id, &self.context);
            // Kept for ever, so it must not share a page with memory that comes and goes.
            let handle = client.memory_persistent_allocation((), |()| client.empty(blas::WORKSPACE));
            let at = address(&client, &handle).unwrap_or_else(|e| panic!("{e}"));
            let workspace = at.pointer;
            // A lane is never closed: neither is what keeps its scratch memory in place.
            std::mem::forget((at, handle));
            Box::leak(Box::new(Lane { stream, workspace }))
        })
    }
}

/// Name, memory and versions of a device, without opening it.
pub fn info(ordinal: usize) -> DeviceInfo {
    static DRIVER: OnceLock<String> = OnceLock::new();
    let properties = driver::properties(ordinal);
    let (major, minor) = driver::supported();
    DeviceInfo {
        id: format!("cuda:{ordinal}"),
        name: lowered::name(ordinal, properties.name),
        memory_total: properties.memory_total,
        memory_available: properties.memory_free,
        cores: properties.multiprocessors,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        driver: Some(DRIVER.get_or_init(driver::version).clone()),
        cuda: Some(format!("{major}.{minor}")),
        compute_capability: Some(capability(ordinal).to_string()),
    }
}
