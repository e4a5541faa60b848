//! Linear layers of one input whose results lie side by side in one tensor, on CUDA: what follows takes them in one
//! launch, one kernel makes the gradients of their biases, and their products add up dx.

use std::ops::Range;

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Tensor};

use super::{Arithmetic, Weight, WeightLayout};
use crate::device::cuda::{self, Operand, Output};
use crate::ops::backend::{cube, uncube};
use crate::ops::function::{Earlier, custom_adding};
use crate::ops::kernels::columns::column_sums;
use crate::ops::kernels::launch::empty;
use crate::ops::name::OperatorName;
use crate::ops::product::{Fp32Math, plain, product, product_add, transpose};
use crate::ops::rounded;

/// Layers that read one input.
pub const LAYERS: usize = 3;

/// Three linear layers of x [tokens, inputs], all with a bias or none → [tokens, outputs of all], as
/// [`dense`](super::dense) has each.
///
/// # Panics
/// When cuBLASLt does not multiply x ([`has_blas`](crate::ops::backend::has_blas)).
pub fn dense_side_by_side(
    x: Tensor<2>,
    layers: [(Weight, Option<Weight<1>>); LAYERS],
    layout: WeightLayout,
    arithmetic: Arithmetic,
) -> Tensor<2> {
    let (weights, biases): (Vec<_>, Vec<_>) = layers.into_iter().unzip();
    let biases: Option<Vec<_>> = biases.into_iter().collect();
    match biases {
        None => with_inputs::<{ 1 + LAYERS }>(x, weights, Vec::new(), layout, arithmetic.in_region()),
        Some(biases) => with_inputs::<{ 1 + 2 * LAYERS }>(x, weights, biases, layout, arithmetic.in_region()),
    }
}

fn with_inputs<const N: usize>(
    x: Tensor<2>,
    weights: Vec<Weight>,
    biases: Vec<Weight<1>>,
    layout: WeightLayout,
    arithmetic: Arithmetic,
) -> Tensor<2> {
    let Arithmetic { dtype, math } = arithmetic;
    let mut inputs = vec![x.into_dispatch()];
    let (stored, weight_casts): (Vec<_>, Vec<_>) = weights.into_iter().map(|w| (w.stored, w.cast)).unzip();
    inputs.extend(stored.into_iter().map(Tensor::into_dispatch));
    let (stored, bias_casts): (Vec<_>, Vec<_>) = biases.into_iter().map(|b| (b.stored, b.cast)).unzip();
    inputs.extend(stored.into_iter().map(Tensor::into_dispatch));
    let inputs: [DispatchTensor; N] = inputs.try_into().expect("x, the weights and the biases");
    custom_adding(OperatorName::Linear, inputs, |inputs, tracked| {
        let mut inputs = inputs.into_iter();
        let x = Tensor::<2>::from_dispatch(inputs.next().expect("x"));
        let (x_dtype, x) = (x.dtype(), rounded(x, dtype));
        let of = |(stored, cast)| Weight::new(Tensor::from_dispatch(stored), cast);
        let weights: Vec<Weight> = inputs.by_ref().take(LAYERS).zip(weight_casts).map(of).collect();
        let weight_dtype = weights[0].stored.dtype();
        let weights: Vec<_> = weights.into_iter().map(|weight| weight.narrow(dtype)).collect();
        let of = |(stored, cast)| Weight::new(Tensor::from_dispatch(stored), cast);
        let biases: Vec<Weight<1>> = inputs.zip(bias_casts).map(of).collect();
        let bias_dtype = biases.first().map(|bias| bias.stored.dtype());
        let biases = biases.into_iter().map(|bias| bias.narrow(dtype)).collect();
        let places = places(weights.iter().map(|weight| layout.outputs(weight.dims())));
        let y = forward(&x, weights.iter().cloned(), biases, &places, layout, arithmetic);
        // Frozen weights need no x.
        let x = Some(x).filter(|_| tracked[1..=LAYERS].contains(&true));
        let backward = move |g: Tensor<2>, wanted: [bool; N], earlier: &mut Earlier<'_>| {
            let g = rounded(g, dtype);
            let dx = wanted[0].then(|| {
                let earlier = (x_dtype == dtype).then(|| earlier(0)).flatten().map(Tensor::from_dispatch);
                rounded(
                    input_gradient(&g, weights.into_iter(), &places, earlier, layout, arithmetic),
                    x_dtype,
                )
            });
            let dbias = bias_dtype
                .filter(|_| wanted[1 + LAYERS..].contains(&true))
                .map(|dtype| uncube::<1>(column_sums(&cube(g.clone()), dtype)));
            let mut gradients = vec![dx.map(Tensor::into_dispatch)];
            for (place, wanted) in places.iter().zip(&wanted[1..]) {
                let x = || x.clone().expect("kept where a weight is trained");
                let of_weight = || weight_gradient(x(), g.clone(), place, layout, weight_dtype, math);
                gradients.push(wanted.then(|| of_weight().into_dispatch()));
            }
            for (place, wanted) in places.iter().zip(&wanted[1 + LAYERS..]) {
                let part = dbias.clone().filter(|_| *wanted);
                gradients.push(part.map(|all| all.narrow(0, place.start, place.len()).into_dispatch()));
            }
            gradients.try_into().unwrap_or_else(|_| unreachable!("one for each input"))
        };
        (y, backward)
    })
}

