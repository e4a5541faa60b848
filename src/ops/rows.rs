//! Some rows R of a tensor x [rows, columns], and x with others in their place:
//!
//! ```text
//! rows:       y = x[R]                                        dx[R] += g, in the memory of the gradient that x has already
//! with_rows:  y[R] = z, y = x elsewhere                       dz = g[R], dx[R] = 0, dx = g elsewhere
//! ```
//!
//! Nothing is kept for backward.

use std::ops::Range;

use burn::tensor::Tensor;

use super::cost::{Cost, Moment};
use super::function::{Earlier, custom, custom_adding};
use super::name::OperatorName;

/// These rows of x, in memory of their own.
pub fn rows(x: Tensor<2>, rows: Range<usize>) -> Tensor<2> {
    custom_adding(OperatorName::Residual, [x.into_dispatch()], |[x], _| {
        let x = Tensor::<2>::from_dispatch(x);
        let shape = x.dims();
        (copied(x, &rows), move |g: Tensor<2>, _: [bool; 1], earlier: &mut Earlier<'_>| {
            let sum = match earlier(0).map(Tensor::<2>::from_dispatch) {
                Some(earlier) => {
                    let sum = copied(earlier.clone(), &rows) + g;
                    put(earlier, sum, &rows)
                }
                None => put(Tensor::zeros(shape, (&g.device(), g.dtype())), g, &rows),
            };
            [Some(sum.into_dispatch())]
        })
    })
}

/// x with these rows in the place of its own, in its memory where nobody else holds it.
pub fn with_rows(x: Tensor<2>, new: Tensor<2>, rows: Range<usize>) -> Tensor<2> {
    custom(OperatorName::Residual, [x.into_dispatch(), new.into_dispatch()], |[x, new]| {
        let y = put(Tensor::from_dispatch(x), Tensor::from_dispatch(new), &rows);
        (y, move |g: Tensor<2>, [of_x, of_new]: [bool; 2]| {
            let new = of_new.then(|| copied(g.clone(), &rows).into_dispatch());
            let none = |g: Tensor<2>| {
                let zeros = Tensor::zeros([rows.len(), g.dims()[1]], (&g.device(), g.dtype()));
                put(g, zeros, &rows).into_dispatch()
            };
            [of_x.then(|| none(g)), new]
        })
    })
}

fn put(x: Tensor<2>, new: Tensor<2>, rows: &Range<usize>) -> Tensor<2> {
    let columns = x.dims()[1];
    x.slice_assign([rows.clone(), 0..columns], new)
}

/// Burn's slice may be a view, which keeps all of x.
fn copied(x: Tensor<2>, rows: &Range<usize>) -> Tensor<2> {
    let part = x.narrow(0, rows.start, rows.len());
    let like = Tensor::empty(part.dims(), (&part.device(), part.dtype()));
    let columns = part.dims()[1];
    like.slice_assign([0..rows.len(), 0..columns], part)
}

/// What a layer costs, from these of its rows, that reads and changes them in a tensor of so many bytes; `read`: bytes of other
/// rows that it reads.
pub fn in_rows(layer: Cost, whole: u64, read: u64) -> Cost {
    let (rows, all) = (layer.input, Moment::workspace(whole));
    let own = Moment::workspace(rows + read);
    // The layer's input is a copy, which it may hold; the whole is there until the end, where a copy of it is changed.
    let held = if layer.holds_input { rows } else { 0 };
    let put = Moment::workspace(layer.output + whole)
        + Moment { kept: layer.kept + held, by: layer.kept_by, ..Moment::default() };
    let sum = Moment::gradients(layer.gradients) + Moment::workspace(2 * rows);
    Cost {
        input: whole,
        output: whole,
        holds_input: false,
        holder: None,
        kept: layer.kept + held,
        kept_by: layer.kept_by + super::cost::KeptBy::of(layer.holder, held),
        forward: Moment::highest([layer.forward + own, put]),
        passing: Moment::highest([layer.passing + own, Moment::workspace(layer.output + whole)]),
        backward: Moment::highest([layer.backward + all + Moment::workspace(rows), sum + all]),
        ..layer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::random;

    fn list(x: Tensor<2>) -> Vec<f32> {
        x.into_data().try_to_vec().unwrap()
    }

    /// y = x with rows 1 to 3 in the place of 3 times those, and Σ w y² of it twice: 2 w y, times 3 where they are changed,
    /// and 0 of what is replaced.
    #[test]
    fn gradients_are_those_of_the_definition() {
        let (x, w) = (random::<2>([5, 3], 1).inner(), random::<2>([5, 3], 2).inner());
        let tracked = x.clone().autodiff().require_grad();
        // What is no leaf.
        let moved = tracked.clone() * 1.0;
        let changed = rows(moved.clone(), 1..4) * 3.0;
        let y = with_rows(moved.clone(), changed, 1..4);
        let again = rows(moved, 0..2);
        let loss = (y.clone().square() * w.clone().autodiff()).sum() + again.square().sum();
        let gradient = list(tracked.grad(&loss.backward()).unwrap());
        let (x, w) = (list(x), list(w));
        for (i, found) in gradient.iter().enumerate() {
            let row = i / 3;
            let factor = if (1..4).contains(&row) { 9.0 } else { 1.0 };
            let more = if row < 2 { 2.0 * x[i] } else { 0.0 };
            let expected = 2.0 * factor * w[i] * x[i] + more;
            assert!((found - expected).abs() < 1e-5, "{i}: {found} and {expected}");
            let of_y = list(y.clone().inner())[i];
            assert!((of_y - if factor > 1.0 { 3.0 * x[i] } else { x[i] }).abs() < 1e-6);
        }
    }
}
