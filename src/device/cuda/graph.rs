//! [`Graph`]: launches that are recorded once and replayed by one call.
//!
//! A graph keeps the addresses that its kernels read and write. What it reads from outside must stay in its place, and is
//! written over between replays ([`Graph::refill`]). CubeCL guards the pages of its pools that a recorded launch used, as
//! long as the graph lives: it gives what is free on them to nothing else, so neither an evaluation nor an update writes to
//! it, and no replay writes over theirs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Int, StreamId, Tensor};
use burn_cubecl::Cube;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client;
use cubecl::server::ServerError;
use cubecl_runtime::memory_management::{ManagedMemoryId, MemoryAllocationMode};
use cubecl_runtime::server::Server as _;
use cudarc::driver::result::memset_d8_async;
use cudarc::driver::sys;

use super::launch::Pointer;
use super::memory::Usage;
use super::{CopyStream, Gpu, Later, Mark, buffer, int_buffer};
use crate::measure::Seconds;

/// A recorded sequence of launches on this thread's stream.
pub struct Graph {
    gpu: &'static Gpu,
    graph: client::Graph,
    /// Waits for places in the graph, to note when the device comes there.
    beside: CopyStream,
}

/// A tensor that a graph reads, and that is another each time.
#[derive(Clone)]
pub enum Input {
    Float(Tensor<1>),
    Integer(Tensor<1, Int>),
}

impl Input {
    fn buffer(&self) -> CubeTensor {
        match self {
            Self::Float(tensor) => buffer(tensor.clone()),
            Self::Integer(tensor) => int_buffer(tensor.clone()),
        }
    }
}

/// The memory behind a tensor. Two tensors of one place lie in the same memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Place(ManagedMemoryId, Option<u64>);

impl Place {
    /// `None` of a tensor that is not on a CUDA device.
    pub fn of<const D: usize>(tensor: Tensor<D>) -> Option<Self> {
        tensor.try_into_primitive::<Cube>().ok().map(|buffer| Self::of_buffer(&buffer))
    }

    fn of_buffer(buffer: &CubeTensor) -> Self {
        Self(buffer.handle.memory.descriptor().id, buffer.handle.offset_start)
    }
}

/// When it is dropped, this thread's stream takes memory from the pools again.
struct FromPools(&'static Gpu);

impl Drop for FromPools {
    fn drop(&mut self) {
        self.0.stream().allocate(MemoryAllocationMode::Auto);
    }
}

/// How often what is recorded runs before, at the most.
const FIRST_RUNS: usize = 4;

impl Gpu {
    /// What `make` makes, in memory of exactly its size that stays where it is: for what recorded launches write.
    pub fn in_place<T>(&'static self, make: impl FnOnce() -> T) -> T {
        self.stream().allocate(MemoryAllocationMode::Persistent);
        // Also where `make` panics.
        let _end = FromPools(self);
        make()
    }

    /// Runs `work` several times on this thread's stream. The first times compute: they compile what is to be compiled and
    /// take memory, until a run needs no more of it, since nothing can be allocated later. The last time records, and
    /// computes nothing before [`Graph::replay`]. Gives what that one returned.
    ///
    /// `work` must issue the same launches each time, on this thread, and must not wait for the device.
    ///
    /// # Errors
    /// Why the launches cannot be recorded; the device is as before.
    pub fn record<T>(&'static self, mut work: impl FnMut(Run) -> T) -> Result<(Graph, T), String> {
        if let super::StreamPath::HostSynchronised(reason) = self.stream_path() {
            return Err(format!("the runner's kernels have a stream of their own ({reason})"));
        }
        // Pages that other work left free would be the graph's too.
        self.release_memory();
        let beside = CopyStream::new(self, false)?;
        let (client, said) = (self.client(), |e: ServerError| format!("{e}"));
        client.graph_prepare().map_err(said)?;
        let mut reserved = 0;
        for run in 0..FIRST_RUNS {
            drop(work(if run == 0 { Run::First } else { Run::Again }));
            let before = std::mem::replace(&mut reserved, Usage::now(self).reserved);
            if before == reserved {
                break;
            }
        }
        client.start_capture().map_err(said)?;
        // A window that is not closed would record all that comes after it.
        let result = catch_unwind(AssertUnwindSafe(|| work(Run::Recorded)));
        let graph = client.stop_capture();
        match (graph, result) {
            (Ok(graph), Ok(result)) => Ok((Graph { gpu: self, graph, beside }, result)),
            (graph, _) => {
                self.stream().forget_failure();
                self.release_memory();
                Err(graph.err().map_or_else(|| "the recording ended early".into(), said))
            }
        }
    }
}

/// Which run of what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// It computes, for the first time.
    First,
    /// It computes once more.
    Again,
    Recorded,
}