/// The gradient of the weight whose layer's result is in the columns `place`.
fn weight_gradient(
    x: Tensor<2>,
    g: Tensor<2>,
    place: &Range<usize>,
    layout: WeightLayout,
    dtype: DType,
    math: Fp32Math,
) -> Tensor<2> {
    match layout {
        WeightLayout::InOut => product(transpose(x), plain(g).columns(place.clone()), dtype, math),
        WeightLayout::OutIn => product(transpose(g).columns(place.clone()), plain(x), dtype, math),
    }
}

/// The columns of each layer's result, of so many each.
pub(in crate::ops) fn places(outputs: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let place = |outputs: usize| {
        let start = end;
        end += outputs;
        start..end
    };
    outputs.map(place).collect()
}

/// The layers' results side by side; each weight is made when its product comes.
pub(in crate::ops) fn forward(
    x: &Tensor<2>,
    weights: impl Iterator<Item = Tensor<2>>,
    biases: Vec<Tensor<1>>,
    places: &[Range<usize>],
    layout: WeightLayout,
    Arithmetic { dtype, math }: Arithmetic,
) -> Tensor<2> {
    let (x, tokens) = (cube(x.clone()), x.dims()[0]);
    let mut y = empty(&x, [tokens, places.last().map_or(0, |place| place.end)], dtype);
    let mut biases = biases.into_iter();
    for (weight, place) in weights.zip(places) {
        let output =
            Output::Into { tensor: y, rows: 0..tokens, columns: Some(place.clone()), accumulate: false };
        let lhs = Operand { tensor: x.clone(), transposed: false };
        let rhs = Operand { tensor: cube(weight), transposed: layout == WeightLayout::OutIn };
        y = match biases.next() {
            Some(bias) => cuda::matmul_bias(lhs, rhs, cube(bias), output, math),
            None => cuda::matmul(lhs, rhs, output, math),
        };
    }
    uncube(y)
}

/// The layers' gradient of x from that of their results side by side, added to what x has `earlier`.
pub(in crate::ops) fn input_gradient(
    g: &Tensor<2>,
    weights: impl Iterator<Item = Tensor<2>>,
    places: &[Range<usize>],
    earlier: Option<Tensor<2>>,
    layout: WeightLayout,
    Arithmetic { dtype, math }: Arithmetic,
) -> Tensor<2> {
    let add = |sum: Option<Tensor<2>>, (weight, place): (Tensor<2>, &Range<usize>)| {
        let (g, weight) = (plain(g.clone()).columns(place.clone()), layout.transposed(weight));
        Some(product_add(sum, g, weight, dtype, math))
    };
    weights.zip(places).fold(earlier, add).expect("there are layers")
}
