//! [`Layout`]: the place of each parameter of a block in the block's flat buffer.

use std::collections::HashMap;

use burn::module::{Module, ParamId};
use burn::tensor::Tensor;

use super::names::BlockNames;
use crate::ops::parameters::each_parameter;
use crate::params::table::{Entry, Group, id};

/// Parameters begin at multiples of this many bytes, as the device's own allocations do.
const ALIGNMENT: usize = 512;

/// The id of the optimizer's state of a block whose parameters are updated together.
pub fn block_id(block: usize) -> ParamId {
    id(&format!("block {block}"))
}

/// One parameter of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name within the block: `self_attn.q_proj.weight`.
    pub name: String,
    pub id: ParamId,
    pub shape: Vec<usize>,
    /// Its first element in the buffer.
    pub first: usize,
}

impl Part {
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The parameters of a block in the order of the table, but trainable ones before frozen ones, so that gradients and updates
/// take the beginning of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub parts: Vec<Part>,
    /// Number of trainable parts.
    pub trainable: usize,
    /// Elements of the whole buffer; gaps between parameters are zero.
    pub elements: usize,
    /// The numbers of the parts in the order of the table.
    pub made: Vec<usize>,
}

impl Layout {
    /// The layout of a block's entries, whose names begin with the block's: `model.layers.0.` One that stands there and that
    /// several blocks read is none of its.
    pub fn of(entries: &[Entry], block: &str) -> Self {
        let own = entries.iter().filter(|entry| matches!(entry.group, Group::Block(_) | Group::Adapter));
        Self::over(own.filter_map(|entry| Some((entry, entry.name.strip_prefix(block)?))))
    }

    /// The layout of these entries, each with its name within the block.
    pub fn over<'e>(entries: impl Iterator<Item = (&'e Entry, &'e str)>) -> Self {
        let mut own: Vec<_> = entries.enumerate().collect();
        own.sort_by_key(|(_, (entry, _))| !entry.trainable);
        let trainable = own.iter().filter(|(_, (entry, _))| entry.trainable).count();
        let (mut parts, mut elements, mut made) = (Vec::new(), 0usize, vec![0; own.len()]);
        for (place, (entry, name)) in own {
            let first = elements.next_multiple_of(ALIGNMENT / entry.dtype.size());
            let (name, id, shape) = (name.to_string(), id(&entry.name), entry.stored_shape());
            let part = Part { name, id, shape, first };
            elements = first + part.elements();
            made[place] = parts.len();
            parts.push(part);
        }
        Self { parts, trainable, elements, made }
    }

    /// Elements from the buffer's beginning to the end of its last trainable parameter.
    pub fn trainable_elements(&self) -> usize {
        self.parts[..self.trainable].last().map_or(0, |part| part.first + part.elements())
    }

    /// Whether some of the parameters are trained and the others are not.
    pub fn is_frozen_in_part(&self) -> bool {
        (1..self.parts.len()).contains(&self.trainable)
    }

    /// The block and the number of the part of a parameter; `None` of one that is in no block. `layout`: of a block, if there
    /// is one.
    pub fn place<'l>(
        name: &str,
        names: &BlockNames,
        layout: impl FnOnce(usize) -> Option<&'l Self>,
    ) -> Option<(usize, usize)> {
        let (block, part) = names.find(name)?;
        Some((block, layout(block)?.find(part)?))
    }

    /// The number of the part of this name.
    fn find(&self, name: &str) -> Option<usize> {
        self.parts.iter().position(|part| part.name == name)
    }

    /// The parameters of a block, flat and outside of autodiff, each with its part.
    pub fn values<M: Module>(&self, block: &M) -> Vec<(&Part, Tensor<1>)> {
        let parts: HashMap<ParamId, &Part> = self.parts.iter().map(|part| (part.id, part)).collect();
        let mut found = Vec::new();
        each_parameter(block, |id, value| {
            let part = parts[&id];
            found.push((part, value.inner().reshape([part.elements()])));
        });
        found
    }
}
