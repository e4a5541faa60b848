//! Virtual tokens: trained vectors in the places that a batch leaves free before each of its samples (Lester et al. 2021,
//! "The Power of Scale for Parameter-Efficient Prompt Tuning"; Li and Liang 2021, "Prefix-Tuning").
//!
//! Each of k samples has n virtual tokens. R [k n] are their rows in x [tokens, columns], P [n, width] are the vectors, and C
//! are the columns of x that P has:
//!
//! ```text
//! y[R, C] = P for each sample, y = x elsewhere          dx[R, C] = 0, dx = g elsewhere          dP = Σ over samples g[R, C]
//! ```
//!
//! Nothing is kept for backward but R.

use burn::tensor::{Bool, DType, Device, IndexingUpdateOp, Int, Tensor};

use super::cost::{Cost, Moment, Setting, Tensors};
use super::function::custom;
use super::name::OperatorName;
use super::{narrow, wide};
use crate::device::integers;

/// The rows of a batch that are virtual tokens.
#[derive(Clone, Debug)]
pub struct VirtualRows {
    /// Sample by sample, [samples · count].
    rows: Tensor<1, Int>,
    /// [tokens, 1]
    virtual_: Tensor<2, Bool>,
    /// Virtual tokens of each sample.
    count: usize,
}

impl VirtualRows {
    pub fn new(rows: Vec<i32>, tokens: usize, count: usize, device: &Device) -> Self {
        let marks = integers(Self::marks(&rows, tokens), device);
        Self::from_tensors([integers(rows, device), marks], count)
    }

    /// 1 for each token that is one of `rows`, else 0.
    pub fn marks(rows: &[i32], tokens: usize) -> Vec<i32> {
        let mut marks = vec![0; tokens];
        rows.iter().for_each(|row| marks[*row as usize] = 1);
        marks
    }

    /// From the rows and their [`marks`](Self::marks).
    pub fn from_tensors([rows, marks]: [Tensor<1, Int>; 2], count: usize) -> Self {
        let tokens = marks.dims()[0];
        Self { rows, virtual_: marks.equal_elem(1).reshape([tokens, 1]), count }
    }

    /// The other rows, in their order.
    pub fn others(&self) -> Tensor<1, Int> {
        let tokens = self.virtual_.dims()[0];
        let marks: Vec<bool> = self.virtual_.clone().into_data().iter::<bool>().collect();
        let others = (0..tokens).filter(|row| !marks[*row]).map(|row| row as i32).collect();
        integers(others, &self.rows.device())
    }

    /// x with these values in the columns from `first` on, of virtual tokens alone; `None`: zeros.
    fn put(&self, x: Tensor<2>, values: Option<Tensor<2>>, first: usize, width: usize) -> Tensor<2> {
        let [tokens, columns] = x.dims();
        let put = |part: Tensor<2>| {
            let part = part.mask_fill(self.virtual_.clone().expand([tokens, width]), 0.0);
            let Some(values) = values else { return part };
            let samples = self.rows.dims()[0] / self.count;
            part.select_assign(0, self.rows.clone(), values.repeat_dim(0, samples), IndexingUpdateOp::Add)
        };
        if width == columns {
            return put(x);
        }
        let part = put(x.clone().narrow(1, first, width));
        x.slice_assign([0..tokens, first..first + width], part)
    }

    /// The sum over samples of g's rows, [count, width] as `dtype`.
    fn sums(&self, g: &Tensor<2>, first: usize, width: usize, dtype: DType) -> Tensor<2> {
        let rows = wide(g.clone().narrow(1, first, width).select(0, self.rows.clone()));
        let samples = self.rows.dims()[0] / self.count;
        narrow(rows.reshape([samples, self.count * width]).sum_dim(0).reshape([self.count, width]), dtype)
    }
}

/// x [tokens, columns] with `vectors` [count, width] in the columns from `first` on of each sample's virtual tokens, in
/// x's type. The work belongs to the operator `name`.
pub fn with_virtual(
    name: OperatorName,
    x: Tensor<2>,
    vectors: Tensor<2>,
    rows: &VirtualRows,
    first: usize,
) -> Tensor<2> {
    let rows = rows.clone();
    custom(name, [x.into_dispatch(), vectors.into_dispatch()], move |inputs| {
        let [x, vectors] = inputs.map(Tensor::<2>::from_dispatch);
        let (dtype, width) = (vectors.dtype(), vectors.dims()[1]);
        let vectors = narrow(vectors, x.dtype());
        let y = rows.put(x, Some(vectors), first, width);
        (y, move |g: Tensor<2>, [of_x, of_vectors]: [bool; 2]| {
            let vectors = of_vectors.then(|| rows.sums(&g, first, width, dtype).into_dispatch());
            [of_x.then(|| rows.put(g, None, first, width).into_dispatch()), vectors]
        })
    })
}

/// The cost of `count` virtual tokens a sequence in `width` of x's columns, of `bytes` each. The vectors are trained.
pub fn cost(
    name: OperatorName,
    setting: &Setting,
    [count, width]: [u64; 2],
    (columns, bytes): (u64, u64),
) -> Cost {
    let vectors = setting.weight([count, width]);
    let x = setting.tokens() * columns * bytes;
    let part = setting.tokens() * width * bytes;
    let values = setting.batch * count * width * bytes;
    let sums = setting.batch * count * width * (bytes + 4);
    Cost {
        input: x,
        output: x,
        parameters: vectors.elements,
        trained: Tensors::matrices(1, [count, width]),
        largest: vectors.elements,
        weights: vectors.bytes,
        gradients: vectors.gradient,
        ..Cost::new(
            Moment::workspace(part + values),
            Moment::gradients(vectors.gradient) + Moment::workspace(sums.max(part)),
        )
    }
    .named(name, setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(tensor: Tensor<2>) -> Vec<f32> {
        tensor.into_data().try_to_vec().unwrap()
    }

    /// Two samples of three and of two tokens, the first of each virtual, in the last two of three columns.
    #[test]
    fn vectors_replace_rows_and_gather_their_gradients() {
        let device = Device::flex();
        let x: Vec<f32> = (1..=15).map(|i| i as f32).collect();
        let x = Tensor::<1>::from_floats(x.as_slice(), &device).reshape([5, 3]).autodiff().require_grad();
        let p = Tensor::<2>::from_floats([[-1.0, -2.0]], &device).autodiff().require_grad();
        let rows = VirtualRows::new(vec![0, 3], 5, 1, &device);
        let y = with_virtual(OperatorName::Attention, x.clone(), p.clone(), &rows, 1);
        let expected = [1., -1., -2., 4., 5., 6., 7., 8., 9., 10., -1., -2., 13., 14., 15.];
        assert_eq!(numbers(y.clone().inner()), expected);
        let g =
            Tensor::<1>::from_floats([0.5, 1., 2., 1., 1., 1., 1., 1., 1., 3., 4., 5., 1., 1., 1.], &device);
        let mut gradients = (y * g.reshape([5, 3]).autodiff()).sum().backward();
        assert_eq!(numbers(p.grad_remove(&mut gradients).unwrap()), [5., 7.]);
        let dx = [0.5, 0., 0., 1., 1., 1., 1., 1., 1., 3., 0., 0., 1., 1., 1.];
        assert_eq!(numbers(x.grad_remove(&mut gradients).unwrap()), dx);
        let others: Vec<i32> = rows.others().into_data().try_to_vec().unwrap();
        assert_eq!(others, [1, 2, 4]);
    }
}
