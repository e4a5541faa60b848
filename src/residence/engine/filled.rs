//! [`Engine::filled`]: an engine whose blocks are made one by one on the device.

use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Device};

use super::{Engine, Pass, Slots};
use crate::device::{Buffers, Side, StoreSize};
use crate::residence::activations::Activations;
use crate::residence::config::{Memory, Placement};
use crate::residence::layout::Layout;
use crate::residence::names::BlockNames;
use crate::residence::strategy::Movement;

/// Values of parameters, flat and outside of autodiff, each with its first element in the block's buffer.
type Values = Vec<(usize, DispatchTensor)>;

impl Engine {
    /// `values` makes those of a block, which then moves to the host or to its own slot.
    ///
    /// # Panics
    /// When the host or the device does not have enough memory.
    pub fn filled(
        (placement, movement): (Placement, Arc<dyn Movement>),
        (names, layouts): (BlockNames, Vec<Arc<Layout>>),
        (dtype, device): (DType, Device),
        mut values: impl FnMut(usize) -> Values,
    ) -> Self {
        let (offload, count) = (placement.offload, layouts.len());
        let most =
            |elements: fn(&Layout) -> usize| layouts.iter().map(|layout| elements(layout)).max().unwrap_or(0);
        let trainable = most(Layout::trainable_elements);
        let resident = offload.resident_blocks.places(count);
        let keeps = offload.keeps_gradients(placement.accumulates, placement.updates);
        let mut slots = Slots::new(&resident, movement.buffers(), keeps, trainable > 0);
        let buffers = layouts.iter().zip(&resident);
        let size = StoreSize {
            buffers: buffers.map(|(layout, stays)| placement.buffers(*stays, layout.trainable > 0)).collect(),
            elements: most(|layout| layout.elements),
            trainable,
            dtype,
            slots: slots.weights(),
            gradient_slots: slots.gradients(),
        };
        let mut store = None;
        for i in 0..count {
            let values = values(i);
            let store = store.get_or_insert_with(|| {
                placement.device.block_store(size.clone()).unwrap_or_else(|e| panic!("{e}"))
            });
            let slot = slots.take(i, i, Pass::Forward);
            store.write(slot, values);
            if size.buffers[i] != Buffers::None {
                store.send(slot, Side::Weights, i, size.elements);
                slots.empty(slot);
            }
        }
        let store = store.expect("a network has a block");
        let waits = |block: &usize| placement.recomputes || !resident[*block];
        let activations = (offload.activations == Memory::Host)
            .then(|| Activations::new(placement, movement.clone(), (0..count).filter(waits).collect()));
        let engine = Self::new(store, layouts, (size, slots), movement, device, names);
        Self { activations, ..engine }
    }
}
