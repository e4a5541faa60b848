//! [`PositionalEncoding`]: fixed vectors that mark the positions of tokens.

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::ops::embedding::Ids;

/// Sinusoidal positions (Vaswani et al. 2017), added to √hidden_size times the tokens' vectors:
/// PE(p, 2i) = sin(p / 10000^(2i/d)), and PE(p, 2i + 1) is the cosine.
#[derive(Clone, Debug)]
pub struct PositionalEncoding {
    /// [positions, hidden_size] in fp32.
    table: Tensor<2>,
}

impl PositionalEncoding {
    pub fn new(positions: usize, hidden_size: usize, device: &Device) -> Self {
        let value = |p: usize, column: usize| {
            let angle = p as f64 / 10_000f64.powf((column / 2 * 2) as f64 / hidden_size as f64);
            (if column.is_multiple_of(2) { angle.sin() } else { angle.cos() }) as f32
        };
        let values: Vec<f32> =
            (0..positions).flat_map(|p| (0..hidden_size).map(move |column| value(p, column))).collect();
        let data = TensorData::new(values, [positions, hidden_size]);
        Self { table: Tensor::from_data(data, (device, DType::F32)) }
    }

    /// [tokens, hidden_size]
    pub fn forward(&self, positions: &Ids) -> Tensor<2> {
        positions.expect_rows(self.table.dims()[0], "positions");
        self.table.clone().select(0, positions.ids.clone())
    }
}
