//! The head of a language model, and what it costs with its loss.

use burn::tensor::{DType, Tensor, TensorData};

use super::{Decoder, HERE};
use crate::model::architecture::Head;
use crate::ops::autocast::weight;
use crate::ops::cost::{Cost, Flops, Moment, Setting, Tensors, Trained};
use crate::ops::cross_entropy::{self, HeadArithmetic, Logits};
use crate::ops::dense::{Arithmetic, Weight};
use crate::ops::product::{plain, product, transpose};
use crate::ops::rounded;
use crate::params::table::Tuning;
use crate::world::ProcessGroup;

impl Decoder {
    /// What the head reads and its weight [vocab, hidden_size]. A bias is the weight of one more column, of ones; see
    /// [`ALIGNED`]. `table`: the [`shared_table`](Self::shared_table).
    pub(super) fn with_head(&self, hidden: Tensor<2>, table: Option<Tensor<2>>) -> (Tensor<2>, Weight) {
        let Some(head) = &self.modules.head else {
            let own = weight(&self.modules.tokens.as_ref().expect(HERE).weight);
            return (hidden, table.map_or(own.clone(), |table| Weight::new(table, own.cast)));
        };
        let Some(bias) = &head.bias else { return (hidden, weight(&head.weight)) };
        let ones = hidden.clone().narrow(1, 0, 1).ones_like();
        let weight = vec![head.weight.val(), bias.val().unsqueeze_dim(1)];
        (aligned(vec![hidden, ones]), aligned(weight).into())
    }

    /// How the head computes: a classifier's logits are its products.
    pub(super) fn head_arithmetic(&self) -> HeadArithmetic {
        let logits = match self.rest.classifies {
            true => Logits::default(),
            false => self.rest.architecture.head.logits,
        };
        HeadArithmetic { arithmetic: self.rest.computation.arithmetic, logits }
    }

    /// [tokens, vocab] in fp32, of these rows of what [`hidden`](Self::hidden) gives.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        let Arithmetic { dtype, math } = self.rest.computation.arithmetic.in_region();
        let (hidden, head) = self.with_head(hidden, None);
        let (hidden, head) = (rounded(hidden.inner(), dtype), head.outside().narrow(dtype));
        let products = product(plain(hidden), transpose(head), DType::F32, math);
        gathered(self.head_arithmetic().logits.apply(products), &self.rest.ranks_of_head)
    }
}

/// The columns of all ranks side by side, in fp32.
fn gathered(logits: Tensor<2>, ranks: &ProcessGroup) -> Tensor<2> {
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

/// Columns that a bias adds to the head's weight: its own, and zeros that keep rows as well aligned as before, so that
/// products are as fast. 16 bytes of the narrowest type, or a multiple.
const ALIGNED: usize = 8;

/// The columns of a matrix, one more, and zeros.
fn aligned(mut parts: Vec<Tensor<2>>) -> Tensor<2> {
    let ([rows, _], of) = (parts[0].dims(), (&parts[0].device(), parts[0].dtype()));
    parts.push(Tensor::zeros([rows, ALIGNED - 1], of));
    Tensor::cat(parts, 1)
}

/// What the head costs with its loss, from the last norm's result [tokens, hidden]. Every forward joins a `bias` to the
/// weight as a column, and ones to what the head reads; backward takes their gradients apart. A classifier of `tuning`
/// in the place of the head has no bias, and is trained.
pub fn head_cost(
    setting: &Setting,
    tuning: &Tuning,
    [vocab, hidden]: [u64; 2],
    tied: bool,
    head: &Head,
) -> Cost {
    let logits = head.logits;
    if let Some(classes) = tuning.classes {
        let trained = Setting { trained: Trained::ALL, ..*setting };
        return cross_entropy::cost(&trained, [classes as u64, hidden], false, Logits::default());
    }
    if !head.bias || tied {
        return cross_entropy::cost(setting, [vocab, hidden], tied, logits);
    }
    let columns = hidden + ALIGNED as u64;
    let Trained { weights, biases } = setting.trained;
    // The matrix of both has a gradient where one of them is trained.
    let joint = Setting { trained: Trained { weights: weights || biases, biases }, ..*setting };
    let loss = cross_entropy::cost(&joint, [vocab, columns], false, logits);
    let parameters = vocab * (hidden + 1);
    let joined = vocab * columns * setting.stored;
    // Without a backward nothing is kept, and the matrix of both is there until the loss is.
    let loss = Cost { passing: loss.passing + Moment::workspace(joined), ..loss };
    let tensors =
        Tensors::matrices(u64::from(weights), [vocab, hidden]) + Tensors::vectors(u64::from(biases), vocab);
    let trained = tensors.elements;
    let (x, y) = (setting.activation(hidden), setting.activation(columns));
    let apart = Moment::workspace(x + trained * setting.stored);
    let join = Cost { input: x, output: y, kept: joined, ..Cost::new(Moment::workspace(joined + y), apart) };
    // What is computed for the column is none of the model's operations.
    let of_model = hidden as f64 / columns as f64;
    let Flops { forward, backward, recompute } = loss.flops * of_model;
    let cost = Cost::sequence(&[join, loss]);
    Cost {
        parameters,
        trained: tensors,
        largest: if weights { vocab * hidden } else { trained },
        weights: parameters * setting.stored,
        gradients: if weights { cost.gradients } else { trained * setting.stored },
        flops: Flops { forward, backward, recompute },
        ..cost
    }
}
