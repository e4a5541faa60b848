//! Products with the narrow matrices of low-rank adapters, of all adapted layers of one input in a launch.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{LazyLock, Mutex};

use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use itertools::Itertools;

use crate::common::locked;
use crate::device::cuda::launch::{Launch, Pointer, launch};
#[cfg(test)]
use crate::device::cuda::program::Variant;
use crate::device::cuda::program::{Function, Source, type_name};
use crate::device::cuda::tables::philox;
use crate::device::cuda::{Gpu, by_rows, empty, sizes, writable};

/// Adapted layers of one input.
pub const MOST_LAYERS: usize = 3;
/// A thread has a number in its registers for each rank; products of more ranks are worth tensor cores.
pub const MOST_RANK: usize = 16;
/// A launch has at most 65,535 rows of blocks: 2^18 tokens and three layers take 49,152.
pub const MOST_TOKENS: usize = 1 << 18;

const THREADS: usize = 256;
/// Tokens of a thread in `up`, and the groups of columns of a block there and in `gradient`.
const UP_ROWS: usize = 4;
const UP_GROUPS: usize = 64;
const GROUPS: usize = 4;

/// For each product the one with A and the one with B, as [`Of`] has them.
const KERNELS: [&str; 6] = ["down_a", "down_b", "up_a", "up_b", "gradient_a", "gradient_b"];

static TEXT: LazyLock<String> = LazyLock::new(|| {
    [include_str!("../../device/cuda/kernels/numbers.cuh"), &philox(), include_str!("low_rank.cu")].concat()
});

/// The masks of the layers' inputs, which Philox draws from each layer's key.
#[derive(Clone, Debug)]
pub struct Masks {
    /// Each layer's key.
    pub keys: Vec<[u32; 2]>,
    /// An element is kept where its number is at least this,
    pub threshold: u32,
    /// and multiplied by this.
    pub kept: f32,
}

/// The adapted layers of one input x [tokens, inputs], with A [rank, inputs] and B [outputs, rank] each. `low` is [tokens,
/// layers · rank]. With x̃ = x ⊙ m / (1 − p) of each layer's own mask, or x without masks.
#[derive(Clone, Debug)]
pub struct LowRanks {
    pub rank: usize,
    pub inputs: usize,
    /// The columns of each layer's result in that of all layers.
    pub places: Vec<Range<usize>>,
    pub masks: Option<Masks>,
    pub scale: f32,
}

/// Which of an adapter's matrices a product is with. A stands at the layer's input, B at its output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    A,
    B,
}

impl LowRanks {
    fn layers(&self) -> usize {
        self.places.len()
    }

    /// A layer's columns of x or y.
    pub(super) fn columns_of(&self, of: Of, layer: usize) -> Range<usize> {
        if of == Of::A { 0..self.inputs } else { self.places[layer].clone() }
    }

    /// Columns of the widest layer.
    pub(super) fn columns(&self, of: Of) -> usize {
        (0..self.layers()).map(|layer| self.columns_of(of, layer).len()).max().unwrap_or(0)
    }

    /// Of a layer's A or B.
    fn shape(&self, of: Of, layer: usize) -> [usize; 2] {
        let columns = self.columns_of(of, layer).len();
        if of == Of::A { [self.rank, columns] } else { [columns, self.rank] }
    }

    /// scale · x̃Aᵀ of the input x; or scale · gB of the layers' columns of g, the gradient of the result.
    ///
    /// # Panics
    /// As all products here, when sizes or types do not fit, or the kernels cannot be compiled.
    pub fn down(&self, of: Of, wide: &CubeTensor, matrices: &[CubeTensor]) -> CubeTensor {
        let (wide, matrices) = (by_rows(wide.clone()), &packed(matrices));
        if self.suits_blas(of, &wide) {
            return self.down_by_blas(of, &wide, matrices);
        }
        let tokens = wide.meta.shape()[0];
        let low = empty(&wide, [tokens, self.layers() * self.rank], wide.dtype);
        let grid = [tokens.div_ceil(self.down_rows()), self.layers()];
        self.launch(0, of, [&wide, &low], matrices, &low, grid);
        low
    }

