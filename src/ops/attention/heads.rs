//! [`Heads`]: how the columns of q, k and v divide into heads, and their order for batched products.

use burn::tensor::{DType, Tensor};

use crate::ops::backend::{cube, on_cuda, uncube};
use crate::ops::kernels::heads as kernels;
use crate::ops::narrow;

/// The shape of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    pub batch: usize,
    pub sequence: usize,
    pub kv_heads: usize,
    /// Query heads that share a key head.
    pub group: usize,
    pub head_dim: usize,
}

impl Heads {
    /// Columns of this tensor with a token a row.
    pub fn columns(&self) -> usize {
        self.kv_heads * self.group * self.head_dim
    }

    /// The same for keys and values.
    pub fn of_keys(&self) -> Self {
        Self { group: 1, ..*self }
    }

    /// Columns from `offset` of x [batch · sequence, columns] → [batch · kv_heads, sequence · group,
    /// head_dim]: the queries of one key head are the rows of one matrix, and a range of positions is a
    /// range of rows.
    pub fn split(&self, x: Tensor<2>, offset: usize) -> Tensor<3> {
        if on_cuda(&x) {
            return uncube(kernels::split_heads(&cube(x), offset, *self));
        }
        self.split_composed(x, offset)
    }

    /// [`Heads::split`] by Burn's operators, inside of autodiff's graph too.
    pub fn split_composed(&self, x: Tensor<2>, offset: usize) -> Tensor<3> {
        let Self { batch, sequence, kv_heads, group, head_dim } = *self;
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
        let Self { batch, sequence, kv_heads, group, head_dim } = *self;
        let x = x.reshape([batch, kv_heads, sequence, group * head_dim]).swap_dims(1, 2);
        narrow(x.reshape([batch * sequence, self.columns()]), dtype)
    }

    /// q, k and v merged side by side.
    pub fn merge_packed(&self, q: Tensor<3>, k: Tensor<3>, v: Tensor<3>, dtype: DType) -> Tensor<2> {
        let keys = self.of_keys();
        if on_cuda(&q) {
            let (queries, part) = (self.columns(), keys.columns());
            let options = (&q.device(), dtype);
            let all = Tensor::<2>::empty([self.batch * self.sequence, queries + 2 * part], options);
            let all = kernels::merge_heads_into(&cube(q), *self, cube(all), 0);
            let all = kernels::merge_heads_into(&cube(k), keys, all, queries);
            return uncube(kernels::merge_heads_into(&cube(v), keys, all, queries + part));
        }
        Tensor::cat(vec![self.merge(q, dtype), keys.merge(k, dtype), keys.merge(v, dtype)], 1)
    }
}
