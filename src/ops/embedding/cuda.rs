//! Embedding: rows of a table gathered by token, and their gradients added back.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::tensor::{DType, Shape};
use burn_cubecl::ops::numeric::zeros_client;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::ops::kernels::launch::{
    at_most, buffer, contiguous, elementwise, empty, expect, float, sizes, vector, wider, writable,
};

/// Threads of a block that adds the gradients of one table row.
const SCATTER_THREADS: usize = 128;

#[cube(launch_unchecked)]
fn pick<W: Float, O: Float, N: Size>(
    weight: &[Vector<W, N>],
    ids: &[i32],
    out: &mut [Vector<O, N>],
    columns: usize,
    last: usize,
    #[define(W, O)] _types: [ElemType; 2],
) {
    if ABSOLUTE_POS < out.len() {
        let id = at_most(ids[ABSOLUTE_POS / columns], last);
        out[ABSOLUTE_POS] = Vector::cast_from(weight[id * columns + ABSOLUTE_POS % columns]);
    }
}

/// Rows of the gradients, and of the table that they are added to.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Rows {
    /// Vectors of a row.
    pub columns: usize,
    pub tokens: usize,
    /// `out` has the rows of the ids from this one on,
    pub first: i32,
    /// and up to the one before this.
    pub behind: i32,
}

/// A block adds one part of the columns of the gradients of one id, in the order of the tokens. An id that no token has
/// leaves its row as it is. `adds`: to what `out` has in the row; it is over it otherwise.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn add_rows<G: Float, O: Float, N: Size>(
    g: &[Vector<G, N>],
    order: &[i32],
    unique: &[i32],
    starts: &[i32],
    out: &mut [Vector<O, N>],
    rows: Rows,
    #[comptime] adds: bool,
    #[define(G, O)] _types: [ElemType; 2],
) {
    let which = CUBE_POS_X as usize;
    let column = (CUBE_POS_Y * CUBE_DIM_X + UNIT_POS_X) as usize;
    let id = unique[which];
    let mut place = starts[which] as usize;
    let end = at_most(starts[which + 1], rows.tokens);
    if column < rows.columns && id >= rows.first && id < rows.behind && place < end {
        let mut sum = Vector::<f32, N>::new(0.0f32);
        while place < end {
            sum += Vector::cast_from(g[at_most(order[place], rows.tokens - 1) * rows.columns + column]);
            place += 1;
        }
        let at = (id - rows.first) as usize * rows.columns + column;
        if comptime!(adds) {
            sum += Vector::cast_from(out[at]);
        }
        out[at] = Vector::cast_from(sum);
    }
}

/// Which tokens share an id: the tokens `order[starts[u]..starts[u + 1]]` all have the id
/// `unique[u]`, in their order. Tokens beyond the last start have no gradient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScatterPlan {
    pub order: Vec<i32>,
    pub unique: Vec<i32>,
    pub starts: Vec<i32>,
}

impl ScatterPlan {
    /// The plan of tokens with these ids.
    pub fn new(ids: &[i32]) -> Self {
        Self::of(ids, |_| true)
    }

    /// Of the tokens' ids, where only some tokens have a gradient: thousands of equal padding tokens
    /// would be one long sum.
    pub fn of(ids: &[i32], has_gradient: impl Fn(usize) -> bool) -> Self {
        let mut tokens: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        let mut without = Vec::new();
        for (token, id) in ids.iter().enumerate() {
            let group = if has_gradient(token) { tokens.entry(*id).or_default() } else { &mut without };
            group.push(token as i32);
        }
        let mut starts = vec![0];
        let mut order = Vec::with_capacity(ids.len());
        for group in tokens.values() {
            order.extend(group);
            starts.push(order.len() as i32);
        }
        order.extend(without);
        Self { order, unique: tokens.into_keys().collect(), starts }
    }
}

/// A [`ScatterPlan`] in i32 tensors.
pub struct DevicePlan {
    pub order: CubeTensor,
    pub unique: CubeTensor,
    pub starts: CubeTensor,
}

