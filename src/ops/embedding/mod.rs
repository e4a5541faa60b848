//! The embedding lookup with hand-written backward: the gradients of equal tokens are summed in
//! fp32, in the order of the tokens, so that the result does not depend on chance.

mod cpu;
pub mod cuda;

use std::ops::Range;

use burn::tensor::{DType, Device, IndexingUpdateOp, Int, Tensor};

use super::backend::{cube, cube_int, on_cuda, uncube};
use super::cost::{Cost, Moment, Setting, Tensors};
use super::function::{Earlier, custom, custom_adding};
use super::name::OperatorName;
use super::{narrow, wide};
use crate::device::integers;
pub use crate::ops::embedding::cuda::ScatterPlan;
use crate::ops::embedding::cuda::{DevicePlan, gather, scatter, scatter_add};
use crate::ops::slices;

/// Rows of a table to look up, with the order in which backward adds up their gradients.
#[derive(Clone, Debug)]
pub struct Ids {
    pub ids: Tensor<1, Int>,
    /// Every id is below this.
    below: usize,
    /// Positions sorted by id, each id once, and where it begins in the order.
    order: Tensor<1, Int>,
    unique: Tensor<1, Int>,
    starts: Tensor<1, Int>,
    /// The id whose row gets no gradient.
    padding: Option<usize>,
}

impl Ids {
    pub fn new(ids: Vec<i32>, device: &Device) -> Self {
        let (plan, below) = (ScatterPlan::new(&ids), Self::bound(&ids));
        Self::from_tensors(Self::arrays(ids, plan).map(|v| integers(v, device)), below)
    }

    /// All ids are below this; larger than any table where one is negative.
    pub fn bound(ids: &[i32]) -> usize {
        ids.iter().map(|id| *id as u32 as usize + 1).max().unwrap_or(0)
    }

    /// What all ids are below; of positions, the length of the longest sequence.
    pub fn below(&self) -> usize {
        self.below
    }

    /// The rows that lie `offset` further.
    #[must_use]
    pub fn further(&self, offset: usize) -> Self {
        let moved = |ids: &Tensor<1, Int>| ids.clone() + offset as i64;
        let (ids, unique) = (moved(&self.ids), moved(&self.unique));
        Self { ids, unique, below: self.below + offset, ..self.clone() }
    }

    /// Checks on the host that each id is a row of a table; a device would not notice.
    ///
    /// # Panics
    /// When one is not.
    pub fn expect_rows(&self, rows: usize, table: &str) {
        // Of a negative id `below` is above 2^31, and as i32 it is that id again.
        assert!(self.below <= rows, "id {} is beyond the {rows} rows of {table}", (self.below - 1) as i32);
    }

    /// What [`Ids::from_tensors`] takes, on the host.
    pub fn arrays(ids: Vec<i32>, plan: ScatterPlan) -> [Vec<i32>; 4] {
        let ScatterPlan { order, unique, starts } = plan;
        [ids, order, unique, starts]
    }

    /// As [`Ids::arrays`], with lengths that follow from the number of ids alone, as a recorded launch needs. Behind the
    /// unique ids stand some that no token has.
    pub fn arrays_of_one_length(ids: Vec<i32>, plan: ScatterPlan) -> [Vec<i32>; 4] {
        let [ids, order, mut unique, mut starts] = Self::arrays(ids, plan);
        unique.resize(ids.len(), 0);
        starts.resize(ids.len() + 1, starts[starts.len() - 1]);
        [ids, order, unique, starts]
    }

    /// The tensors of these arrays.
    pub fn tensors(&self) -> [Tensor<1, Int>; 4] {
        [&self.ids, &self.order, &self.unique, &self.starts].map(Tensor::clone)
    }

    fn plan(&self) -> DevicePlan {
        let [order, unique, starts] = [&self.order, &self.unique, &self.starts].map(cube_int);
        DevicePlan { order, unique, starts }
    }

    /// From the tensors of [`Ids::arrays`] and the [`bound`](Ids::bound) of the ids.
    pub fn from_tensors([ids, order, unique, starts]: [Tensor<1, Int>; 4], below: usize) -> Self {
        Self { ids, below, order, unique, starts, padding: None }
    }

    /// The same, where the row of this id gets no gradient: PyTorch's `padding_idx`.
    #[must_use]
    pub fn padded_with(self, padding: Option<usize>) -> Self {
        Self { padding, ..self }
    }

    /// Gradients [tokens, hidden] of which those of padding are 0.
    fn learned(&self, g: Tensor<2>) -> Tensor<2> {
        match self.padding {
            None => g,
            Some(id) => g.mask_fill(self.ids.clone().equal_elem(id as i32).unsqueeze_dim::<2>(1), 0.0),
        }
    }
}

/// The table, for several operators that read it. Where it goes to them through this, the one whose backward comes last
/// adds to what the others have made, in the same memory.
pub fn shared(table: Tensor<2>) -> Tensor<2> {
    custom(None, [table.into_dispatch()], |[table]| {
        (Tensor::<2>::from_dispatch(table), |g: Tensor<2>, _| [Some(g.into_dispatch())])
    })
}

