//! [`launch`]: kernels on CubeCL's stream, with one struct of parameters.

use burn_cubecl::tensor::CubeTensor;
use cubecl::server::BufferBinding;

use super::program::Function;
use super::{Gpu, memory};

/// Where a buffer begins for a kernel.
pub struct Pointer {
    pub buffer: BufferBinding,
    /// Bytes.
    pub offset: u64,
}

impl Pointer {
    /// All of a contiguous tensor.
    pub fn whole(tensor: &CubeTensor) -> Self {
        Self { buffer: tensor.handle.clone().binding(), offset: 0 }
    }
}

/// A kernel and how much of it.
pub struct Launch {
    pub function: Function,
    pub grid: [u32; 2],
    pub threads: u32,
}

/// Enqueues kernels that take one struct: pointers, `None` being null, then integers, then a number. `written` is
/// what they write, or part of it. The tensors must be as large as the integers among the parameters say.
pub fn launch<const N: usize>(
    written: &CubeTensor,
    pointers: [Option<Pointer>; N],
    integers: Vec<i32>,
    number: f32,
    launches: impl IntoIterator<Item = Launch>,
) {
    let gpu = Gpu::of(written).expect("a CUDA tensor");
    memory::observe(gpu);
    let launches: Vec<Launch> = launches.into_iter().collect();
    let written = written.handle.clone().binding();
    gpu.stream().enqueue(Some(written), move |buffers, stream| {
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
        for Launch { function, grid, threads } in &launches {
            // SAFETY: the structs in the kernels' sources have these fields in this order, the tensors are as large as
            // the sizes among them say, and what was located stays in place until the kernels are in the stream;
            // CubeCL uses freed memory again in stream order.
            unsafe { function.launch(*grid, *threads, parameters.as_mut_slice(), stream)? };
        }
        Ok(())
    });
}
