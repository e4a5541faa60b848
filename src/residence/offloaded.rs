//! [`Offloaded`]: the blocks of a network that live on the host, as the network uses them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::backend::DispatchTensor;
use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};

use super::activations::Activations;
use super::config::{Memory, Offload, Placement};
use super::engine::{Engine, GRADIENT_SLOTS, Pass};
use super::layout::Layout;
use crate::device::{Side, StoreSize};
use crate::params::source::Source;
use crate::params::table::{Table, Tuning};

/// A block's computation: its number, the source of its parameters, and its input.
pub type Compute = Arc<dyn Fn(usize, &Source, Tensor<2>) -> Tensor<2> + Send + Sync>;

/// Blocks of equal layout on the host, in their order.
#[derive(Clone)]
pub struct Offloaded(Arc<Shared>);

struct Shared {
    engine: Mutex<Engine>,
    offload: Offload,
    count: usize,
    /// What a parameter's name begins with, before the block's number: `model.layers`.
    prefix: &'static str,
    device: Device,
    dtype: DType,
    tuning: Tuning,
}

impl fmt::Debug for Offloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offloaded({:?} x {})", self.0.offload, self.0.count)
    }
}

impl Offloaded {
    /// Takes `count` blocks one by one, each made by `make` on the device, to the host; `None` where blocks stay
    /// on the device. `table`: the network's parameters.
    ///
    /// # Panics
    /// When the host or the device has not enough memory.
    pub fn new<M: Module>(
        placement: Placement,
        prefix: &'static str,
        count: usize,
        source: &Source,
        table: &Table,
        make: impl Fn(usize) -> M,
    ) -> Option<Self> {
        let Placement { offload, device, .. } = placement;
        let movement = offload.strategy.movement()?;
        let name = |i: usize| format!("{prefix}.{i}.");
        let layouts: Vec<Layout> = (0..count).map(|i| Layout::of(&table.entries, &name(i))).collect();
        let most = |elements: fn(&Layout) -> usize| layouts.iter().map(elements).max().unwrap_or(0);
        let (dtype, trainable) = (source.dtype(), most(Layout::trainable_elements));
        let size = StoreSize {
            blocks: count,
            elements: most(|layout| layout.elements),
            trainable,
            dtype,
            slots: movement.buffers(),
            gradient_slots: if trainable > 0 { GRADIENT_SLOTS } else { 0 },
            gradients: trainable > 0 && placement.offload.separate_gradients(placement.accumulates),
        };
        let mut store = None;
        for (i, layout) in layouts.iter().enumerate() {
            let block = make(i);
            let store =
                store.get_or_insert_with(|| device.block_store(size).unwrap_or_else(|e| panic!("{e}")));
            for (part, values) in layout.values(&block, &name(i)) {
                store.write(0, part.first, values.into_dispatch());
            }
            store.send(0, Side::Weights, i, size.elements);
        }
        let store = store.expect("a network has a block");
        let (device, tuning) = (source.device().clone().inner(), source.tuning().clone());
        let activations = (offload.activations == Memory::Host)
            .then(|| Activations::new(placement, movement.clone(), count));
        let mut engine = Engine::new(store, layouts, size, movement, device.clone(), prefix);
        engine.activations = activations;
        let engine = Mutex::new(engine);
        Some(Self(Arc::new(Shared { engine, offload, count, prefix, device, dtype, tuning })))
    }

    /// [tokens, hidden_size] through all blocks. What backward needs is kept: each block's input.
    pub fn run(&self, x: Tensor<2>, compute: &Compute) -> Tensor<2> {
        let movement = self.engine().movement.clone();
        (0..self.0.count).fold(x, |x, i| movement.forward(self, i, x, compute.clone()))
    }

    /// The same without a backward.
    pub fn infer(
        &self,
        x: Tensor<2>,
        mut compute: impl FnMut(usize, &Source, Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        (0..self.0.count).fold(x.inner(), |x, i| {
            let parameters = self.engine().enter(i, Pass::Forward);
            let y = compute(i, &self.source(i, parameters), x);
            self.engine().leave(i);
            y
        })
    }

    /// A source of these parameters under their full names.
    pub(super) fn source(&self, block: usize, parameters: Vec<DispatchTensor>) -> Source {
        let prefix = format!("{}.{block}.", self.0.prefix);
        let layout = self.engine().layout(block).clone();
        Source::given(&self.0.device, self.0.dtype, &self.0.tuning, move |name| {
            let part = name.strip_prefix(&prefix).and_then(|name| layout.find(name));
            parameters[part.unwrap_or_else(|| panic!("{name} is no parameter of {prefix}"))].clone()
        })
    }

    pub(super) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.0.engine.lock().expect("a block that panicked ends the cell")
    }
}