    /// dx + Σ (low A) ⊙ m / (1 − p) over the layers; or y + low Bᵀ. In the memory of dx or y where nobody else holds it.
    pub fn up(&self, of: Of, wide: CubeTensor, low: &CubeTensor, matrices: &[CubeTensor]) -> CubeTensor {
        let (wide, matrices) = (writable(wide), &packed(matrices));
        if self.suits_blas(of, &wide) {
            return self.up_by_blas(of, wide, low, matrices);
        }
        let rows = wide.meta.shape()[0].div_ceil(THREADS / UP_GROUPS * UP_ROWS);
        let rows = if of == Of::A { rows } else { rows * self.layers() };
        let columns = |width| [self.columns(of).div_ceil(UP_GROUPS * width), rows];
        let grid = columns(self.width(of, &wide, matrices));
        self.launch(2, of, [&wide, low], matrices, &wide, grid);
        wide
    }

    /// dA = lowᵀ x̃, or dB = gᵀ low, of each layer, as `dtype`.
    pub fn gradient(&self, of: Of, wide: &CubeTensor, low: &CubeTensor, dtype: DType) -> Vec<CubeTensor> {
        let wide = by_rows(wide.clone());
        if self.suits_blas(of, &wide) {
            return self.gradient_by_blas(of, &wide, low, dtype);
        }
        let gradient = |layer| empty(&wide, self.shape(of, layer), dtype);
        let gradients: Vec<_> = (0..self.layers()).map(gradient).collect();
        let width = self.width(of, &wide, &[]);
        let grid = [self.columns(of).div_ceil(GROUPS * width), self.layers()];
        self.launch(4, of, [&wide, low], &gradients, &gradients[0], grid);
        gradients
    }

    /// Tokens of a block in `down`: a warp has a lane for each of their ranks.
    fn down_rows(&self) -> usize {
        if self.rank <= 8 { 4 } else { 2 }
    }

    /// Elements that a thread takes at once: 4 where rows and their parts begin at multiples of it.
    fn width(&self, of: Of, wide: &CubeTensor, read: &[CubeTensor]) -> usize {
        let four = |elements: usize| elements.is_multiple_of(4);
        let aligned = |tensor: &CubeTensor| {
            tensor.handle.offset_start.unwrap_or(0).is_multiple_of(4 * tensor.dtype.size() as u64)
        };
        let mut columns = (0..self.layers()).map(|layer| self.columns_of(of, layer));
        let fits = columns.all(|columns| four(columns.start) && four(columns.end))
            && four(wide.meta.strides()[0])
            && aligned(wide)
            && read.iter().all(aligned);
        if fits { 4 } else { 1 }
    }

    /// `kernel`: the place in [`KERNELS`] of the one with A. `matrices`: A or B of each layer, or where its gradient goes.
    fn launch(
        &self,
        kernel: usize,
        of: Of,
        [wide, low]: [&CubeTensor; 2],
        matrices: &[CubeTensor],
        written: &CubeTensor,
        grid: [usize; 2],
    ) {
        let (dtype, [tokens, columns]) = (wide.dtype, sizes(wide, "low-rank: a tensor of tokens"));
        let is_gradient = kernel >= 4;
        assert!(
            (1..=MOST_LAYERS).contains(&self.layers()) && (1..=MOST_RANK).contains(&self.rank),
            "{} layers of rank {}",
            self.layers(),
            self.rank
        );
        assert!(tokens <= MOST_TOKENS, "{tokens} tokens are too many for low-rank products");
        assert!(
            low.dtype == dtype && sizes(low, "low-rank: low") == [tokens, self.layers() * self.rank],
            "low-rank: low"
        );
        assert!(low.is_contiguous() && matrices.len() == self.layers(), "low-rank: a matrix of each layer");
        for (layer, matrix) in matrices.iter().enumerate() {
            let (place, shape) = (self.columns_of(of, layer), self.shape(of, layer));
            assert!(
                sizes(matrix, "low-rank: A or B") == shape && matrix.is_contiguous(),
                "low-rank: the shape of A or B"
            );
            assert!(is_gradient || matrix.dtype == dtype, "low-rank: the type of A or B");
            assert!(place.end <= columns, "low-rank: {place:?} of {columns} columns");
            // Ranks are read 16 bytes at a time.
            assert!(matrix.handle.offset_start.unwrap_or(0).is_multiple_of(16), "low-rank: aligned matrices");
        }
        assert!(of == Of::B || columns == self.inputs, "low-rank: {} of {columns} columns", self.inputs);
        let width = self.width(of, wide, if is_gradient { &[] } else { matrices });
        let function = self.functions(wide, matrices[0].dtype, width)[kernel + of as usize];
        let pointers = [Some(wide), Some(low), matrices.first(), matrices.get(1), matrices.get(2)]
            .map(|tensor| tensor.map(Pointer::whole));
        let place = |layer| if layer < self.layers() { self.columns_of(of, layer) } else { 0..0 };
        let places = |number: fn(Range<usize>) -> usize| (0..MOST_LAYERS).map(place).map(number);
        let counts = [tokens, wide.meta.strides()[0]].into_iter();
        let counts = counts.chain(places(|place| place.start)).chain(places(|place| place.len()));
        let counts = counts.map(|count| i32::try_from(count).expect("fewer than 2^31"));
        let masks = self.masks.clone().unwrap_or(Masks { keys: Vec::new(), threshold: 0, kept: 1.0 });
        let keys = (0..MOST_LAYERS).flat_map(|layer| masks.keys.get(layer).copied().unwrap_or_default());
        let words = keys.chain([masks.threshold, masks.kept.to_bits()]).map(|word| word as i32);
        let grid = grid.map(|blocks| blocks as u32);
        let launches = [Launch { function, grid, threads: THREADS as u32 }];
        launch(written, pointers, counts.chain(words).collect(), self.scale, launches);
    }

