//! The same attention by Burn's operators, differentiated by Burn: every S x S tensor is kept.

use burn::tensor::{Tensor, activation};

use super::softmax::Rows;
use super::{Heads, Mask};
use crate::ops::dense::Arithmetic;
use crate::ops::name::OperatorName;
use crate::ops::product::composed_product;
use crate::ops::{narrow, wide};

/// As [`super::attention`].
pub fn attention(qkv: [Tensor<2>; 3], heads: Heads, mask: &Mask, arithmetic: Arithmetic) -> Tensor<2> {
    let _scope = OperatorName::Attention.scope();
    let keys = heads.of_keys();
    let [q, k, v] = qkv.map(|x| narrow(x, arithmetic.dtype));
    let (q, k, v) = (heads.split_composed(q, 0), keys.split_composed(k, 0), keys.split_composed(v, 0));
    let product = composed_product(OperatorName::Attention, q, k.swap_dims(1, 2), arithmetic.math);
    let rows = Rows { first: 0, first_key: 0, heads, mask };
    let scores = rows.scores(wide(product));
    let hidden = rows.hidden(scores.dims(), &scores.clone().inner()).expand(scores.dims());
    let p = activation::softmax(scores.mask_fill(hidden, f32::NEG_INFINITY), 2);
    let o = composed_product(OperatorName::Attention, narrow(p, arithmetic.dtype), v, arithmetic.math);
    heads.merge_composed(o, arithmetic.dtype)
}
