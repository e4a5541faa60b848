//! Element-wise kernels over many tensors in one launch.

mod kernels;

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::server::BufferBinding;
use cudarc::driver::sys::CUstream;
use itertools::Itertools;

use super::program::Function;
use super::stream::Buffers;
use super::{Gpu, memory};
pub use kernels::Kernel;
#[cfg(test)]
pub use kernels::variants;
use kernels::{ADD, CAST, COPY, SQUARES};

/// Entries of a table: with five tensors each it takes 4,016 of the 4,096 bytes that a kernel's parameters may have on every
/// device.
pub const TOGETHER: usize = 76;
const THREADS: u32 = 256;
/// Elements of the largest block of a kernel.
pub const LARGEST_BLOCK: usize = 32_768;

/// Writes each first tensor into the second, rounded to its type.
///
/// # Panics
/// When sizes or types differ, or the kernel cannot be compiled.
pub fn cast(tensors: &[[CubeTensor; 2]]) {
    pairs(&CAST, tensors, |elements| elements);
}

/// Writes each first tensor into the second, of the same type, bit by bit.
///
/// # Panics
/// When sizes or types differ, or the kernel cannot be compiled.
pub fn copy(tensors: &[[CubeTensor; 2]]) {
    assert!(tensors.iter().all(|[from, to]| from.dtype == to.dtype), "copy takes two tensors of one type");
    pairs(&COPY, tensors, |elements| elements);
}

/// Adds each first tensor to the second, in place, in fp32 and rounded once.
///
/// # Panics
/// When sizes or types differ, or the kernel cannot be compiled.
pub fn add(tensors: &[[CubeTensor; 2]]) {
    pairs(&ADD, tensors, |elements| elements);
}

/// Numbers that [`squares`] leaves of so many elements.
pub fn parts_of_squares(elements: usize) -> usize {
    elements.div_ceil(SQUARES.block)
}

/// Writes Σ x² of parts of each first tensor into the second, f32, which has a number for each of
/// [`parts_of_squares`].
///
/// # Panics
/// When sizes or types differ, or the kernel cannot be compiled.
pub fn squares(tensors: &[[CubeTensor; 2]]) {
    pairs(&SQUARES, tensors, parts_of_squares);
}

