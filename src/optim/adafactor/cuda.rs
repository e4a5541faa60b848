//! One step of Adafactor, of one parameter at a time.

use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use crate::device::cuda::launch::{Launch, Pointer, launch};
#[cfg(test)]
use crate::device::cuda::program::Variant;
use crate::device::cuda::program::{Source, type_name};
use crate::device::cuda::{Gpu, empty, writable};

const THREADS: usize = 256;
/// Columns and rows of a block that adds up squares.
const SIDE: usize = 128;
const BAND: usize = 64;
/// A launch has at most 65,535 rows of blocks.
const MOST_BANDS: usize = 65_535;
/// Blocks that go over a parameter: each adds up what all of them have left.
const MOST: usize = 1024;

const KERNELS: [&str; 4] = ["sums", "means", "sizes", "apply"];
const TEXT: &str =
    concat!(include_str!("../../device/cuda/kernels/numbers.cuh"), include_str!("adafactor.cu"));

/// Launches of a matrix; a vector has two.
pub const LAUNCHES: u64 = KERNELS.len() as u64;

/// What one step multiplies by and compares with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdafactorStep {
    /// tᶜ with c = −beta_2_decay, the weight of new mean squares; of use without `shared`, as `rate`.
    pub weight: f32,
    /// min(lr, 1 / √t)
    pub rate: f32,
    pub beta_2_decay: f32,
    pub lr: f32,
    /// 1 − lr · weight_decay
    pub decay: f32,
    pub epsilon_1: f32,
    pub epsilon_2: f32,
    pub threshold: f32,
}

/// Mean squares of the gradient, f32: of each row and each column of a matrix, or of each element of a vector.
#[derive(Clone, Debug)]
pub struct MeanSquares {
    pub rows: CubeTensor,
    pub columns: Option<CubeTensor>,
}

/// Bytes that exist for a moment while a parameter of so many elements is updated.
pub fn workspace_bytes(elements: u64) -> u64 {
    let (side, band) = (SIDE as u64, BAND as u64);
    4 * (elements / side + elements / band + 2 * MOST as u64)
}

/// Steps p, of any float type, along its gradient g, of any float type, as `train.optimizer.kind = "adafactor"` says. `clip`
/// \[1\] f32 multiplies g. `shared` \[2\] f32 holds whether the step is applied and how many have been, this one included;
/// where the first is 0, everything stays as it is. Returns p and the mean squares, each in its own memory where nobody
/// else holds it.
///
/// # Panics
/// When sizes or types do not fit, or the kernels cannot be compiled.
pub fn adafactor(
    [p, g]: [CubeTensor; 2],
    MeanSquares { rows, columns }: MeanSquares,
    clip: Option<&CubeTensor>,
    shared: Option<&CubeTensor>,
    step: AdafactorStep,
) -> (CubeTensor, MeanSquares) {
    let gpu = Gpu::of(&p).expect("a CUDA tensor");
    let (p, g) = (writable(p), into_contiguous(g));
    let (rows, columns) = (writable(rows), columns.map(writable));
    let count = |tensor: &CubeTensor| tensor.meta.num_elements();
    let (r, c) = (count(&rows), columns.as_ref().map_or(1, count));
    assert!((count(&p), count(&g)) == (r * c, r * c), "adafactor: [{r}, {c}] of p and g");
    assert!(i32::try_from(r * c).is_ok(), "adafactor: {} elements are too many", r * c);
    for (tensor, size, name) in [(clip, 1, "clip"), (shared, 2, "shared")] {
        let fits = |tensor: &CubeTensor| (tensor.dtype, count(tensor)) == (DType::F32, size);
        assert!(tensor.is_none_or(fits), "adafactor: {name}");
    }
    assert!(
        rows.dtype == DType::F32 && columns.iter().all(|c| c.dtype == DType::F32),
        "adafactor: mean squares"
    );
    let source = source([p.dtype, g.dtype]);
    let functions =
        gpu.functions(&source, KERNELS.map(|kernel| (kernel, 0))).unwrap_or_else(|e| panic!("{e}"));

    let band = BAND.max(r.div_ceil(MOST_BANDS));
    // Only a matrix has parts of rows and columns.
    let [tiles, bands, blocks] = match columns {
        Some(_) => [c.div_ceil(SIDE), r.div_ceil(band), r.div_ceil(THREADS)],
        None => [0; 3],
    };
    let parts = empty(&p, [r * tiles + bands * c + blocks + 2 * MOST], DType::F32);
    let grids = [
        [tiles, bands],
        [blocks + c.div_ceil(THREADS), 1],
        [(r * c).div_ceil(THREADS).min(MOST), 1],
        [(r * c).div_ceil(THREADS).min(MOST), 1],
    ];
    let launches = functions.into_iter().zip(grids).map(|(function, grid)| Launch {
        function,
        grid: grid.map(|blocks| blocks as u32),
        threads: THREADS as u32,
    });
    let pointers = [Some(&p), Some(&g), Some(&rows), columns.as_ref(), Some(&parts), clip, shared];
    let AdafactorStep { weight, rate, beta_2_decay, lr, decay, epsilon_1, epsilon_2, threshold } = step;
    let numbers = [weight, rate, beta_2_decay, lr, decay, epsilon_1, epsilon_2].map(|x| x.to_bits() as i32);
    let sizes = [r, c, tiles, bands, band, blocks].map(|size| size as i32);
    launch(
        &p,
        pointers.map(|tensor| tensor.map(Pointer::whole)),
        sizes.into_iter().chain(numbers).collect(),
        threshold,
        launches.skip(if columns.is_some() { 0 } else { 2 }),
    );
    (p, MeanSquares { rows, columns })
}

/// For parameters and gradients of these types.
fn source([p, g]: [DType; 2]) -> Source {
    let macros = vec![
        format!("A={}", type_name(p)),
        format!("B={}", type_name(g)),
        format!("THREADS={THREADS}"),
        format!("SIDE={SIDE}"),
        format!("MOST={MOST}"),
    ];
    Source { name: "adafactor.cu", text: TEXT, macros, generation_only: false }
}

#[cfg(test)]
pub fn variants() -> Vec<Variant> {
    let types = [[DType::F32, DType::BF16], [DType::BF16, DType::F16]];
    types.map(|types| Variant::plain(source(types), KERNELS)).into()
}