/// Rows of weight [vocab, hidden] for ids [tokens], as `out`.
///
/// # Panics
/// When an id is beyond the table.
pub fn embedding(weight: Tensor<2>, ids: &Ids, out: DType) -> Tensor<2> {
    let ids = ids.clone();
    custom_adding(OperatorName::Embedding, [weight.into_dispatch()], |[weight], _| {
        let weight = Tensor::<2>::from_dispatch(weight);
        let (dtype, [vocab, _]) = (weight.dtype(), weight.dims());
        ids.expect_rows(vocab, "the embedding");
        (rows(weight, &ids.ids, out), move |g: Tensor<2>, _, earlier: &mut Earlier<'_>| {
            let g = ids.learned(g);
            let earlier = if on_cuda(&g) { earlier(0) } else { None };
            let dweight = match earlier {
                Some(earlier) => {
                    uncube(scatter_add(&cube(g), &ids.plan(), cube(Tensor::<2>::from_dispatch(earlier))))
                }
                None => sums(g, &ids, 0..vocab, dtype),
            };
            [Some(dweight.into_dispatch())]
        })
    })
}

/// As [`embedding`], of the weight [vocab / parts, hidden] of the part in this place: 0 for ids of other parts.
///
/// # Panics
/// When an id is beyond all parts.
pub fn embedding_of_part(weight: Tensor<2>, ids: &Ids, [place, parts]: [usize; 2], out: DType) -> Tensor<2> {
    let [vocab, _] = weight.dims();
    ids.expect_rows(parts * vocab, "the embedding");
    let first = place * vocab;
    let ids = ids.clone();
    let own = ids.ids.clone() - first as i32;
    let others = own.clone().lower_elem(0).bool_or(own.clone().greater_equal_elem(vocab as i32));
    let (own, others) = (own.clamp(0, vocab as i32 - 1), others.unsqueeze_dim::<2>(1));
    custom(OperatorName::Embedding, [weight.into_dispatch()], |[weight]| {
        let weight = Tensor::<2>::from_dispatch(weight);
        let dtype = weight.dtype();
        let y = rows(weight, &own, out).mask_fill(others.clone(), 0.0);
        (y, move |g: Tensor<2>, _| {
            let g = ids.learned(g);
            if on_cuda(&g) {
                return [Some(sums(g, &ids, first..first + vocab, dtype).into_dispatch())];
            }
            let dweight = added(wide(g).mask_fill(others, 0.0), &own, vocab);
            [Some(narrow(dweight, dtype).into_dispatch())]
        })
    })
}

fn rows(weight: Tensor<2>, ids: &Tensor<1, Int>, out: DType) -> Tensor<2> {
    if on_cuda(&weight) {
        return uncube(gather(&cube(weight), &cube_int(ids), out));
    }
    narrow(weight.select(0, ids.clone()), out)
}

/// The gradient of these rows of a table [vocab, hidden], as `dtype`. A CPU takes the whole table.
fn sums(g: Tensor<2>, ids: &Ids, table: Range<usize>, dtype: DType) -> Tensor<2> {
    if on_cuda(&g) {
        return uncube(scatter(&cube(g), &ids.plan(), table, dtype));
    }
    narrow(added(wide(g), &ids.ids, table.len()), dtype)
}

/// Rows of g [tokens, hidden] added up in those of [vocab, hidden] that the ids name, in the order of the tokens.
fn added(g: Tensor<2>, ids: &Tensor<1, Int>, vocab: usize) -> Tensor<2> {
    if slices::takes(&g) {
        return cpu::scatter(g, ids, vocab);
    }
    let zeros = Tensor::zeros([vocab, g.dims()[1]], (&g.device(), g.dtype()));
    zeros.select_assign(0, ids.clone(), g, IndexingUpdateOp::Add)
}

/// Adds what backward needs where one row gets no gradient: gradients of the tokens with 0 for it, and which tokens those are.
pub fn add_padding(cost: &mut Cost, setting: &Setting, columns: u64) {
    if setting.trained.weights {
        let masked = Moment::workspace(setting.tokens() * (columns * setting.stored + 1));
        cost.backward = cost.backward + masked;
    }
}

/// Rows of a table [rows, columns] for each token. Nothing is kept. Where the head reads the `tied` table too, its
/// gradient is there when this one comes, and the two are added; a GPU adds the rows to it.
pub fn cost(setting: &Setting, [rows, columns]: [u64; 2], tied: bool) -> Cost {
    let table = setting.weight([rows, columns]);
    let y = setting.tokens() * columns * setting.stored;
    // The CPU adds in fp32.
    let added = match setting.on_cuda() || setting.stored == 4 {
        true => 0,
        false => 4 * table.elements + setting.wide(columns),
    };
    let sums = table.gradient + added;
    let (backward, gradients) = match tied {
        _ if !setting.trained.weights => (Moment::default(), 0),
        true if setting.on_cuda() => (Moment::default(), 0),
        true => (Moment::workspace(sums), 0),
        false => {
            let besides = Moment::workspace(sums - table.gradient);
            (Moment::gradients(table.gradient) + besides, table.gradient)
        }
    };
    Cost {
        output: y,
        parameters: table.elements,
        trained: Tensors::matrices(u64::from(setting.trained.weights), [rows, columns]),
        largest: if setting.trained.weights { table.elements } else { 0 },
        weights: table.bytes,
        gradients,
        // The table is zeroed, and then rows are added.
        launches: [1, if setting.trained.weights { 2 } else { 0 }],
        ..Cost::new(Moment::workspace(y), backward)
    }
    .named(OperatorName::Embedding, setting)
}