/// Launches together the pairs whose types are the same. `second`: the elements of a second tensor, from those of the
/// first.
fn pairs(kernel: &'static Kernel, tensors: &[[CubeTensor; 2]], second: fn(usize) -> usize) {
    let types = |pair: &[CubeTensor; 2]| pair.each_ref().map(|tensor| tensor.dtype);
    for of in tensors.iter().map(types).unique() {
        let alike: Vec<_> = tensors.iter().filter(|pair| types(pair) == of).collect();
        let rows = alike.iter().map(|pair| {
            let elements = pair[0].meta.num_elements();
            Row::new(kernel.name, pair, [(of[0], elements), (of[1], second(elements))])
        });
        launch(kernel, of, &alike[0][0], rows.collect(), [None, None], Scalars::default());
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry<const K: usize> {
    tensors: [u64; K],
    elements: u32,
    first_block: u32,
}

#[repr(C)]
struct Table<const K: usize> {
    entries: [Entry<K>; TOGETHER],
    numbers: [u32; TOGETHER],
    others: [u64; 2],
    scalars: [f32; 8],
    key: [u32; 2],
    count: u32,
}

const _: () = assert!(size_of::<Table<5>>() <= 4096, "a kernel's parameters");

/// What a kernel gets besides its tensors, in an order that it knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalars {
    pub numbers: [f32; 8],
    /// Of random numbers.
    pub key: [u32; 2],
}

/// Launches a kernel over rows of tensors on the device of `like`; it writes the last tensor of each row. `others` are on the
/// device too, one number or a few each.
///
/// # Panics
/// When the kernel cannot be compiled.
pub fn launch<const K: usize>(
    kernel: &'static Kernel,
    types: [DType; 2],
    like: &CubeTensor,
    rows: Vec<Row<K>>,
    others: [Option<&CubeTensor>; 2],
    scalars: Scalars,
) {
    let gpu = Gpu::of(like).expect("a CUDA tensor");
    let source = kernel.source(K, types);
    let [function] = gpu.functions(&source, [(kernel.name, 0)]).unwrap_or_else(|e| panic!("{e}"));
    memory::observe(gpu);
    let mut rows = rows.into_iter();
    loop {
        let rows: Vec<_> = rows.by_ref().take(TOGETHER).collect();
        if rows.is_empty() {
            return;
        }
        let others = others.map(|other| other.map(|other| other.handle.clone().binding()));
        let call = Call { rows, others, scalars, block: kernel.block };
        // The kernels write the last tensor of each entry.
        let written = call.rows[0].buffers[K - 1].clone();
        gpu.stream().enqueue(Some(written), move |buffers, stream| call.run(buffers, function, stream));
    }
}

/// One launch in CubeCL's queue.
struct Call<const K: usize> {
    rows: Vec<Row<K>>,
    others: [Option<BufferBinding>; 2],
    scalars: Scalars,
    block: usize,
}

/// Tensors of one entry, of which the first has so many elements.
pub struct Row<const K: usize> {
    buffers: [BufferBinding; K],
    elements: usize,
    /// For random numbers.
    number: u32,
}

impl<const K: usize> Row<K> {
    /// A row of tensors, which must have these types and so many elements.
    pub fn new(kernel: &str, tensors: &[CubeTensor; K], expected: [(DType, usize); K]) -> Self {
        let elements = tensors[0].meta.num_elements();
        for (tensor, expected) in tensors.iter().zip(expected) {
            assert_eq!((tensor.dtype, tensor.meta.num_elements()), expected, "a tensor of {kernel}");
            assert!(tensor.is_contiguous(), "{kernel} takes contiguous tensors, not {:?}", tensor.meta);
        }
        // A block's end is counted in 32 bits too.
        assert!(
            u32::try_from(elements + LARGEST_BLOCK).is_ok(),
            "{elements} elements are too many for {kernel}"
        );
        Self {
            buffers: tensors.each_ref().map(|tensor| tensor.handle.clone().binding()),
            elements,
            number: 0,
        }
    }

    pub fn numbered(self, number: u32) -> Self {
        Self { number, ..self }
    }
}

impl<const K: usize> Call<K> {
    fn run(&self, buffers: &mut Buffers<'_>, function: Function, stream: CUstream) -> Result<(), String> {
        let entry = Entry { tensors: [0; K], elements: 0, first_block: 0 };
        let mut table = Table {
            entries: [entry; TOGETHER],
            numbers: std::array::from_fn(|i| self.rows.get(i).map_or(0, |row| row.number)),
            others: [0; 2],
            scalars: self.scalars.numbers,
            key: self.scalars.key,
            count: self.rows.len() as u32,
        };
        // What was located stays in place until the kernel is in the stream.
        let mut located = Vec::new();
        let mut at = |buffer: &BufferBinding| {
            located.push(buffers.locate(buffer.clone())?);
            Ok::<_, String>(located.last().map_or(0, |at| at.pointer))
        };
        let mut blocks = 0;
        for (entry, row) in table.entries.iter_mut().zip(&self.rows) {
            for (pointer, buffer) in entry.tensors.iter_mut().zip(&row.buffers) {
                *pointer = at(buffer)?;
            }
            (entry.elements, entry.first_block) = (row.elements as u32, blocks);
            blocks += row.elements.div_ceil(self.block) as u32;
        }
        if blocks == 0 {
            return Ok(());
        }
        for (pointer, other) in table.others.iter_mut().zip(&self.others) {
            *pointer = other.as_ref().map(&mut at).transpose()?.unwrap_or(0);
        }
        // SAFETY: the table is as the source has it; the tensors have as many elements of these types, and CubeCL
        // uses freed memory again in stream order.
        unsafe { function.launch([blocks, 1], THREADS, &mut table, stream) }
    }
}
