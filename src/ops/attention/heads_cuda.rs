//! Moves heads between rows of tokens and one matrix for each key-value head, the layout that batched products of
//! attention need.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::attention::Heads;

use crate::ops::kernels::launch::{
    buffer, contiguous, elementwise, empty, expect, float, sizes, vector, wider, writable,
};

impl Heads {
    /// [B · K, S · G, d]
    fn matrices(&self) -> [usize; 3] {
        [self.batch * self.kv_heads, self.sequence * self.group, self.head_dim]
    }

    fn elements(&self) -> usize {
        self.tokens() * self.columns()
    }
}

/// The token of each place of the rows: `tokens` [places] i32 from `first` on; -1: none.
pub struct Places {
    pub tokens: CubeTensor,
    pub first: usize,
}

/// How rows of tokens hold the matrices [B · K, S · G, d], in vectors.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Shape {
    pub sequence: usize,
    pub kv_heads: usize,
    pub group: usize,
    /// Vectors of a head.
    pub vectors: usize,
    /// Vectors of a token.
    pub columns: usize,
    pub offset: usize,
    /// Before the first place.
    pub first: usize,
}

/// The token of the vector at `index` of the matrices, -1 for none, and its column.
#[cube]
fn in_tokens(index: usize, shape: &Shape, tokens: &ComptimeOption<&[i32]>) -> (i32, usize) {
    let within = index % shape.vectors;
    let row = index / shape.vectors;
    let member = row % shape.group;
    let rest = row / shape.group;
    let position = rest % shape.sequence;
    let matrix = rest / shape.sequence;
    let place = (matrix / shape.kv_heads) * shape.sequence + position;
    let head = (matrix % shape.kv_heads) * shape.group + member;
    #[comptime]
    let token = match tokens {
        ComptimeOption::Some(tokens) => tokens[shape.first + place],
        ComptimeOption::None => place as i32,
    };
    (token, shape.offset + head * shape.vectors + within)
}

#[cube(launch_unchecked)]
fn split<F: Float, N: Size>(
    x: &[Vector<F, N>],
    tokens: ComptimeOption<&[i32]>,
    out: &mut [Vector<F, N>],
    shape: Shape,
    #[define(F)] _type: ElemType,
) {
    if ABSOLUTE_POS < out.len() {
        let (token, column) = in_tokens(ABSOLUTE_POS, &shape, &tokens);
        let mut value = Vector::<F, N>::new(F::new(0.0));
        if token >= 0 {
            value = x[token as usize * shape.columns + column];
        }
        out[ABSOLUTE_POS] = value;
    }
}

#[cube(launch_unchecked)]
fn merge<A: Float, B: Float, N: Size>(
    x: &[Vector<A, N>],
    tokens: ComptimeOption<&[i32]>,
    out: &mut [Vector<B, N>],
    shape: Shape,
    #[define(A, B)] _types: [ElemType; 2],
) {
    if ABSOLUTE_POS < x.len() {
        let (token, column) = in_tokens(ABSOLUTE_POS, &shape, &tokens);
        if token >= 0 {
            out[token as usize * shape.columns + column] = Vector::cast_from(x[ABSOLUTE_POS]);
        }
    }
}

/// x [tokens, columns] → [B · K, S · G, d], read from column `column_offset` on; 0 where a place has no
/// token. Without places the tokens are the rows in their order.
pub fn split_heads(
    x: &CubeTensor,
    column_offset: usize,
    heads: Heads,
    places: Option<&Places>,
) -> CubeTensor {
    let x = contiguous(x);
    let Cover { vector, tokens, shape } = Cover::new(&x, column_offset, heads, places, x.dtype);
    let out = empty(&x, heads.matrices(), x.dtype);
    // The heads lie within the columns of `x`, and places name rows of it.
    let tokens = tokens.as_ref().map(buffer).into();
    elementwise!(split, &out, vector, buffer(&x), tokens, buffer(&out), shape, float(x.dtype));
    out
}

/// x [B · K, S · G, d] → [B · S, K · G · d] of type `out`, the inverse of [`split_heads`].
pub fn merge_heads(x: &CubeTensor, heads: Heads, out: DType) -> CubeTensor {
    let target = empty(x, [heads.tokens(), heads.columns()], out);
    merge_heads_into(x, heads, None, target, 0)
}

/// Writes x [B · K, S · G, d] into the columns of `target` [tokens, columns] from `column_offset`
/// on, in target's memory where nobody else holds it, and nothing for a place without a token.
pub fn merge_heads_into(
    x: &CubeTensor,
    heads: Heads,
    places: Option<&Places>,
    target: CubeTensor,
    column_offset: usize,
) -> CubeTensor {
    let (x, target) = (contiguous(x), writable(target));
    expect(&x, x.dtype, heads.elements(), "x");
    let widest = wider(x.dtype, target.dtype);
    let Cover { vector, tokens, shape } = Cover::new(&target, column_offset, heads, places, widest);
    // The heads lie within the columns of `target`, and places name rows of it.
    let (tokens, types) = (tokens.as_ref().map(buffer).into(), [x.dtype, target.dtype].map(float));
    elementwise!(merge, &x, vector, buffer(&x), tokens, buffer(&target), shape, types);
    target
}

/// How a kernel covers the heads that lie in the columns of a tensor of tokens.
struct Cover {
    vector: usize,
    tokens: Option<CubeTensor>,
    shape: ShapeLaunch,
}

impl Cover {
    /// `of`: [tokens, columns], with the heads in the columns from `offset` on; `widest`: the largest type of the kernel's
    /// tensors.
    fn new(of: &CubeTensor, offset: usize, heads: Heads, places: Option<&Places>, widest: DType) -> Self {
        let (rows, [tokens, columns]) = (heads.tokens(), sizes(of, "the tensor of tokens"));
        assert!(places.is_some() || tokens == rows, "{tokens} tokens of {heads:?}");
        assert!(offset + heads.columns() <= columns, "{heads:?} from {offset} in {columns} columns");
        let first = places.map_or(0, |places| places.first);
        let tokens = places.map(|Places { tokens, .. }| {
            let [all] = sizes(tokens, "the places' tokens");
            expect(tokens, DType::I32, all, "the places' tokens");
            assert!(first + rows <= all, "{rows} places from {first} of {all}");
            contiguous(tokens)
        });
        let vector = vector(widest, &[heads.head_dim, columns, offset]);
        let shape = ShapeLaunch::new(
            heads.sequence,
            heads.kv_heads,
            heads.group,
            heads.head_dim / vector,
            columns / vector,
            offset / vector,
            first,
        );
        Self { vector, tokens, shape }
    }
}
