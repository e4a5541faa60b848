//! A network's parameters and gradients by name.

use burn::module::Module;
use burn::tensor::{DType, TensorData};

use super::table::{Table, id};
use crate::ops::parameters::each_parameter;
use crate::optim::GradientSet;

/// Values in f64, row-major.
pub type Named = Vec<(String, Vec<f64>)>;

/// A module's parameter of this name, in the type that it is stored in.
pub fn value<M: Module>(module: &M, name: &str) -> Option<TensorData> {
    let (wanted, mut found) = (id(name), None);
    each_parameter(module, |id, parameter| {
        if id == wanted {
            found = Some(parameter.inner().into_data());
        }
    });
    found
}

/// The gradient of every parameter that has one, summed over micro-batches.
pub fn gradients<M: Module>(module: &M, table: &Table, gradients: &GradientSet) -> Named {
    let (names, mut found) = (table.names(), Named::new());
    each_parameter(module, |id, _| {
        if let Some(gradient) = gradients.get(id) {
            found.push((names[&id].to_string(), wide(gradient.into_data())));
        }
    });
    found
}

/// The elements in f64.
pub fn wide(data: TensorData) -> Vec<f64> {
    data.convert_dtype(DType::F64).try_into_vec().expect("data of the type that they were converted to")
}