/// weight [V, H], ids [T] i32 below V → [T, H] of type `out`. An id beyond the table gets its last row:
/// who makes ids checks them ([`Ids`](crate::ops::embedding::Ids)).
pub fn gather(weight: &CubeTensor, ids: &CubeTensor, out: DType) -> CubeTensor {
    let (weight, ids) = (contiguous(weight), contiguous(ids));
    let [vocab, width] = sizes(&weight, "weight");
    assert!(vocab > 0, "a table has a row");
    let [tokens] = sizes(&ids, "ids");
    expect(&ids, DType::I32, tokens, "ids");
    let rows = empty(&weight, [tokens, width], out);
    let vector = vector(wider(weight.dtype, out), &[width]);
    // The kernel keeps ids within the table.
    elementwise!(
        pick,
        &rows,
        vector,
        buffer(&weight),
        buffer(&ids),
        buffer(&rows),
        width / vector,
        vocab - 1,
        [weight.dtype, out].map(float),
    );
    rows
}

/// The gradient of [`gather`] by these rows of the table: g [T, H] → [V, H] of type `out` for V of them, zero for ids that
/// no token has. Each row is added in f32, in the order of its tokens.
pub fn scatter(g: &CubeTensor, plan: &DevicePlan, rows: Range<usize>, out: DType) -> CubeTensor {
    let [_, width] = sizes(g, "g");
    let (client, device) = (g.client.clone(), g.device.clone());
    // Of one dimension, whose rows Burn does not pad.
    let zeros = zeros_client(client.clone(), device.clone(), Shape::from([rows.len() * width]), out);
    let shape = Shape::from([rows.len(), width]);
    let table = CubeTensor::new_contiguous(client, device, shape, zeros.handle, out);
    into_rows(g, plan, rows, table, false)
}

/// [`scatter`] of a whole table, added to `earlier` [V, H], in its memory where nobody else holds it.
pub fn scatter_add(g: &CubeTensor, plan: &DevicePlan, earlier: CubeTensor) -> CubeTensor {
    let [vocab, _] = sizes(&earlier, "the earlier gradient");
    into_rows(g, plan, 0..vocab, writable(burn_cubecl::kernel::into_contiguous(earlier)), true)
}

fn into_rows(
    g: &CubeTensor,
    plan: &DevicePlan,
    rows: Range<usize>,
    table: CubeTensor,
    adds: bool,
) -> CubeTensor {
    let (g, out) = (contiguous(g), table.dtype);
    let [tokens, width] = sizes(&g, "g");
    assert!(!rows.is_empty(), "a table has a row");
    expect(&table, out, rows.len() * width, "the table's gradient");
    let [unique] = sizes(&plan.unique, "unique");
    expect(&plan.order, DType::I32, tokens, "order");
    expect(&plan.unique, DType::I32, unique, "unique");
    expect(&plan.starts, DType::I32, unique + 1, "starts");
    let vector = vector(wider(g.dtype, out), &[width]);
    let columns = width / vector;
    let parts = columns.div_ceil(SCATTER_THREADS);
    // SAFETY: the kernel checks the column, keeps the plan's tokens within `g`, and passes by ids that are not in the rows.
    unsafe {
        add_rows::launch_unchecked(
            &g.client,
            CubeCount::Static(unique as u32, parts as u32, 1),
            CubeDim::new_1d(SCATTER_THREADS as u32),
            vector,
            buffer(&g),
            buffer(&plan.order),
            buffer(&plan.unique),
            buffer(&plan.starts),
            buffer(&table),
            RowsLaunch::new(columns, tokens, rows.start as i32, rows.end as i32),
            adds,
            [float(g.dtype), float(out)],
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_lists_the_tokens_of_each_id_in_order() {
        let plan = ScatterPlan::new(&[7, 2, 7, 0, 2, 7]);
        assert_eq!(plan.unique, [0, 2, 7]);
        assert_eq!(plan.starts, [0, 1, 3, 6]);
        assert_eq!(plan.order, [3, 1, 4, 0, 2, 5]);
        let plan = ScatterPlan::of(&[7, 2, 7, 0, 2, 7], |token| token != 2 && token != 3);
        assert_eq!((plan.unique, plan.starts), (vec![2, 7], vec![0, 2, 4]));
        assert_eq!(plan.order, [1, 4, 0, 5, 2, 3]);
    }

    #[test]
    fn a_plan_of_no_tokens_is_empty() {
        let plan = ScatterPlan::new(&[]);
        assert_eq!((plan.order.len(), plan.unique.len(), plan.starts), (0, 0, vec![0]));
    }
}
