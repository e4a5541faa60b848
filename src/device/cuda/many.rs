//! Element-wise kernels over many tensors in one launch.

mod kernels;

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cpu_kernels::adamw::AdamWStep;
use cpu_kernels::dynamic_map;
use cubecl::server::BufferBinding;
use cudarc::driver::sys::CUstream;
use itertools::Itertools;

use super::program::Function;
use super::stream::Buffers;
use super::{Gpu, memory};
#[cfg(test)]
pub use kernels::variants;
use kernels::{ADAMW, ADAMW_8BIT, ADAMW_BF16, ADD, CAST, COPY, Kernel, SQUARES};

/// Entries of a table: with five tensors each it takes 4,016 of the 4,096 bytes that a kernel's parameters may have on every
/// device.
pub const TOGETHER: usize = 76;
const THREADS: u32 = 256;

/// How AdamW's moments are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moments {
    Fp32,
    /// In fp32 numbers whose bits are the largest of each block of 256, and then 8-bit codes, as
    /// [`cpu_kernels::dynamic_map`] has them.
    Coded,
    /// In bf16, rounded at random with this key and the tensor's number.
    Rounded([u32; 2]),
}

impl Moments {
    fn dtype(self) -> DType {
        match self {
            Self::Fp32 | Self::Coded => DType::F32,
            Self::Rounded(_) => DType::BF16,
        }
    }

    /// Numbers in the tensor of a moment of so many elements.
    fn length(self, elements: usize) -> usize {
        match self {
            Self::Fp32 | Self::Rounded(_) => elements,
            Self::Coded => elements.div_ceil(dynamic_map::BLOCK) + elements.div_ceil(4),
        }
    }
}

/// Steps AdamW over parameters p with their gradients g and moments m and v, `[p, g, m, v]` each, in place. All p
/// have one type, and all g one; `numbers` has one for each. Where there are `remainders`, one each, p are in bf16 and these their fp32 masters' other 16
/// bits. `clip` and `shared` are on the device.
///
/// # Panics
/// When sizes or types differ, or the kernel cannot be compiled.
pub fn adamw(
    (tensors, numbers): (&[[CubeTensor; 4]], &[u32]),
    remainders: &[CubeTensor],
    moments: Moments,
    clip: Option<&CubeTensor>,
    shared: Option<&CubeTensor>,
    step: AdamWStep,
) {
    let Some([p, g, ..]) = tensors.first() else { return };
    let types = [p.dtype, g.dtype];
    let expected = |[p, ..]: &[CubeTensor; 4]| {
        let elements = p.meta.num_elements();
        let moment = (moments.dtype(), moments.length(elements));
        [(types[0], elements), (types[1], elements), moment, moment]
    };
    let kernel = match moments {
        Moments::Fp32 => &ADAMW,
        Moments::Coded => &ADAMW_8BIT,
        Moments::Rounded(_) => &ADAMW_BF16,
    };
    let key = if let Moments::Rounded(key) = moments { key } else { [0; 2] };
    let (others, scalars) = ([clip, shared], (step, key));
    if remainders.is_empty() {
        let rows = tensors.iter().zip(numbers);
        let rows = rows.map(|(row, number)| Row::new("adamw", row, expected(row)).numbered(*number));
        return launch(kernel, types, p, rows.collect(), others, scalars);
    }
    assert_eq!((types[0], remainders.len()), (DType::BF16, tensors.len()), "remainders of bf16 parameters");
    let rows = tensors.iter().zip(numbers).zip(remainders).map(|((row, number), low)| {
        let [p, g, m, v] = expected(row);
        let row = row.each_ref();
        Row::new("adamw", &[row[0], row[1], row[2], row[3], low].map(Clone::clone), [p, g, m, v, p])
            .numbered(*number)
    });
    launch(kernel, types, p, rows.collect(), others, scalars);
}

/// Writes each first tensor into the second, rounded to its type.
///
/// # Panics
/// As [`adamw`].
pub fn cast(tensors: &[[CubeTensor; 2]]) {
    pairs(&CAST, tensors, |elements| elements);
}

/// Writes each first tensor into the second, of the same type, bit by bit.
///
/// # Panics
/// As [`adamw`], and where the types differ.
pub fn copy(tensors: &[[CubeTensor; 2]]) {
    assert!(tensors.iter().all(|[from, to]| from.dtype == to.dtype), "copy takes two tensors of one type");
    pairs(&COPY, tensors, |elements| elements);
}

/// Adds each first tensor to the second, in place, in fp32 and rounded once.
///
/// # Panics
/// As [`adamw`].
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
/// As [`adamw`].
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
        launch(kernel, of, &alike[0][0], rows.collect(), [None, None], (AdamWStep::default(), [0; 2]));
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
    scalars: AdamWStep,
    key: [u32; 2],
    count: u32,
}

const _: () = assert!(size_of::<Table<5>>() <= 4096, "a kernel's parameters");

/// On the device of `like`.
fn launch<const K: usize>(
    kernel: &'static Kernel,
    types: [DType; 2],
    like: &CubeTensor,
    rows: Vec<Row<K>>,
    others: [Option<&CubeTensor>; 2],
    (scalars, key): (AdamWStep, [u32; 2]),
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
        let call = Call { rows, others, scalars, key, block: kernel.block };
        // The kernels write the last tensor of each entry.
        let written = call.rows[0].buffers[K - 1].clone();
        gpu.stream().enqueue(Some(written), move |buffers, stream| call.run(buffers, function, stream));
    }
}

/// One launch in CubeCL's queue.
struct Call<const K: usize> {
    rows: Vec<Row<K>>,
    others: [Option<BufferBinding>; 2],
    scalars: AdamWStep,
    key: [u32; 2],
    block: usize,
}

/// Tensors of one entry, of which the first has so many elements.
struct Row<const K: usize> {
    buffers: [BufferBinding; K],
    elements: usize,
    /// For random numbers.
    number: u32,
}

impl<const K: usize> Row<K> {
    /// A row of tensors, which must have these types and so many elements.
    fn new(kernel: &str, tensors: &[CubeTensor; K], expected: [(DType, usize); K]) -> Self {
        let elements = tensors[0].meta.num_elements();
        for (tensor, expected) in tensors.iter().zip(expected) {
            assert_eq!((tensor.dtype, tensor.meta.num_elements()), expected, "a tensor of {kernel}");
            assert!(tensor.is_contiguous(), "{kernel} takes contiguous tensors, not {:?}", tensor.meta);
        }
        // A block's end is counted in 32 bits too.
        assert!(
            u32::try_from(elements + ADAMW_8BIT.block).is_ok(),
            "{elements} elements are too many for {kernel}"
        );
        Self {
            buffers: tensors.each_ref().map(|tensor| tensor.handle.clone().binding()),
            elements,
            number: 0,
        }
    }

    fn numbered(self, number: u32) -> Self {
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
            scalars: self.scalars,
            key: self.key,
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
