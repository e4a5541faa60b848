//! The element-wise parts of SwiGLU on CUDA: one kernel forward, one backward, in place.
//!
//! Each reads and writes every element once, so it takes the time of the memory traffic: NI
//! elements three times forward, six times backward. The arithmetic is fp32 in the registers
//! whatever the tensors' type, so nothing is rounded between the steps of the formula.

use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, bf16, f16};
use burn_cubecl::CubeBackend;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::gate::{Gate, GateGradients};

/// σ(x)
#[cube]
fn sigmoid<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let one = Vector::new(1.0f32);
    one / (one + (-x).exp())
}

/// h = SiLU(a) ⊙ b
#[cube(launch_unchecked)]
fn gate<F: Float, N: Size>(a: &[Vector<F, N>], b: &[Vector<F, N>], h: &mut [Vector<F, N>]) {
    if ABSOLUTE_POS < h.len() {
        let x = Vector::<f32, N>::cast_from(a[ABSOLUTE_POS]);
        let y = Vector::<f32, N>::cast_from(b[ABSOLUTE_POS]);
        h[ABSOLUTE_POS] = Vector::cast_from(x * sigmoid::<N>(x) * y);
    }
}

/// s = SiLU(a), h = s ⊙ b
#[cube(launch_unchecked)]
fn silu_and_gate<F: Float, N: Size>(
    a: &[Vector<F, N>],
    b: &[Vector<F, N>],
    s: &mut [Vector<F, N>],
    h: &mut [Vector<F, N>],
) {
    if ABSOLUTE_POS < h.len() {
        let x = Vector::<f32, N>::cast_from(a[ABSOLUTE_POS]);
        let y = Vector::<f32, N>::cast_from(b[ABSOLUTE_POS]);
        let silu = x * sigmoid::<N>(x);
        s[ABSOLUTE_POS] = Vector::cast_from(silu);
        h[ABSOLUTE_POS] = Vector::cast_from(silu * y);
    }
}

/// a ← da, b ← db, dh ← h: every result takes the place of an operand it is the last to need.
#[cube(launch_unchecked)]
fn gate_backward<F: Float, N: Size>(a: &mut [Vector<F, N>], b: &mut [Vector<F, N>], dh: &mut [Vector<F, N>]) {
    if ABSOLUTE_POS < dh.len() {
        let x = Vector::<f32, N>::cast_from(a[ABSOLUTE_POS]);
        let y = Vector::<f32, N>::cast_from(b[ABSOLUTE_POS]);
        let g = Vector::<f32, N>::cast_from(dh[ABSOLUTE_POS]);
        let sigma = sigmoid::<N>(x);
        let silu = x * sigma;
        let derivative = sigma + silu * (Vector::new(1.0f32) - sigma);
        a[ABSOLUTE_POS] = Vector::cast_from(g * y * derivative);
        b[ABSOLUTE_POS] = Vector::cast_from(g * silu);
        dh[ABSOLUTE_POS] = Vector::cast_from(silu * y);
    }
}

/// How a kernel covers `elements` elements.
struct Grid {
    count: CubeCount,
    dim: CubeDim,
    /// Elements a thread reads at once.
    vector: usize,
    elements: usize,
}

/// Threads in a block: enough blocks fit on a multiprocessor to hide the memory's latency.
const THREADS: usize = 256;
/// The widest load of a thread.
const VECTOR_BYTES: usize = 16;

impl Grid {
    fn of(tensor: &CubeTensor) -> Self {
        let elements = tensor.meta.num_elements();
        let mut vector = VECTOR_BYTES / tensor.dtype.size();
        while !elements.is_multiple_of(vector) {
            vector /= 2;
        }
        let blocks = (elements / vector).div_ceil(THREADS);
        Self {
            count: CubeCount::Static(blocks as u32, 1, 1),
            dim: CubeDim::new_1d(THREADS as u32),
            vector,
            elements,
        }
    }

    fn buffer(&self, tensor: &CubeTensor) -> BufferArg {
        assert!(
            tensor.is_contiguous() && tensor.meta.num_elements() == self.elements,
            "the element-wise kernels of swiglu take contiguous tensors of one size"
        );
        // SAFETY: a contiguous tensor holds as many elements as its shape says.
        unsafe { BufferArg::from_raw_parts(tensor.handle.clone(), self.elements) }
    }
}

/// Launches a kernel for the element type of a tensor.
macro_rules! launch {
    ($kernel:ident, $like:expr, $grid:expr, $($argument:expr),+) => {{
        let (like, grid): (&CubeTensor, Grid) = ($like, $grid);
        let client = like.client.clone();
        // SAFETY: `Grid` made the arguments and the kernels check the end of the buffers.
        unsafe {
            match like.dtype {
                DType::F32 => $kernel::launch_unchecked::<f32>(&client, grid.count, grid.dim, grid.vector, $($argument),+),
                DType::BF16 => $kernel::launch_unchecked::<bf16>(&client, grid.count, grid.dim, grid.vector, $($argument),+),
                DType::F16 => $kernel::launch_unchecked::<f16>(&client, grid.count, grid.dim, grid.vector, $($argument),+),
                other => panic!("swiglu computes in f32, bf16 and f16, not {other:?}"),
            }
        }
    }};
}

fn like(tensor: &CubeTensor) -> CubeTensor {
    let (client, device) = (tensor.client.clone(), tensor.device.clone());
    empty_device_contiguous_dtype(client, device, tensor.meta.shape().clone(), tensor.dtype)
}

impl Gate for CubeBackend {
    fn gate(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        let grid = Grid::of(&a);
        let (a_arg, b_arg) = (grid.buffer(&a), grid.buffer(&b));
        if a.can_mut() {
            let in_place = BufferArg::alias(0, grid.elements);
            launch!(gate, &a, grid, a_arg, b_arg, in_place);
            return a;
        }
        let h = like(&a);
        let h_arg = grid.buffer(&h);
        launch!(gate, &a, grid, a_arg, b_arg, h_arg);
        h
    }

    fn silu_and_gate(a: FloatTensor<Self>, b: FloatTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let grid = Grid::of(&a);
        let (s, h) = (like(&a), like(&a));
        let [a_arg, b_arg, s_arg, h_arg] = [&a, &b, &s, &h].map(|tensor| grid.buffer(tensor));
        launch!(silu_and_gate, &a, grid, a_arg, b_arg, s_arg, h_arg);
        (s, h)
    }

    /// da, db and h take the memory of a, b and dh where nobody else holds them.
    fn gate_backward(
        a: FloatTensor<Self>,
        s: Option<FloatTensor<Self>>,
        b: FloatTensor<Self>,
        dh: FloatTensor<Self>,
    ) -> GateGradients<Self> {
        // Making s again from a, which is read anyway, is cheaper than reading it.
        drop(s);
        let [a, b, dh] = [a, b, dh].map(|tensor| if tensor.can_mut() { tensor } else { tensor.copy() });
        let grid = Grid::of(&a);
        let [a_arg, b_arg, dh_arg] = [&a, &b, &dh].map(|tensor| grid.buffer(tensor));
        launch!(gate_backward, &a, grid, a_arg, b_arg, dh_arg);
        GateGradients { da: a, db: b, h: dh }
    }
}