    /// The compiled [`KERNELS`]. A launch looks them up by a few numbers, not by the macros of their source.
    fn functions(&self, like: &CubeTensor, gradients: DType, width: usize) -> [Function; KERNELS.len()] {
        type Key = (usize, [DType; 2], [usize; 3], bool);
        static FOUND: LazyLock<Mutex<HashMap<Key, [Function; KERNELS.len()]>>> =
            LazyLock::new(Mutex::default);
        let gpu = Gpu::of(like).expect("a CUDA tensor");
        let (layers, has_masks) = (self.layers(), self.masks.is_some());
        let key = (gpu.ordinal, [like.dtype, gradients], [layers, self.rank, width], has_masks);
        let mut found = locked(&FOUND);
        *found.entry(key).or_insert_with(|| {
            let source = self.source([like.dtype, gradients], width);
            gpu.functions(&source, KERNELS.map(|name| (name, 0))).unwrap_or_else(|e| panic!("{e}"))
        })
    }

    fn source(&self, [dtype, gradients]: [DType; 2], width: usize) -> Source {
        let macros = [
            ("A", type_name(dtype).to_owned()),
            ("G", type_name(gradients).to_owned()),
            ("LAYERS", self.layers().to_string()),
            ("RANK", self.rank.to_string()),
            ("WIDTH", width.to_string()),
            ("DROPOUT", u8::from(self.masks.is_some()).to_string()),
            ("THREADS", THREADS.to_string()),
            ("DOWN_ROWS", self.down_rows().to_string()),
            ("UP_ROWS", UP_ROWS.to_string()),
            ("UP_GROUPS", UP_GROUPS.to_string()),
            ("GROUPS", GROUPS.to_string()),
        ];
        let macros = macros.iter().map(|(name, value)| format!("{name}={value}")).collect_vec();
        Source { name: "low_rank.cu", text: &TEXT, macros, generation_only: false }
    }
}

/// The most ranks of the most layers, whose kernels have the most shared memory, with and without what depends on sizes.
#[cfg(test)]
pub fn variants() -> Vec<Variant> {
    let masks = Masks { keys: vec![[0; 2]; MOST_LAYERS], threshold: 1, kept: 1.0 };
    let most = LowRanks {
        rank: MOST_RANK,
        inputs: 64,
        places: vec![0..64; MOST_LAYERS],
        masks: Some(masks),
        scale: 1.0,
    };
    let least = LowRanks { rank: 1, places: std::iter::once(0..64).collect(), masks: None, ..most.clone() };
    let all = [(&most, DType::BF16, 4), (&least, DType::F16, 1)];
    let of =
        |(ranks, dtype, width): (&LowRanks, _, _)| Variant::plain(ranks.source([dtype; 2], width), KERNELS);
    all.map(of).into()
}

/// Row by row without gaps. Burn aligns the rows of matrices that it makes.
fn packed(matrices: &[CubeTensor]) -> Vec<CubeTensor> {
    matrices.iter().cloned().map(into_contiguous).collect()
}
