//! [`autocast`]: regions of a program in which linear layers and attention multiply in a given type,
//! whatever their weights are stored in (Micikevicius et al. 2018, "Mixed Precision Training").
//!
//! Operators ask for the region where they choose their type, in forward; their backward keeps that
//! choice wherever it runs. Normalisations, softmax and the loss compute in fp32 in every region.
//!
//! ```text
//! let _half = autocast(Some(DType::F16));       linear layers and attention in fp16
//! {
//!     let _full = autocast(None);               here in the type their weights are stored in
//! }
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;

use burn::backend::DispatchTensor;
use burn::module::{Module, Param, ParamId};
use burn::tensor::{DType, Tensor};

use crate::ops::backend::{cube, on_cuda, uncube};
use crate::ops::dense::Weight;
use crate::ops::kernels::elementwise::cast_all;
use crate::ops::name::OperatorName;
use crate::ops::parameters::each_parameter;
use crate::ops::rounded;

/// A weight in a type.
type Cast = (ParamId, DType);

thread_local! {
    static REGION: Cell<Option<DType>> = const { Cell::new(None) };
    static CASTS: RefCell<Option<HashMap<Cast, DispatchTensor>>> = const { RefCell::new(None) };
    /// Casts that were used while casts were kept: the next ones that are kept begin with them.
    static USED: RefCell<HashSet<Cast>> = RefCell::default();
}

/// A region of this thread. It lasts until this is dropped; then the region around it is in force again.
#[must_use = "a region ends when it is dropped"]
pub struct Region {
    outer: Option<DType>,
    /// A region belongs to the thread that entered it.
    thread: PhantomData<*const ()>,
}

/// Enters a region of this type, or with `None` one in which autocast is off.
pub fn autocast(dtype: Option<DType>) -> Region {
    Region { outer: REGION.replace(dtype), thread: PhantomData }
}

impl Drop for Region {
    fn drop(&mut self) {
        REGION.set(self.outer);
    }
}

/// The type of the region around the call; `None` outside of every region and where autocast is off.
pub fn region() -> Option<DType> {
    REGION.get()
}

/// Keeps every cast of a weight until this is dropped, for one step. Drop it before the weights change.
#[must_use = "casts are kept until this is dropped"]
pub struct KeptCasts {
    thread: PhantomData<*const ()>,
}

/// Keeps casts from here on: a weight is cast once in a region's type, however often it is used. On CUDA those that
/// steps before this one used are made at once.
pub fn keep_casts<M: Module>(module: &M) -> KeptCasts {
    let mut casts = HashMap::new();
    let _scope = OperatorName::WeightCasts.scope();
    USED.with_borrow(|used| {
        for dtype in used.iter().map(|(_, dtype)| *dtype).collect::<HashSet<_>>() {
            let (mut ids, mut stored) = (Vec::new(), Vec::new());
            each_parameter(module, |id, value| {
                let value = value.inner();
                if used.contains(&(id, dtype)) && on_cuda(&value) {
                    ids.push(id);
                    stored.push(cube(value));
                }
            });
            let made = cast_all(&stored, dtype).into_iter().map(|cast| uncube::<1>(cast).into_dispatch());
            casts.extend(ids.into_iter().map(|id| (id, dtype)).zip(made));
        }
    });
    CASTS.set(Some(casts));
    KeptCasts { thread: PhantomData }
}

impl Drop for KeptCasts {
    fn drop(&mut self) {
        CASTS.set(None);
    }
}

