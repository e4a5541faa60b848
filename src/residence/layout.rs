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

/// The parameters of a block in the order in which its module is visited. Every block has the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub parts: Vec<Part>,
    /// Of the whole buffer; what lies between the parameters is zero.
    pub elements: usize,
    by_name: HashMap<String, usize>,
}

impl Layout {
    pub fn of<M: Module>(block: &M, dtype: DType) -> Self {
        let step = ALIGNMENT / dtype.size();
        let (mut parts, mut elements) = (Vec::new(), 0usize);
        visit(block, &mut |name, shape, _| {
            let part = Part { name, shape, first: elements.next_multiple_of(step) };
            elements = part.first + part.elements();
            parts.push(part);
        });
        let by_name = parts.iter().enumerate().map(|(i, part)| (part.name.clone(), i)).collect();
        Self { parts, elements, by_name }
    }

    /// The number of the part of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// A block's parameters, flat and outside of autodiff, in the layout's order.
    ///
    /// # Panics
    /// When the block has another layout.
    pub fn values<M: Module>(&self, block: &M) -> Vec<Tensor<1>> {
        let (mut parts, mut found) = (self.parts.iter(), Vec::new());
        visit(block, &mut |name, shape, values| {
            let same = parts.next().is_some_and(|part| part.name == name && part.shape == shape);
            assert!(same, "blocks differ in {name}");
            found.push(values());
        });
        found
    }
}

/// Gets the path, shape and values of a parameter.
type Each<'a> = dyn FnMut(String, Vec<usize>, &dyn Fn() -> Tensor<1>) + 'a;

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
        let shape = param.val().dims();
        let values = || param.val().inner().reshape([shape.iter().product::<usize>()]);
        (self.each)(self.path.join("."), shape.to_vec(), &values);
    }
}
