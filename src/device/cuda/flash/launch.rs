//! [`launch`]: kernels on CubeCL's stream, with one block of parameters.

use cubecl::server::BufferBinding;
use cudarc::driver::result::launch_kernel;
use cudarc::driver::sys::{CUfunction, CUstream};

use burn_cubecl::tensor::CubeTensor;

use crate::device::cuda::Gpu;

/// Where a buffer begins for a kernel.
pub struct Pointer {
    pub buffer: BufferBinding,
    /// Bytes.
    pub offset: u64,
}

/// A kernel and how much of it.
pub struct Launch {
    pub function: CUfunction,
    pub grid: [u32; 2],
    pub threads: u32,
    /// Bytes of shared memory.
    pub shared: u32,
}

// SAFETY: a loaded kernel may be launched from any thread, and is never unloaded.
unsafe impl Send for Launch {}

impl Launch {
    /// # Safety
    /// `parameters` must be the words of the one struct that the kernel takes, with pointers to device memory that
    /// is large enough until the stream has run it.
    unsafe fn run(&self, stream: CUstream, parameters: &mut [u64]) -> Result<(), String> {
        let Self { function, grid: [x, y], threads, shared } = *self;
        let mut arguments = [parameters.as_mut_ptr().cast()];
        // SAFETY: as the caller promises.
        unsafe { launch_kernel(function, (x, y, 1), (threads, 1, 1), shared, stream, &mut arguments) }
            .map_err(|e| format!("an attention kernel was refused: {e}"))
    }
}

/// Enqueues kernels that take one struct: pointers, `None` being null, then integers, then a number. `written` is
/// what they write, or part of it.
pub fn launch<const N: usize>(
    gpu: &'static Gpu,
    written: &CubeTensor,
    pointers: [Option<Pointer>; N],
    integers: Vec<i32>,
    number: f32,
    launches: impl IntoIterator<Item = Launch>,
) {
    let launches: Vec<Launch> = launches.into_iter().collect();
    let written = written.handle.clone().binding();
    gpu.lane().stream.enqueue(Some(written), move |buffers, stream| {
        let mut located = Vec::with_capacity(N);
        for pointer in pointers {
            let at =
                pointer.map(|pointer| Ok::<_, String>((buffers.locate(pointer.buffer)?, pointer.offset)));
            located.push(at.transpose()?);
        }
        let addresses = located.iter().map(|at| at.as_ref().map_or(0, |(at, offset)| at.pointer + offset));
        let mut parameters: Vec<u64> = addresses.collect();
        let words: Vec<u32> = integers.iter().map(|i| *i as u32).chain([number.to_bits()]).collect();
        parameters.extend(
            words.chunks(2).map(|two| u64::from(two[0]) | two.get(1).map_or(0, |x| u64::from(*x) << 32)),
        );
        for launch in &launches {
            // SAFETY: the structs in the kernels' source have these fields in this order, the tensors were checked to
            // be as large as the sizes among them say, and what was located stays in place until the kernels are in
            // the stream; CubeCL uses freed memory again in stream order.
            unsafe { launch.run(stream, &mut parameters)? };
        }
        Ok(())
    });
}