/// A weight as linear layers take it: with its kept cast where casts are kept.
pub fn weight<const D: usize>(parameter: &Param<Tensor<D>>) -> Weight<D> {
    let stored = parameter.val();
    let dtype = region().filter(|dtype| *dtype != stored.dtype());
    let cast = dtype.and_then(|dtype| {
        CASTS.with_borrow_mut(|casts| {
            let which = (parameter.id, dtype);
            let cast = || {
                let _scope = OperatorName::WeightCasts.scope();
                USED.with_borrow_mut(|used| used.insert(which));
                rounded(stored.clone().inner(), dtype).into_dispatch()
            };
            Some(Tensor::from_dispatch(casts.as_mut()?.entry(which).or_insert_with(cast).clone()))
        })
    });
    Weight::new(stored, cast)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::checkpoint::checkpoint;
    use crate::ops::dense::{Arithmetic, WeightLayout, dense};
    use crate::ops::narrow;
    use crate::ops::product::Fp32Math;
    use crate::ops::testing::random;

    const FP32: Arithmetic = Arithmetic { dtype: DType::F32, math: Fp32Math::Exact };

    fn product(x: &Tensor<2>, weight: impl Into<Weight>) -> Tensor<2> {
        dense(x.clone(), weight, None, WeightLayout::InOut, FP32)
    }

    fn list(tensor: Tensor<2>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    #[test]
    fn regions_nest_and_can_be_off() {
        let (x, w) = (random::<2>([3, 8], 1), random::<2>([8, 5], 2));
        let exact = list(product(&x, w.clone()));
        let rounded = |dtype: DType| {
            let [x, w] = [&x, &w].map(|t| narrow(narrow(t.clone(), dtype), DType::F32));
            list(narrow(product(&x, w), dtype))
        };
        let expect = |dtype: DType, values: &[f64]| {
            let y = product(&x, w.clone());
            assert_eq!((y.dtype(), list(y).as_slice()), (dtype, values));
        };
        let (bf16, f16) = (rounded(DType::BF16), rounded(DType::F16));
        assert_ne!(bf16, exact);
        {
            let _outer = autocast(Some(DType::BF16));
            expect(DType::BF16, &bf16);
            {
                let _off = autocast(None);
                expect(DType::F32, &exact);
                let _inner = autocast(Some(DType::F16));
                expect(DType::F16, &f16);
            }
            expect(DType::BF16, &bf16);
        }
        expect(DType::F32, &exact);
    }

    /// Where autocast is off, what comes out of a region in few bits is widened.
    #[test]
    fn an_operator_outside_takes_the_result_of_one_inside() {
        let (x, w) = (random::<2>([3, 8], 1), random::<2>([8, 8], 2));
        let inside = {
            let _region = autocast(Some(DType::F16));
            product(&x, w.clone())
        };
        let y = product(&inside, w.clone());
        assert_eq!(y.dtype(), DType::F32);
        assert_eq!(list(y), list(product(&narrow(inside, DType::F32), w)));
    }

    #[test]
    fn backward_multiplies_as_forward_did_wherever_it_runs() {
        let gradient = |inside: bool| {
            let (x, w) = (random::<2>([3, 8], 1).require_grad(), random::<2>([8, 5], 2));
            let region = autocast(Some(DType::BF16));
            let y = product(&x, w);
            let region = inside.then_some(region);
            let mut gradients = narrow(y, DType::F32).square().sum().backward();
            drop(region);
            list(x.grad_remove(&mut gradients).unwrap())
        };
        assert_eq!(gradient(true), gradient(false));
    }

    /// Computed again in fp32 the gradient of the square would be that of a product that was not rounded.
    #[test]
    fn what_is_computed_again_is_computed_in_the_region_of_forward() {
        let (x, w) = (random::<2>([3, 8], 1), random::<2>([8, 5], 2).inner());
        let square = move |x: Tensor<2>| narrow(product(&x, w.clone()), DType::F32).square();
        let gradient = |checkpointed: bool| {
            let x = x.clone().require_grad();
            let region = autocast(Some(DType::BF16));
            let y = match (checkpointed, square.clone()) {
                (false, square) => square(x.clone()),
                (true, again) => checkpoint(x.clone(), square.clone(), move |x| (again(x), ()), |(), _| ()),
            };
            drop(region);
            list(x.grad_remove(&mut y.sum().backward()).unwrap())
        };
        assert_eq!(gradient(true), gradient(false));
    }

    #[derive(Module, Debug)]
    struct One {
        weight: Param<Tensor<2>>,
    }

    #[test]
    fn a_kept_cast_is_made_once_and_its_gradient_is_the_weights() {
        let w = random::<2>([8, 5], 2).require_grad();
        let parameter = Param::initialized(ParamId::new(), w.clone());
        let x = random::<2>([3, 8], 1);
        let _region = autocast(Some(DType::F16));
        assert!(weight(&parameter).cast.is_none(), "outside of a step nothing is kept");
        let kept = keep_casts(&One { weight: parameter.clone() });
        let (first, second) = (product(&x, weight(&parameter)), product(&x, weight(&parameter)));
        assert_eq!(CASTS.with_borrow(|casts| casts.as_ref().map(HashMap::len)), Some(1));
        let plain = product(&x, w.clone());
        assert_eq!(list(first.clone()), list(plain.clone()));
        let gradient = |y: Tensor<2>| w.grad(&narrow(y, DType::F32).sum().backward()).unwrap();
        let (kept_cast, own_cast) = (gradient(first + second), gradient(plain));
        assert_eq!(kept_cast.dtype(), DType::F32);
        assert_eq!(list(kept_cast), list(own_cast * 2.0));
        drop(kept);
        assert!(weight(&parameter).cast.is_none());
    }
}
