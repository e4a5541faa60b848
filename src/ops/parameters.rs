//! A module's parameters one by one, whatever their rank: the rank of a Burn tensor is a mark on its type alone.

use std::collections::HashMap;

use burn::backend::DispatchTensor;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;

/// A tensor of any rank as a vector.
pub fn flat(tensor: DispatchTensor) -> Tensor<1> {
    let tensor = Tensor::<1>::from_dispatch(tensor);
    let elements = tensor.shape().num_elements();
    tensor.reshape([elements])
}

/// Calls `see` with the value of each parameter, in the order of the module.
pub fn each_parameter<M: Module>(module: &M, see: impl FnMut(ParamId, Tensor<1>)) {
    struct Visitor<F>(F);
    impl<F: FnMut(ParamId, Tensor<1>)> ModuleVisitor for Visitor<F> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            (self.0)(param.id, Tensor::from_dispatch(param.val().into_dispatch()));
        }
    }
    module.visit(&mut Visitor(see));
}

/// The module with `update` of each parameter that has an item: from its value, flat and outside of autodiff, and the
/// item. Frozen parameters stay frozen.
pub fn update_each<M: Module, T>(
    module: M,
    items: HashMap<ParamId, T>,
    update: impl FnMut(ParamId, Tensor<1>, T) -> Tensor<1>,
) -> M {
    struct Mapper<T, F>(HashMap<ParamId, T>, F);
    impl<T, F: FnMut(ParamId, Tensor<1>, T) -> Tensor<1>> ModuleMapper for Mapper<T, F> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let (id, tensor, mapper) = param.consume();
            let Some(item) = self.0.remove(&id) else {
                return Param::from_mapped_value(id, tensor, mapper);
            };
            let (shape, trained) = (tensor.shape(), tensor.is_require_grad());
            let updated = (self.1)(id, flat(tensor.inner().into_dispatch()), item).reshape(shape);
            Param::from_mapped_value(id, Tensor::from_inner(updated).set_require_grad(trained), mapper)
        }
    }
    module.map(&mut Mapper(items, update))
}
