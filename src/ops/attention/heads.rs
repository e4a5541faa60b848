//! [`Heads`]: how the columns of q, k and v divide into heads, and their order for batched products.

use burn::tensor::{DType, IndexingUpdateOp, Tensor};

use super::{Places, Scores};
use crate::ops::attention::heads_cuda as kernels;
use crate::ops::backend::{cube, cube_int, on_cuda, uncube};
use crate::ops::narrow;

/// The shape of attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
    pub batch: usize,
    pub sequence: usize,
    pub kv_heads: usize,
    /// Query heads that share a key head.
    pub group: usize,
    pub head_dim: usize,
    pub scores: Scores,
}

impl Heads {
    /// Tokens, or places of them.
    pub fn tokens(&self) -> usize {
        self.batch * self.sequence
    }

    /// Columns of this tensor with a token a row.
    pub fn columns(&self) -> usize {
        self.kv_heads * self.group * self.head_dim
    }

    /// Factor of QKᵀ.
    pub fn scale(&self) -> f64 {
        self.scores.scale.unwrap_or_else(|| 1.0 / (self.head_dim as f64).sqrt())
    }

    /// The same for keys and values.
    pub fn of_keys(&self) -> Self {
        Self { group: 1, ..*self }
    }

    /// Columns from `offset` of x [batch · sequence, columns] → [batch · kv_heads, sequence · group,
    /// head_dim]: the queries of one key head are the rows of one matrix, and a range of positions is a
    /// range of rows. With `places`, x has the tokens that they name, and a place without a token
    /// becomes 0.
    pub fn split(&self, x: Tensor<2>, offset: usize, places: Option<&Places>) -> Tensor<3> {
        if on_cuda(&x) {
            return uncube(kernels::split_heads(&cube(x), offset, *self, device_places(places).as_ref()));
        }
        let x = match places {
            None => x,
            Some(places) => {
                let (tokens, none) = places.composed(self.tokens(), self.columns());
                x.narrow(1, offset, self.columns()).select(0, tokens).mask_fill(none, 0.0)
            }
        };
        self.split_composed(x, offset)
    }

    /// [`Heads::split`] by Burn's operators, inside of autodiff's graph too.
    pub fn split_composed(&self, x: Tensor<2>, offset: usize) -> Tensor<3> {
        let Self { batch, sequence, kv_heads, group, head_dim, .. } = *self;
        let x = if x.dims()[1] == self.columns() { x } else { x.narrow(1, offset, self.columns()) };
        x.reshape([batch, sequence, kv_heads, group * head_dim]).swap_dims(1, 2).reshape([
            batch * kv_heads,
            sequence * group,
            head_dim,
        ])
    }

    /// The inverse of [`Heads::split`], as `dtype`.
    pub fn merge(&self, x: Tensor<3>, dtype: DType) -> Tensor<2> {
        if on_cuda(&x) {
            return uncube(kernels::merge_heads(&cube(x), *self, dtype));
        }
        self.merge_composed(x, dtype)
    }

    /// [`Heads::merge`] by Burn's operators, inside of autodiff's graph too.
    pub fn merge_composed(&self, x: Tensor<3>, dtype: DType) -> Tensor<2> {
        let Self { batch, sequence, kv_heads, group, head_dim, .. } = *self;
        let x = x.reshape([batch, kv_heads, sequence, group * head_dim]).swap_dims(1, 2);
        narrow(x.reshape([batch * sequence, self.columns()]), dtype)
    }

    /// Writes the heads into the columns of `target` from `offset` on, in its memory where nobody else holds it.
    /// With `places` the rows of the target are the tokens that they name.
    pub fn merge_into(
        &self,
        x: Tensor<3>,
        places: Option<&Places>,
        target: Tensor<2>,
        offset: usize,
    ) -> Tensor<2> {
        if on_cuda(&x) {
            let places = device_places(places);
            return uncube(kernels::merge_heads_into(&cube(x), *self, places.as_ref(), cube(target), offset));
        }
        let rows = self.merge_composed(x, target.dtype());
        let [tokens, columns] = [target.dims()[0], self.columns()];
        let part = match places {
            None => rows,
            Some(places) => {
                let (into, none) = places.composed(self.tokens(), columns);
                let whole = target.clone().narrow(1, offset, columns);
                whole.select_assign(0, into, rows.mask_fill(none, 0.0), IndexingUpdateOp::Add)
            }
        };
        target.slice_assign([0..tokens, offset..offset + columns], part)
    }
}

fn device_places(places: Option<&Places>) -> Option<kernels::Places> {
    places.map(|places| kernels::Places { tokens: cube_int(&places.tokens), first: places.first })
}
