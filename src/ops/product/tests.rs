//! Every form of the product on the CPU against loops.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};

use super::*;

/// A batch of matrices in f64, of small integers: every sum is exact in every dtype.
#[derive(Clone)]
struct Matrices {
    shape: [usize; 3],
    values: Vec<f64>,
}

impl Matrices {
    fn new(shape: [usize; 3], seed: usize) -> Self {
        let values = (0..shape.iter().product()).map(|i| ((i * 7 + seed * 13) % 5) as f64 - 2.0).collect();
        Self { shape, values }
    }

    fn at(&self, b: usize, i: usize, j: usize) -> f64 {
        self.values[(b * self.shape[1] + i) * self.shape[2] + j]
    }

    fn from(shape: [usize; 3], mut value: impl FnMut(usize, usize, usize) -> f64) -> Self {
        let mut values = Vec::new();
        for b in 0..shape[0] {
            for i in 0..shape[1] {
                (0..shape[2]).for_each(|j| values.push(value(b, i, j)));
            }
        }
        Self { shape, values }
    }

    fn transpose(&self) -> Self {
        let [b, m, n] = self.shape;
        Self::from([b, n, m], |b, i, j| self.at(b, j, i))
    }

    fn part(&self, rows: Range<usize>, columns: Range<usize>) -> Self {
        Self::from([self.shape[0], rows.len(), columns.len()], |b, i, j| {
            self.at(b, rows.start + i, columns.start + j)
        })
    }

    fn times(&self, other: &Self) -> Self {
        assert_eq!(self.shape[2], other.shape[1]);
        Self::from([self.shape[0], self.shape[1], other.shape[2]], |b, i, j| {
            (0..self.shape[2]).map(|k| self.at(b, i, k) * other.at(b, k, j)).sum()
        })
    }

    /// As a matrix or a batch of them.
    fn tensor<const D: usize>(&self, dtype: DType) -> Tensor<D> {
        tensor(self.values.clone(), std::array::from_fn(|i| self.shape[3 - D + i]), dtype)
    }
}

fn tensor<const D: usize>(values: Vec<f64>, shape: [usize; D], dtype: DType) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape).convert_dtype(dtype), (&Device::flex(), dtype))
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.cast(FloatDType::F64).into_data().try_to_vec().expect("f64")
}

/// What a tensor of `dtype` makes of values that are exact in f32.
fn rounded(values: &[f64], dtype: DType) -> Vec<f64> {
    self::values(tensor(values.to_vec(), [values.len()], dtype))
}

const TYPES: [(DType, DType); 5] = [
    (DType::F32, DType::F32),
    (DType::BF16, DType::F32),
    (DType::F16, DType::F32),
    (DType::BF16, DType::BF16),
    (DType::F16, DType::F16),
];

/// [4, 5] and [5, 3]: as parts of tensors with three more rows in memory, before and behind them, and as the
/// matrices that are multiplied.
fn sides<const D: usize>(batch: usize, dtype: DType, [ta, tb]: [bool; 2]) -> [(Factor<D>, Matrices); 2] {
    let side = |seed, transposed: bool, before: usize, [m, n]: [usize; 2]| {
        let shape = if transposed { [batch, n + 3, m] } else { [batch, m + 3, n] };
        let whole = Matrices::new(shape, seed);
        let rows = before..before + shape[1] - 3;
        let part = whole.part(rows.clone(), 0..shape[2]);
        let tensor = whole.tensor(dtype);
        match transposed {
            true => (transpose(tensor).rows(rows), part.transpose()),
            false => (plain(tensor).rows(rows), part),
        }
    };
    [side(1, ta, 2, [4, 5]), side(2, tb, 1, [5, 3])]
}

fn parts_and_transposes<const D: usize>(batch: usize) {
    for (dtype, out) in TYPES {
        for flags in [[false, false], [false, true], [true, false], [true, true]] {
            let [(lhs, a), (rhs, b)] = sides::<D>(batch, dtype, flags);
            let got = product(lhs, rhs, out, Fp32Math::Exact);
            assert_eq!(got.dtype(), out);
            let expected = rounded(&a.times(&b).values, out);
            assert_eq!(values(got), expected, "{batch} {dtype:?} into {out:?}, {flags:?}");
        }
    }
}

#[test]
fn products_of_parts_and_transposes_in_every_type() {
    parts_and_transposes::<2>(1);
    parts_and_transposes::<3>(3);
}

