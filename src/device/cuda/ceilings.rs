//! The highest rates that the device reaches; a cell's own rates are given as shares of them.

use std::ffi::c_void;
use std::time::Instant;

use burn::tensor::{DType, Distribution, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::sys;

use super::Fp32Math;
use super::block::Block;
use super::{CudaStore, Event, Gpu, Operand, Output, PinnedArena, buffer, capability, matmul};
use crate::common::Compute;
use crate::device::{BlockStore, Buffers, Ceilings, Feature, HostMemory, Side, StoreSize, dtype};

/// Side of the square matrices whose product is timed: 2·8192³ = 1.1 TFLOP, milliseconds on the
/// fastest GPU in bf16, and far more than one wave of blocks.
const MATMUL_SIZE: usize = 8192;
/// Bytes copied: beyond every cache.
const COPY_BYTES: usize = 1 << 30;
/// Bytes copied over the bus, 5 ms by its fastest: locking a GiB of host memory takes longer than all copies of it.
const BUS_BYTES: usize = 1 << 28;
/// The fastest of this many is the ceiling: noise only ever slows.
const REPEATS: usize = 5;

pub fn ceilings(gpu: &'static Gpu, types: &[Compute]) -> Ceilings {
    let mut ceilings = Ceilings::default();
    // cuBLASLt refuses a product that the device has no units for.
    let own = capability(gpu.ordinal);
    let has = |compute: &&Compute| Feature::of_products(**compute).is_none_or(|need| own.has(need));
    for compute in types.iter().filter(has) {
        let n = MATMUL_SIZE;
        let random = || {
            let spread = Distribution::Normal(0.0, 1.0);
            buffer(Tensor::<2>::random([n, n], spread, (&gpu.burn(), dtype(*compute))))
        };
        let (a, b) = (random(), random());
        let side = |tensor: &CubeTensor| Operand { tensor: tensor.clone(), transposed: false };
        let math = Fp32Math::of(*compute);
        let seconds = fastest(gpu, || drop(matmul(side(&a), side(&b), Output::New(dtype(*compute)), math)));
        let rate = Some(2.0 * (n as f64).powi(3) / seconds);
        match compute {
            Compute::Fp32 => ceilings.matmul_fp32 = rate,
            Compute::Tf32 => ceilings.matmul_tf32 = rate,
            Compute::Bf16 => ceilings.matmul_bf16 = rate,
            Compute::Fp16 => ceilings.matmul_fp16 = rate,
        }
    }
    copies(gpu, &mut ceilings);
    gpu.release_memory();
    ceilings
}

/// The copy rates. Where the host cannot lock the memory, the two rates of the bus are not measured.
fn copies(gpu: &'static Gpu, ceilings: &mut Ceilings) {
    gpu.context.bind();
    let (Ok(source), Ok(target)) = (Block::new(COPY_BYTES), Block::new(COPY_BYTES)) else { return };
    let (from, to) = (source.address(), target.address());
    let copy = |run: &(dyn Fn(sys::CUstream) -> sys::CUresult + Sync)| {
        fastest(gpu, || {
            gpu.stream().submit(|stream| run(stream).result().expect("a copy within both blocks"));
        })
    };
    // SAFETY: both blocks hold COPY_BYTES bytes and outlive the copies, which `fastest` waits for.
    let device = copy(&|stream| unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, COPY_BYTES, stream) });
    ceilings.copy = Some(2.0 * COPY_BYTES as f64 / device);
    let Some(mut host) = PinnedArena::new(gpu, BUS_BYTES).ok().and_then(|mut arena| arena.take(BUS_BYTES))
    else {
        return;
    };
    // As a number, since the copies are issued by CubeCL's thread.
    let pointer = host.bytes_mut().as_mut_ptr() as usize;
    // SAFETY: as above; the host's block holds the BUS_BYTES that are copied.
    let up =
        copy(&|stream| unsafe { sys::cuMemcpyHtoDAsync_v2(to, pointer as *const c_void, BUS_BYTES, stream) });
    // SAFETY: as above.
    let down =
        copy(&|stream| unsafe { sys::cuMemcpyDtoHAsync_v2(pointer as *mut c_void, from, BUS_BYTES, stream) });
    ceilings.host_to_device = Some(BUS_BYTES as f64 / up);
    ceilings.device_to_host = Some(BUS_BYTES as f64 / down);
    ceilings.both_ways = both_ways(gpu);
}

/// Bytes per second each way, copied from and to blocks of their own; `None` where there is no memory
/// for them.
fn both_ways(gpu: &'static Gpu) -> Option<f64> {
    let dtype = DType::F32;
    let elements = BUS_BYTES / dtype.size();
    let size = StoreSize {
        buffers: vec![Buffers::One; 2],
        elements,
        trainable: elements,
        dtype,
        slots: 2,
        gradient_slots: 0,
    };
    let mut store = CudaStore::new(gpu, size).ok()?;
    let mut best = f64::INFINITY;
    for _ in 0..REPEATS {
        store.wait();
        let start = Instant::now();
        store.fill(0, Side::Weights, 0, elements);
        store.send(1, Side::Weights, 1, elements);
        store.wait();
        best = best.min(start.elapsed().as_secs_f64());
    }
    Some(BUS_BYTES as f64 / best)
}

/// Seconds of the fastest run, by device events; the first run, which may tune, is not counted.
fn fastest(gpu: &'static Gpu, mut run: impl FnMut()) -> f64 {
    let tuning = gpu.allow_tuning(|_| ());
    run();
    drop(tuning);
    (0..REPEATS)
        .map(|_| {
            let start = Event::record(gpu);
            run();
            Event::record(gpu).seconds_since(&start)
        })
        .fold(f64::INFINITY, f64::min)
}
