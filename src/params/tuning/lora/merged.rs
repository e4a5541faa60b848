//! The weight of a layer without an adapter that computes the same.

use burn::tensor::{DType, TensorData};

use crate::ops::dense::WeightLayout;

/// W + scale · BA in fp32 and rounded once, from A [rank, inputs] and B [outputs, rank]. With a magnitude [1, outputs] each of
/// its rows, one for each output, has that length.
pub fn merged(
    (weight, layout): (TensorData, WeightLayout),
    matrices: [TensorData; 2],
    scale: f32,
    magnitude: Option<TensorData>,
) -> TensorData {
    let rank = matrices[0].shape()[0];
    let (dtype, shape) = (weight.dtype(), weight.shape().clone());
    let ([a, b], mut weight) = (matrices.map(numbers), numbers(weight));
    let magnitude = magnitude.map(numbers);
    let [inputs, outputs] = [a.len() / rank, b.len() / rank];
    let mut row = vec![0.0f32; inputs];
    for (output, factors) in b.chunks(rank).enumerate() {
        row.fill(0.0);
        for (factor, a) in factors.iter().zip(a.chunks(inputs)) {
            row.iter_mut().zip(a).for_each(|(sum, a)| *sum += factor * a);
        }
        let place = |input: usize| match layout {
            WeightLayout::OutIn => output * inputs + input,
            WeightLayout::InOut => input * outputs + output,
        };
        let mut squares = 0.0;
        for (input, sum) in row.iter().enumerate() {
            let value = &mut weight[place(input)];
            *value += scale * sum;
            squares += f64::from(*value).powi(2);
        }
        if let Some(magnitude) = &magnitude {
            let factor = (f64::from(magnitude[output]) / squares.sqrt()) as f32;
            (0..inputs).for_each(|input| weight[place(input)] *= factor);
        }
    }
    TensorData::new(weight, shape).convert_dtype(dtype)
}

fn numbers(data: TensorData) -> Vec<f32> {
    data.convert_dtype(DType::F32).try_into_vec::<f32>().expect("of the type they were converted to")
}
