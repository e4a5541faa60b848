//! A network's parameters and gradients by name.

use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Gradients, Tensor, TensorData};

use super::table::{Table, id};
use crate::optim::GradientSet;

/// Values in f64, row-major.
pub type Named = Vec<(String, Vec<f64>)>;

/// A module's parameter of this name, in the type that it is stored in.
pub fn value<M: Module>(module: &M, name: &str) -> Option<TensorData> {
    let mut find = Find { id: id(name), found: None };
    module.visit(&mut find);
    find.found
}

struct Find {
    id: ParamId,
    found: Option<TensorData>,
}

impl ModuleVisitor for Find {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.id == self.id {
            self.found = Some(param.val().inner().into_data());
        }
    }
}

/// The gradient of every parameter that has one.
pub fn gradients<M: Module>(module: &M, table: &Table, gradients: &Gradients) -> Named {
    collect(module, table, Of::Backward(gradients))
}

/// As [`gradients`], summed over micro-batches.
pub fn sums<M: Module>(module: &M, table: &Table, gradients: &GradientSet) -> Named {
    collect(module, table, Of::Sums(gradients))
}

/// What is collected of each parameter.
enum Of<'a> {
    Backward(&'a Gradients),
    Sums(&'a GradientSet),
}

/// The elements in f64.
pub fn wide(data: TensorData) -> Vec<f64> {
    data.convert_dtype(DType::F64).try_into_vec().expect("data of the type that they were converted to")
}

fn collect<M: Module>(module: &M, table: &Table, of: Of<'_>) -> Named {
    let mut collector = Collector { names: table.names(), of, found: Vec::new() };
    module.visit(&mut collector);
    collector.found
}

struct Collector<'a> {
    names: HashMap<ParamId, &'a str>,
    of: Of<'a>,
    found: Named,
}

impl ModuleVisitor for Collector<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = match self.of {
            Of::Backward(gradients) => param.val().grad(gradients),
            Of::Sums(gradients) => gradients.get(param.id),
        };
        if let Some(tensor) = tensor {
            let name = self.names[&param.id].to_string();
            self.found.push((name, wide(tensor.into_data())));
        }
    }
}