impl Graph {
    /// Computes all of it, after what was issued on this thread's stream and before what will be.
    ///
    /// # Panics
    /// When the device refuses it.
    pub fn replay(&self) {
        // SAFETY: what it allocated lies on pages that nothing else gets while the graph lives; who made it holds what it
        // reads and what it gave; all of it is used on the stream of this thread alone.
        let replayed = unsafe { self.graph.replay() };
        replayed.unwrap_or_else(|e| panic!("the device refuses a recorded step: {e}"));
    }

    /// As [`replay`](Self::replay). Returns the seconds from a place in it to its end, for when the device has ended it.
    ///
    /// Each replay comes to the place again. So a stream beside the graph's waits for it, and records an event of this
    /// replay alone: the host need not read one time before it launches the next.
    pub fn timed_replay(&self, place: &Mark) -> Seconds {
        self.replay();
        let (at_place, place, beside) = (Later::default(), place.clone(), self.beside.raw());
        let noted = at_place.clone();
        self.gpu.stream().enqueue(None, move |_, _| {
            let place = place.0.get().ok_or("a place in a recorded step is not there")?;
            place.hold(beside.stream());
            noted.record_on(beside.stream());
            Ok(())
        });
        let end = Later::behind(self.gpu);
        Box::new(move || {
            let [end, at_place] =
                [&end, &at_place].map(|later| later.event().expect("the device has come here"));
            // The stream beside is some microseconds late.
            end.seconds_since(at_place).max(0.0)
        })
    }

    /// Writes each tensor of `from` over that of the same place in `into`, which the graph reads.
    ///
    /// # Panics
    /// When two of a pair have different sizes.
    pub fn refill(&self, into: &[Input], from: &[Input]) {
        assert_eq!(into.len(), from.len(), "as many inputs as were recorded");
        let mut copies = Vec::with_capacity(into.len());
        for (into, from) in into.iter().zip(from) {
            let [into, from] = [into, from].map(Input::buffer);
            let bytes = into.meta.num_elements() * into.dtype.size();
            let other = from.meta.num_elements() * from.dtype.size();
            assert_eq!(bytes, other, "an input of the size that was recorded");
            if Place::of_buffer(&into) != Place::of_buffer(&from) && bytes > 0 {
                copies.push((Pointer::whole(&into), Pointer::whole(&from), bytes));
            }
        }
        self.gpu.stream().enqueue(None, move |buffers, stream| {
            for (into, from, bytes) in copies {
                let [into, from] = [buffers.locate(into.buffer)?, buffers.locate(from.buffer)?];
                // SAFETY: both are as long as their tensors, and stay in place until the copy is in the stream.
                let copied = unsafe { sys::cuMemcpyDtoDAsync_v2(into.pointer, from.pointer, bytes, stream) };
                copied
                    .result()
                    .map_err(|e| format!("an input of a recorded step cannot be copied: {e:?}"))?;
            }
            Ok(())
        });
    }
}

/// Writes zeros over contiguous tensors of one device.
///
/// # Panics
/// When they are others.
pub fn write_zeros(tensors: Vec<Tensor<1>>) {
    let tensors: Vec<_> = tensors.into_iter().map(buffer).collect();
    let Some(gpu) = tensors.first().map(|tensor| Gpu::of(tensor).expect("a CUDA tensor")) else { return };
    let whole = |tensor: &CubeTensor| {
        assert!(tensor.is_contiguous(), "a tensor without gaps, not {:?}", tensor.meta);
        (Pointer::whole(tensor), tensor.meta.num_elements() * tensor.dtype.size())
    };
    let places: Vec<_> = tensors.iter().map(whole).collect();
    gpu.stream().enqueue(None, move |buffers, stream| {
        for (place, bytes) in places.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let at = buffers.locate(place.buffer)?;
            // SAFETY: the tensor has so many bytes, and stays in place until this is in the stream.
            unsafe { memset_d8_async(at.pointer, 0, bytes, stream) }
                .map_err(|e| format!("a tensor cannot be set to zero: {e}"))?;
        }
        Ok(())
    });
}

/// The stream that allocates in a mode is the thread's.
impl super::stream::Stream {
    fn allocate(&self, mode: MemoryAllocationMode) {
        let id = StreamId::current();
        self.on_server(move |server| server.allocation_mode(mode, id));
    }
}
