//! [`ParameterStore`]: what a step does with parameters, wherever they live.

use burn::tensor::{Tensor, TensorData};

use crate::optim::{StepSize, Visit};
use crate::params::named::Named;

/// Some of a network's parameters, with their gradients and their optimizer's state.
pub trait ParameterStore {
    /// Makes the optimizer's state on the device, so that the first step begins with it.
    fn make_states(&mut self);

    /// Σ g² over the gradients since the last update, [1] in fp32; `None` if there are none.
    fn squares(&self) -> Option<Tensor<1>>;

    /// Updates every parameter that has a gradient, or begins its update, and forgets the gradients.
    fn update(&mut self, size: &StepSize);

    /// Waits for updates that have begun.
    fn finish(&mut self) {}

    /// Computation from now on comes after all copies issued so far, so that a time taken then includes them.
    fn settle(&mut self) {}

    /// A parameter as it is stored, by its name; `None` if it is in another store.
    fn value(&mut self, name: &str) -> Option<TensorData>;

    /// Visits the optimizer's state of these parameters.
    fn visit_states(&mut self, visit: &mut Visit);

    /// The gradients since the last update, by name; none if each rank has only parts of them.
    fn gradients(&mut self) -> Named {
        Named::new()
    }
}
