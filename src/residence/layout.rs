//! [`Layout`]: where each parameter of a block lies in the block's flat buffer.

use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;

use crate::params::table::{Entry, id};

/// Parameters begin at multiples of this many bytes, as the device's own allocations do.
const ALIGNMENT: usize = 512;

/// One parameter of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Within the block: `self_attn.q_proj.weight`.
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

/// The parameters of a block in the order of its table, trainable ones before frozen ones: gradients and updates
/// are a buffer's beginning. Every block has the same.
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
    /// Of the entries whose names begin with a block's: `model.layers.0.`
    pub fn of(entries: &[Entry], block: &str) -> Self {
        let (mut parts, mut trainable, mut elements) = (Vec::new(), 0, 0usize);
        for is_trainable in [true, false] {
            for entry in entries.iter().filter(|entry| entry.trainable == is_trainable) {
                let Some(name) = entry.name.strip_prefix(block) else { continue };
                let first = elements.next_multiple_of(ALIGNMENT / entry.dtype.size());
                let part = Part { name: name.to_string(), shape: entry.shape.clone(), first };
                elements = first + part.elements();
                parts.push(part);
            }
            trainable = if is_trainable { parts.len() } else { trainable };
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

    /// The parameters of a block whose names begin with `prefix`, flat and outside of autodiff, each with its part.
    pub fn values<M: Module>(&self, block: &M, prefix: &str) -> Vec<(&Part, Tensor<1>)> {
        let parts = self.parts.iter().map(|part| (id(&format!("{prefix}{}", part.name)), part)).collect();
        let mut visitor = Values { parts, found: Vec::new() };
        block.visit(&mut visitor);
        visitor.found
    }
}

struct Values<'a> {
    parts: HashMap<ParamId, &'a Part>,
    found: Vec<(&'a Part, Tensor<1>)>,
}

impl ModuleVisitor for Values<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let part = self.parts[&param.id];
        self.found.push((part, param.val().inner().reshape([part.elements()])));
    }
}