#[test]
fn columns_are_read_in_place_too() {
    let (a, b) = (Matrices::new([1, 4, 9], 1), Matrices::new([1, 5, 8], 2));
    let lhs = plain(a.tensor::<2>(DType::F32)).columns(2..7);
    let rhs = transpose(b.tensor(DType::F32)).columns(3..8).rows(1..4);
    let got = product(lhs, rhs, DType::F32, Fp32Math::Exact);
    let expected = a.part(0..4, 2..7).times(&b.part(1..4, 3..8).transpose());
    assert_eq!(values(got), expected.values);
}

fn sums_and_rows<const D: usize>(batch: usize) {
    for (dtype, out) in TYPES {
        let [(lhs, a), (rhs, b)] = sides::<D>(batch, dtype, [false, true]);
        let product = a.times(&b);
        let sum = Matrices::new(product.shape, 5);
        let added = product_add(Some(sum.tensor(out)), lhs.clone(), rhs.clone(), out, Fp32Math::Exact);
        let expected: Vec<f64> = sum.values.iter().zip(&product.values).map(|(s, p)| s + p).collect();
        assert_eq!(values(added), rounded(&expected, out));

        for accumulate in [false, true] {
            let whole = Matrices::new([batch, 9, 3], 6);
            let (lhs, rhs) = (lhs.clone(), rhs.clone());
            let got = product_into(whole.tensor(out), 3..7, accumulate, lhs, rhs, Fp32Math::Exact);
            let expected = Matrices::from(whole.shape, |b, i, j| match (3..7).contains(&i) {
                true => product.at(b, i - 3, j) + if accumulate { whole.at(b, i, j) } else { 0.0 },
                false => whole.at(b, i, j),
            });
            assert_eq!(values(got), rounded(&expected.values, out), "{out:?} {accumulate}");
        }
    }
}

#[test]
fn products_are_added_and_written_into_rows() {
    sums_and_rows::<2>(1);
    sums_and_rows::<3>(3);
}

#[test]
fn a_bias_is_added_to_every_row_and_a_tensor_to_all() {
    for (dtype, out) in TYPES {
        let [(lhs, a), (rhs, b)] = sides(1, dtype, [true, false]);
        let bias = [3.0, -1.0, 2.0];
        let product = a.times(&b);
        let onto = Matrices::new(product.shape, 5);
        for (with_bias, with_onto) in [(true, false), (false, true), (true, true)] {
            let of_bias = with_bias.then(|| tensor(bias.to_vec(), [3], out));
            let added = with_onto.then(|| onto.tensor(out));
            let got = product_bias(lhs.clone(), rhs.clone(), of_bias, added, out, Fp32Math::Exact);
            let expected = Matrices::from(product.shape, |b, i, j| {
                let bias = if with_bias { bias[j] } else { 0.0 };
                product.at(b, i, j) + bias + if with_onto { onto.at(b, i, j) } else { 0.0 }
            });
            assert_eq!(values(got), rounded(&expected.values, out), "{out:?} {with_bias} {with_onto}");
        }
    }
}

#[test]
#[should_panic(expected = "matmul: 4..9 of 8 rows or columns")]
fn a_part_must_lie_in_the_matrix() {
    let a = Matrices::new([1, 8, 5], 1).tensor::<2>(DType::F32);
    product(plain(a.clone()).rows(4..9), transpose(a), DType::F32, Fp32Math::Exact);
}

/// Ones, of which fp16 counts no further than 2048, and a sum that it holds.
#[test]
fn half_precision_vectors_are_added_up_in_fp32() {
    let inner = 4096;
    let of = |shape: [usize; 2]| tensor::<2>(vec![1.0; shape[0] * shape[1]], shape, DType::F16);
    for [rows, columns] in [[1, 3], [3, 1], [1, 1], [2, 3]] {
        let expected = vec![inner as f64; rows * columns];
        let (lhs, rhs) = (of([rows, inner]), of([inner, columns]));
        let got = product(plain(lhs.clone()), plain(rhs.clone()), DType::F16, Fp32Math::Exact);
        assert_eq!((got.dtype(), values(got)), (DType::F16, expected.clone()), "{rows} x {columns}");
        let across = product(
            transpose(lhs.clone().transpose()),
            transpose(rhs.clone().transpose()),
            DType::F16,
            Fp32Math::Exact,
        );
        assert_eq!(values(across), expected);
        let plain_way = composed_product(OperatorName::Linear, lhs, rhs, Fp32Math::Exact);
        assert_eq!(values(plain_way), expected);
    }
}
