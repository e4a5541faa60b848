//! [`ParameterStore`]: what a step asks of parameters, wherever they are.

use burn::tensor::{Tensor, TensorData};

use crate::optim::{StepSize, Visit};
use crate::params::named::Named;

/// Some of a network's parameters, with their gradients and their optimizer's state.
pub trait ParameterStore {
    /// Makes the states that the device keeps, so that the first step has them from its beginning.
    fn make_states(&mut self);

    /// Σ g² over the gradients since the last update, [1] in fp32; `None` where there are none.
    fn squares(&self) -> Option<Tensor<1>>;

    /// Updates every parameter that has a gradient, or begins to, and forgets the gradients.
    fn update(&mut self, size: &StepSize);

    /// Waits for updates that have begun.
    fn finish(&mut self) {}

    /// What is computed from now on comes after all copies issued so far: a time taken then has them in.
    fn settle(&mut self) {}

    /// A parameter as it is stored, by its name; `None` where it is in another store.
    fn value(&mut self, name: &str) -> Option<TensorData>;

    /// All that the optimizer keeps of these parameters between steps.
    fn visit_states(&mut self, visit: &mut Visit);

    /// The gradients since the last update, by name.
    fn gradients(&mut self) -> Named;
}
