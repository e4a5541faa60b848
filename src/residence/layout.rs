//! [`Layout`]: where each parameter of a block lies in the block's flat buffer.

use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor};

/// Parameters begin at multiples of this many bytes, as the device's own allocations do.
const ALIGNMENT: usize = 512;

/// One parameter of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its path in the block's module: `self_attn.q_proj.weight`.
    pub name: String,
    pub shape: Vec<usize>,
    /// Its first element in the buffer.
    pub first: usize,
}

impl Part {
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The parameters of a block in the order in which its module is visited, trainable ones before frozen ones:
/// gradients and updates are a buffer's beginning. Every block has the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub parts: Vec<Part>,
    /// How many of the parts are trainable.
    pub trainable: usize,
    /// Of the whole buffer; what lies between the parameters is zero.
    pub elements: usize,
    by_name: HashMap<String, usize>,
}

impl Layout {
    pub fn of<M: Module>(block: &M, dtype: DType) -> Self {
        let step = ALIGNMENT / dtype.size();
        let mut found = [Vec::new(), Vec::new()];
        visit(block, &mut |name, shape, is_trainable, _| {
            found[usize::from(!is_trainable)].push(Part { name, shape, first: 0 });
        });
        let trainable = found[0].len();
        let (mut parts, mut elements) = (found.concat(), 0usize);
        for part in &mut parts {
            part.first = elements.next_multiple_of(step);
            elements = part.first + part.elements();
        }
        let by_name = parts.iter().enumerate().map(|(i, part)| (part.name.clone(), i)).collect();
        Self { parts, trainable, elements, by_name }
    }

    /// Elements from the buffer's beginning to the end of its last trainable parameter.
    pub fn trainable_elements(&self) -> usize {
        self.parts[..self.trainable].last().map_or(0, |part| part.first + part.elements())
    }

    /// The number of the part of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// A block's parameters, flat and outside of autodiff, each with the number of its part.
    ///
    /// # Panics
    /// When the block has another layout.
    pub fn values<M: Module>(&self, block: &M) -> Vec<(usize, Tensor<1>)> {
        let mut found = Vec::new();
        visit(block, &mut |name, shape, is_trainable, values| {
            let number = self.find(&name).filter(|number| {
                self.parts[*number].shape == shape && (*number < self.trainable) == is_trainable
            });
            found.push((number.unwrap_or_else(|| panic!("blocks differ in {name}")), values()));
        });
        assert_eq!(found.len(), self.parts.len(), "blocks differ in how many parameters they have");
        found
    }
}

/// Gets the path and shape of a parameter, whether it is trainable, and its values.
type Each<'a> = dyn FnMut(String, Vec<usize>, bool, &dyn Fn() -> Tensor<1>) + 'a;

/// Calls `each` with every parameter.
fn visit<'a, M: Module>(block: &M, each: &'a mut Each<'a>) {
    block.visit(&mut Visitor { path: Vec::new(), each });
}

struct Visitor<'a> {
    path: Vec<String>,
    each: &'a mut Each<'a>,
}

impl ModuleVisitor for Visitor<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let shape = tensor.dims();
        let values = || tensor.clone().inner().reshape([shape.iter().product::<usize>()]);
        (self.each)(self.path.join("."), shape.to_vec(), tensor.is_require_grad(), &values);
    }
}
