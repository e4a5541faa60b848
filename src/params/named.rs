//! A network's parameters and gradients by name: the path of a parameter in its module, which for the
//! language models is its name in a file of weights.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Gradients, Tensor, TensorData};

use crate::optim::GradientSet;

/// Values in f64, row-major.
pub type Named = Vec<(String, Vec<f64>)>;

/// Every parameter.
pub fn parameters<M: Module>(module: &M) -> Named {
    collect(module, Of::Parameters)
}

/// The gradient of every parameter that has one.
pub fn gradients<M: Module>(module: &M, gradients: &Gradients) -> Named {
    collect(module, Of::Backward(gradients))
}

/// As [`gradients`], summed over micro-batches.
pub fn sums<M: Module>(module: &M, gradients: &GradientSet) -> Named {
    collect(module, Of::Sums(gradients))
}

/// What is collected of each parameter.
enum Of<'a> {
    Parameters,
    Backward(&'a Gradients),
    Sums(&'a GradientSet),
}

/// The elements in f64.
pub fn wide(data: TensorData) -> Vec<f64> {
    data.convert_dtype(DType::F64).try_into_vec().expect("data of the type that they were converted to")
}

fn collect<M: Module>(module: &M, of: Of<'_>) -> Named {
    let mut collector = Collector { path: Vec::new(), of, found: Vec::new() };
    module.visit(&mut collector);
    collector.found
}

struct Collector<'a> {
    path: Vec<String>,
    of: Of<'a>,
    found: Named,
}

impl ModuleVisitor for Collector<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = match self.of {
            Of::Parameters => Some(param.val().inner()),
            Of::Backward(gradients) => param.val().grad(gradients),
            Of::Sums(gradients) => gradients.get(param.id),
        };
        if let Some(tensor) = tensor {
            self.found.push((self.path.join("."), wide(tensor.into_data())));
        }
    }
}
