//! The head of a language model: what it costs with its loss, and its logits where ranks have parts of it.

use burn::tensor::{DType, Tensor, TensorData};

use super::head_columns;
use crate::ops::cost::{Cost, Flops, Moment, Setting, Tensors, Trained};
use crate::ops::cross_entropy;
use crate::params::table::Tuning;
use crate::world::Group;

/// From the last norm's result [tokens, hidden] to the loss. A `bias` is a column of the weight, and of what it is
/// multiplied by: both are put together anew in every forward, and backward takes their gradients apart. A classifier
/// of `tuning` in its place has no bias, and is trained.
pub fn head_cost(
    setting: &Setting,
    tuning: &Tuning,
    [vocab, hidden]: [u64; 2],
    tied: bool,
    bias: bool,
) -> Cost {
    if let Some(classes) = tuning.classes {
        let trained = Setting { trained: Trained::ALL, ..*setting };
        return cross_entropy::cost(&trained, [classes as u64, hidden], false);
    }
    if !bias || tied {
        return cross_entropy::cost(setting, [vocab, hidden], tied);
    }
    let columns = head_columns(hidden as usize, bias) as u64;
    let loss = cross_entropy::cost(setting, [vocab, columns], false);
    let parameters = vocab * (hidden + 1);
    let trained = if setting.trained.weights { parameters } else { 0 };
    let joined = vocab * columns * setting.stored;
    let (x, y) = (setting.activation(hidden), setting.activation(columns));
    let apart = Moment::workspace(x + trained * setting.stored);
    let join = Cost { input: x, output: y, kept: joined, ..Cost::new(Moment::workspace(joined + y), apart) };
    // What is computed for the column is none of the model's operations.
    let of_model = hidden as f64 / columns as f64;
    let Flops { forward, backward, recompute } = loss.flops * of_model;
    let cost = Cost::sequence(&[join, loss]);
    Cost {
        parameters,
        trained: Tensors::matrices(u64::from(trained > 0), [vocab, hidden])
            + Tensors::vectors(u64::from(trained > 0), vocab),
        largest: if trained > 0 { vocab * hidden } else { 0 },
        weights: parameters * setting.stored,
        flops: Flops { forward, backward, recompute },
        ..cost
    }
}

/// The columns of all ranks side by side, in fp32.
pub(super) fn gathered(logits: Tensor<2>, ranks: &Group) -> Tensor<2> {
    if ranks.size() == 1 {
        return logits;
    }
    let ([rows, columns], device) = (logits.dims(), logits.device());
    let own = logits.into_data().try_into_vec::<f32>().expect("fp32");
    let all = ranks.all_gather("logits", own, ranks.size() * rows * columns).wait();
    let all = TensorData::new(all, [ranks.size(), rows, columns]);
    let all = Tensor::<3>::from_data(all, (&device, DType::F32));
    all.swap_dims(0, 1).reshape([rows, ranks.size() * columns])
}
