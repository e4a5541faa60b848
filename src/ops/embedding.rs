//! The embedding lookup with hand-written backward: the gradients of equal tokens are summed in
//! fp32, in the order of the tokens, so that the result does not depend on chance.

use burn::tensor::{DType, Int, Tensor};

use super::function::custom;
use super::{narrow, wide};

/// Rows of weight [vocab, hidden] for ids [tokens], as `out`.
pub fn embedding(weight: Tensor<2>, ids: &Tensor<1, Int>, out: DType) -> Tensor<2> {
    let ids = ids.clone();
    custom([weight.into_dispatch()], |[weight]| {
        let weight = Tensor::<2>::from_dispatch(weight);
        let (dtype, [vocab, hidden]) = (weight.dtype(), weight.dims());
        let rows = narrow(weight.select(0, ids.clone()), out);
        (rows, move |g: Tensor<2>, _| {
            let g = wide(g);
            let zeros = Tensor::zeros([vocab, hidden], (&g.device(), g.dtype()));
            let sum = zeros.select_assign(0, ids, g, burn::tensor::IndexingUpdateOp::Add);
            [Some(narrow(sum, dtype).into_dispatch())]
        })
    })
}
