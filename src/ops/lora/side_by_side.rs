//! Linear layers of one input on CUDA, adapted or not, whose results lie side by side: the products with all A, with all B,
//! and with their gradients are a launch each.

use std::ops::Range;

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Tensor};
use burn_cubecl::tensor::CubeTensor;

use super::LowRank;
use crate::ops::backend::{cube, has_blas, uncube};
use crate::ops::dense::{Arithmetic, Layer, Weight, WeightLayout, forward, input_gradient, places};
use crate::ops::function::{Earlier, InputGradients, custom_adding};
use crate::ops::lora::low_rank::{LowRanks, MOST_LAYERS, MOST_RANK, MOST_TOKENS, Masks, Of};
use crate::ops::name::OperatorName;
use crate::ops::rounded;

/// A frozen linear layer, and what is added to it.
pub struct LoraLayer {
    pub layer: Layer,
    pub low_rank: Option<LowRank>,
}

/// Whether kernels multiply by A and B of this rank on CUDA.
pub(super) fn has_kernels(rank: usize) -> bool {
    (1..=MOST_RANK).contains(&rank)
}

/// Whether one operator can be these layers of x.
pub fn lies_side_by_side(x: &Tensor<2>, layers: &[LoraLayer]) -> bool {
    let adapters: Vec<&LowRank> = layers.iter().filter_map(|layer| layer.low_rank.as_ref()).collect();
    let [first, rest @ ..] = adapters.as_slice() else { return false };
    let of = |low: &LowRank| {
        let [a, b] = [&low.a, &low.b].map(|matrix| (matrix.stored.dtype(), matrix.cast.is_some()));
        (low.a.dims()[0], low.scale, low.dropout.map(|dropout| dropout.rate), a, b)
    };
    let base = |LoraLayer { layer, .. }: &LoraLayer| (layer.layout, layer.arithmetic, layer.bias.is_some());
    layers.len() <= MOST_LAYERS
        && layers.iter().all(|layer| base(layer) == base(&layers[0]))
        && rest.iter().all(|low| of(low) == of(first))
        && has_kernels(first.a.dims()[0])
        && x.dims()[0] <= MOST_TOKENS
        && has_blas(x)
}

/// The layers' results side by side, [tokens, outputs of all], as [`lora`](super::lora) has each.
///
/// # Panics
/// When [`lies_side_by_side`] does not hold.
pub fn lora_side_by_side(x: Tensor<2>, layers: Vec<LoraLayer>) -> Tensor<2> {
    match layers.iter().filter(|layer| layer.low_rank.is_some()).count() {
        1 => with_inputs::<3>(x, layers),
        2 => with_inputs::<5>(x, layers),
        3 => with_inputs::<7>(x, layers),
        adapters => unreachable!("{adapters} adapters do not lie side by side"),
    }
}

/// `N`: x, and A and B of each adapter.
fn with_inputs<const N: usize>(x: Tensor<2>, layers: Vec<LoraLayer>) -> Tensor<2> {
    let Layer { layout, arithmetic, .. } = layers[0].layer;
    let arithmetic = arithmetic.in_region();
    let (dtype, inputs) = (arithmetic.dtype, x.dims()[1]);
    let places = places(layers.iter().map(|layer| layout.outputs(layer.layer.weight.dims())));
    let (mut weights, mut biases, mut adapted, mut adapters) = (vec![], vec![], vec![], vec![]);
    for (LoraLayer { layer, low_rank }, place) in layers.into_iter().zip(&places) {
        weights.push(layer.weight.outside().kept(dtype));
        biases.extend(layer.bias.map(|bias| bias.outside().narrow(dtype)));
        adapted.extend(low_rank.is_some().then(|| place.clone()));
        adapters.extend(low_rank);
    }
    let products = low_ranks(&adapters, inputs, adapted);
    let (a, b): (Vec<_>, Vec<_>) = adapters.into_iter().map(|low| (low.a, low.b)).unzip();
    let (stored, casts): (Vec<_>, Vec<_>) = a.into_iter().chain(b).map(|w| (w.stored, w.cast)).unzip();
    let inputs = std::iter::once(x).chain(stored).map(Tensor::into_dispatch).collect::<Vec<_>>();
    let inputs: [DispatchTensor; N] = inputs.try_into().expect("x, every A and every B");
    custom_adding(OperatorName::Linear, inputs, |inputs, _| {
        let mut inputs = inputs.into_iter().map(Tensor::<2>::from_dispatch);
        let x = inputs.next().expect("x");
        let x_dtype = x.dtype();
        let x = rounded(x, dtype);
        let mut types = Vec::new();
        let narrow = |(stored, cast): (Tensor<2>, _)| {
            types.push(stored.dtype());
            cube(Weight::new(stored, cast).narrow(dtype))
        };
        let mut a: Vec<CubeTensor> = inputs.zip(casts).map(narrow).collect();
        let b = a.split_off(a.len() / 2);
        let types = [x_dtype, types[0], types[b.len()]];
        let low = products.down(Of::A, &cube(x.clone()), &a);
        let narrowed = weights.iter().map(|weight| weight.clone().narrow(dtype));
        let y = forward(&x, narrowed, biases, &places, layout, arithmetic);
        let y = uncube(products.up(Of::B, cube(y), &low, &b));
        let kept = Kept { x: cube(x), low, weights, a, b, products, places, layout, arithmetic };
        (y, move |g: Tensor<2>, wanted, earlier: &mut Earlier<'_>| {
            kept.backward(rounded(g, dtype), wanted, types, earlier)
        })
    })
}

