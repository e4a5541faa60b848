//! Element-wise kernels over many tensors in one launch.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cpu_kernels::adamw::AdamWStep;
use cubecl::server::BufferBinding;

use super::program::{Function, Source, type_name};
use super::stream::Buffers;
use super::{Gpu, memory};
use cudarc::driver::sys::CUstream;

/// Entries of a table: with four tensors each it takes 3.9 of the 4 KB that a kernel's parameters may have on every
/// device.
const MOST: usize = 96;
/// Elements and threads of a block.
const BLOCK: usize = 8192;
const THREADS: u32 = 256;

/// Steps AdamW over parameters p with their gradients g and moments m and v, `[p, g, m, v]` each, in place. All p
/// have one type, all g one, and m and v fp32. `clip` and `shared` are on the device.
///
/// # Panics
/// When sizes or types differ, or the kernel cannot be compiled.
pub fn adamw(
    tensors: &[[CubeTensor; 4]],
    clip: Option<&CubeTensor>,
    shared: Option<&CubeTensor>,
    step: AdamWStep,
) {
    let Some([p, g, ..]) = tensors.first() else { return };
    let types = [p.dtype, g.dtype];
    let expected = [types[0], types[1], DType::F32, DType::F32];
    launch("adamw", types, tensors, expected, [clip, shared], step);
}

/// Writes each first tensor into the second, rounded to its type. All first ones have one type, and all second ones.
///
/// # Panics
/// As [`adamw`].
pub fn cast(tensors: &[[CubeTensor; 2]]) {
    let Some([from, to]) = tensors.first() else { return };
    let types = [from.dtype, to.dtype];
    launch("cast", types, tensors, types, [None, None], AdamWStep::default());
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
    entries: [Entry<K>; MOST],
    others: [u64; 2],
    scalars: AdamWStep,
    count: u32,
}

fn launch<const K: usize>(
    kernel: &'static str,
    types: [DType; 2],
    tensors: &[[CubeTensor; K]],
    expected: [DType; K],
    others: [Option<&CubeTensor>; 2],
    scalars: AdamWStep,
) {
    let gpu = Gpu::of(&tensors[0][0]).expect("a CUDA tensor");
    let macros = vec![
        format!("TENSORS={K}"),
        format!("MOST={MOST}"),
        format!("BLOCK={BLOCK}"),
        format!("A={}", type_name(types[0])),
        format!("B={}", type_name(types[1])),
    ];
    let text = concat!(include_str!("kernels/numbers.cuh"), include_str!("kernels/many.cu"));
    let source = Source { name: "many.cu", text, macros, generation_only: false };
    let [function] = gpu.functions(&source, [(kernel, 0)]).unwrap_or_else(|e| panic!("{e}"));
    memory::observe(gpu);
    for part in tensors.chunks(MOST) {
        let call = Call {
            rows: part.iter().map(|row| Row::new(kernel, row, expected)).collect(),
            others: others.map(|other| other.map(|other| other.handle.clone().binding())),
            scalars,
        };
        let written = call.rows[0].buffers[0].clone();
        gpu.stream().enqueue(Some(written), move |buffers, stream| call.run(buffers, function, stream));
    }
}

/// One launch in CubeCL's queue.
struct Call<const K: usize> {
    rows: Vec<Row<K>>,
    others: [Option<BufferBinding>; 2],
    scalars: AdamWStep,
}

/// Tensors of as many elements.
struct Row<const K: usize> {
    buffers: [BufferBinding; K],
    elements: usize,
}

impl<const K: usize> Row<K> {
    fn new(kernel: &str, tensors: &[CubeTensor; K], expected: [DType; K]) -> Self {
        let elements = tensors[0].meta.num_elements();
        for (tensor, dtype) in tensors.iter().zip(expected) {
            assert_eq!((tensor.meta.num_elements(), tensor.dtype), (elements, dtype), "a tensor of {kernel}");
            assert!(tensor.is_contiguous(), "{kernel} takes contiguous tensors, not {:?}", tensor.meta);
        }
        // A block's end is counted in 32 bits too.
        assert!(u32::try_from(elements + BLOCK).is_ok(), "{elements} elements are too many for {kernel}");
        Self { buffers: tensors.each_ref().map(|tensor| tensor.handle.clone().binding()), elements }
    }
}

impl<const K: usize> Call<K> {
    fn run(&self, buffers: &mut Buffers<'_>, function: Function, stream: CUstream) -> Result<(), String> {
        let entry = Entry { tensors: [0; K], elements: 0, first_block: 0 };
        let mut table = Table {
            entries: [entry; MOST],
            others: [0; 2],
            scalars: self.scalars,
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
            blocks += row.elements.div_ceil(BLOCK) as u32;
        }
        for (pointer, other) in table.others.iter_mut().zip(&self.others) {
            *pointer = other.as_ref().map(&mut at).transpose()?.unwrap_or(0);
        }
        // SAFETY: the table is as the source has it; the tensors have as many elements of these types, and CubeCL
        // uses freed memory again in stream order.
        unsafe { function.launch([blocks, 1], THREADS, &mut table, stream) }
    }
}