/// The products of adapters whose results have these places.
fn low_ranks(adapters: &[LowRank], inputs: usize, places: Vec<Range<usize>>) -> LowRanks {
    let draws: Option<Vec<_>> = adapters.iter().map(|low| Some(low.dropout?.draws())).collect();
    let masks = draws.map(|draws| {
        let (_, threshold, kept) = draws[0];
        Masks { keys: draws.into_iter().map(|(key, ..)| key).collect(), threshold, kept: kept as f32 }
    });
    let first = &adapters[0];
    LowRanks { rank: first.a.dims()[0], inputs, places, masks, scale: first.scale as f32 }
}

/// What one call keeps for backward, in the compute type.
struct Kept {
    x: CubeTensor,
    /// s x̃Aᵀ of all adapters.
    low: CubeTensor,
    /// In the compute type, or packed.
    weights: Vec<Weight>,
    a: Vec<CubeTensor>,
    b: Vec<CubeTensor>,
    products: LowRanks,
    places: Vec<Range<usize>>,
    layout: WeightLayout,
    arithmetic: Arithmetic,
}

impl Kept {
    /// dx, every dA and every dB in these types.
    fn backward<const N: usize>(
        self,
        g: Tensor<2>,
        wanted: [bool; N],
        [x_dtype, a_dtype, b_dtype]: [DType; 3],
        earlier: &mut Earlier<'_>,
    ) -> InputGradients<N> {
        let Self { x, low, weights, a, b, products, places, layout, arithmetic } = self;
        let (adapters, dtype) = (a.len(), arithmetic.dtype);
        let (want_a, want_b) = wanted[1..].split_at(adapters);
        let of_all = |wanted: &[bool], gradients: &dyn Fn() -> Vec<CubeTensor>| -> Vec<Option<CubeTensor>> {
            match wanted.contains(&true) {
                true => gradients().into_iter().map(Some).collect(),
                false => vec![None; adapters],
            }
        };
        let dy = cube(g.clone());
        let dlow = products.down(Of::B, &dy, &b);
        let db = of_all(want_b, &|| products.gradient(Of::B, &dy, &low, b_dtype));
        let da = of_all(want_a, &|| products.gradient(Of::A, &x, &dlow, a_dtype));
        drop((x, low, dy));
        let dx = wanted[0].then(|| {
            // Of layers that read the same x.
            let earlier = (x_dtype == dtype).then(|| earlier(0)).flatten().map(Tensor::from_dispatch);
            let weights = weights.into_iter().map(|weight| weight.narrow(dtype));
            let dx = input_gradient(&g, weights, &places, earlier, layout, arithmetic);
            rounded(uncube::<2>(products.up(Of::A, cube(dx), &dlow, &a)), x_dtype).into_dispatch()
        });
        let of_matrices = da.into_iter().chain(db).zip(&wanted[1..]);
        let of_matrices = of_matrices.map(|(gradient, wanted)| {
            gradient.filter(|_| *wanted).map(|gradient| uncube::<2>(gradient).into_dispatch())
        });
        let gradients: Vec<_> = std::iter::once(dx).chain(of_matrices).collect();
        gradients.try_into().unwrap_or_else(|_| unreachable!("one for each input"))
    }
}
