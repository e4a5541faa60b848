//! [`Blocks`]: the blocks of a network that live on the host, as the network uses them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::backend::DispatchTensor;
use burn::module::Module;
use burn::tensor::TensorData;
use burn::tensor::{DType, Device, Tensor};

use super::activations::{Activations, Ticket};
use super::config::{Memory, Offload, Placement, Strategy};
use super::engine::{Engine, GRADIENT_SLOTS, Pass};
use super::layout::Layout;
use super::operator::{checkpointed, offloaded};
use crate::device::{Side, StoreSize};
use crate::optim::host::{Work, Worker};
use crate::optim::{Optimizer, StepSize};
use crate::params::named::{Named, wide};
use crate::params::source::Source;

/// A block's computation: its number, the source of its parameters, and its input.
pub type Compute = Arc<dyn Fn(usize, &Source, Tensor<2>) -> Tensor<2> + Send + Sync>;

/// Blocks of equal layout on the host, in their order.
#[derive(Clone)]
pub struct Blocks(Arc<Shared>);

struct Shared {
    engine: Mutex<Engine>,
    /// Of inputs that wait on the host for backward.
    activations: Option<Mutex<Activations>>,
    offload: Offload,
    count: usize,
    /// What a parameter's name begins with, before the block's number: `model.layers`.
    prefix: &'static str,
    device: Device,
    dtype: DType,
}

/// A block's input between forward and backward.
pub(super) enum Input {
    OnDevice(Box<Tensor<2>>),
    OnHost(Ticket),
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blocks({:?} x {})", self.0.offload, self.0.count)
    }
}

impl Blocks {
    /// Takes `count` blocks one by one, each made by `make` on the device, to the host.
    ///
    /// # Panics
    /// When the host or the device has not enough memory.
    pub fn new<M: Module>(
        placement: Placement,
        prefix: &'static str,
        count: usize,
        source: &Source,
        make: impl Fn(usize) -> M,
    ) -> Self {
        let Placement { offload, device, .. } = placement;
        let gradients = offload.separate_gradients(placement.accumulates);
        let (dtype, mut made) = (source.dtype(), None);
        for i in 0..count {
            let block = make(i);
            let (layout, store) = made.get_or_insert_with(|| {
                let layout = Layout::of(&block, dtype);
                let slots = offload.buffers + GRADIENT_SLOTS;
                let size = StoreSize { blocks: count, elements: layout.elements, dtype, slots, gradients };
                let store = device.block_store(size).unwrap_or_else(|e| panic!("{e}"));
                (layout, store)
            });
            for (part, values) in layout.parts.iter().zip(layout.values(&block)) {
                store.write(0, part.first, values.into_dispatch());
            }
            store.send(0, Side::Weights, i, layout.elements);
        }
        let (layout, store) = made.expect("a network has a block");
        let engine = Mutex::new(Engine::new(store, layout, count, dtype, offload, gradients));
        let device = source.device().clone().inner();
        let activations =
            (offload.activations == Memory::Host).then(|| Mutex::new(Activations::new(placement, count)));
        Self(Arc::new(Shared { engine, activations, offload, count, prefix, device, dtype }))
    }

    pub fn count(&self) -> usize {
        self.0.count
    }

    /// [tokens, hidden_size] through all blocks. What backward needs is kept: each block's input.
    pub fn run(&self, x: Tensor<2>, compute: &Compute) -> Tensor<2> {
        (0..self.0.count).fold(x, |x, i| match self.0.offload.strategy {
            Strategy::Checkpointed => checkpointed(self, i, x, compute.clone()),
            _ => offloaded(self, i, x, compute.clone()),
        })
    }

    /// The same without a backward.
    pub fn infer(
        &self,
        x: Tensor<2>,
        mut compute: impl FnMut(usize, &Source, Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        (0..self.0.count).fold(x.inner(), |x, i| {
            let parameters = self.enter(i, Pass::Forward);
            let y = compute(i, &self.source(i, parameters), x);
            self.leave(i);
            y
        })
    }

    /// The gradients on the host, summed over the micro-batches since the last update, by name.
    pub fn gradients(&self) -> Named {
        self.named(Side::Gradients, |engine, block| engine.has_gradients(block))
    }

    /// The weights on the host, by name.
    pub fn parameters(&self) -> Named {
        self.named(Side::Weights, |_, _| true)
    }

    fn named(&self, side: Side, has: impl Fn(&Engine, usize) -> bool) -> Named {
        let mut engine = self.engine();
        let mut found = Named::new();
        for block in (0..self.0.count).filter(|block| has(&engine, *block)).collect::<Vec<_>>() {
            let parts = engine.layout().parts.clone();
            let host = engine.host(side, block);
            for part in parts {
                let size = self.0.dtype.size();
                let bytes = &host[part.first * size..(part.first + part.elements()) * size];
                let data = TensorData::from_bytes_vec(bytes.to_vec(), part.shape.clone(), self.0.dtype);
                let name = format!("{}.{block}.{}", self.0.prefix, part.name);
                found.push((name, wide(data)));
            }
        }
        found
    }

    /// Makes the optimizer's states of all blocks, where the device keeps them.
    pub fn make_states(&self, optimizer: &mut Optimizer) {
        self.engine().make_states(optimizer, &self.0.device);
    }

    /// Hands the updates of all blocks to an optimizer on the host.
    pub fn adopt(&self, worker: &Worker) {
        self.engine().adopt(worker);
    }

    /// The backward that comes is the last of its step: an optimizer on the host begins with each block
    /// as its gradients arrive.
    pub fn update_on_arrival(&self, work: Work) {
        self.engine().update_on_arrival(work);
    }

    /// Waits for the updates on the host.
    pub fn finish_updates(&self) {
        self.engine().finish_updates();
    }

    /// Updates every block, or has begun to, on the host, and begins the next step.
    pub fn update(&self, optimizer: &mut Optimizer, size: &StepSize) {
        self.engine().update(optimizer, size);
    }

    /// Σ g² over all blocks, [1] in fp32, of the gradients since [`want_squares`](Self::want_squares).
    pub fn squares(&self) -> Option<Tensor<1>> {
        self.engine().squares()
    }

    /// Adds up the squares of all gradients that come from now on.
    pub fn want_squares(&self) {
        self.engine().want_squares();
    }

    /// What is computed from now on comes after all copies issued so far: a time taken then has them in.
    pub fn settle(&self) {
        self.engine().settle();
        if let Some(mut activations) = self.activations() {
            activations.settle();
        }
    }

    /// Makes the buffers that inputs of up to `elements` elements wait in, where they wait on the host.
    ///
    /// # Panics
    /// When the host or the device has not enough memory.
    pub fn make_room(&self, elements: usize) {
        if let Some(mut activations) = self.activations() {
            activations.make_room(elements, self.0.dtype);
        }
    }

    /// Forgets the gradients since the last update.
    pub fn discard_gradients(&self) {
        self.engine().discard_gradients();
    }

    /// Refills a slot before its block is computed, from now on: a comparison of values must notice.
    pub fn refill_early(&self) {
        self.engine().refill_early();
    }

    /// A source of these parameters under their full names.
    pub(super) fn source(&self, block: usize, parameters: Vec<DispatchTensor>) -> Source {
        let prefix = format!("{}.{block}.", self.0.prefix);
        let layout = self.engine().layout().clone();
        Source::given(&self.0.device, self.0.dtype, move |name| {
            let part = name.strip_prefix(&prefix).and_then(|name| layout.find(name));
            parameters[part.unwrap_or_else(|| panic!("{name} is no parameter of {prefix}"))].clone()
        })
    }

    pub(super) fn enter(&self, block: usize, pass: Pass) -> Vec<DispatchTensor> {
        self.engine().enter(block, pass)
    }

    pub(super) fn leave(&self, block: usize) {
        self.engine().leave(block);
    }

    pub(super) fn take_gradients(&self, block: usize, gradients: Vec<DispatchTensor>) {
        self.engine().take_gradients(block, gradients);
    }

    /// Keeps a block's input for backward.
    pub(super) fn keep(&self, block: usize, x: Tensor<2>) -> Input {
        match self.activations() {
            None => Input::OnDevice(Box::new(x)),
            Some(mut activations) => Input::OnHost(activations.keep(block, x)),
        }
    }

    /// An input that was kept, to be read until [`release`](Self::release).
    pub(super) fn restore(&self, block: usize, input: Input) -> Tensor<2> {
        match (input, self.activations()) {
            (Input::OnHost(ticket), Some(mut activations)) => activations.restore(block, ticket),
            (Input::OnHost(_), None) => unreachable!("kept by the same blocks"),
            (Input::OnDevice(x), _) => *x,
        }
    }

    pub(super) fn release(&self, block: usize) {
        if let Some(mut activations) = self.activations() {
            activations.release(block);
        }
    }

    /// The full name of a block's parameter.
    pub(super) fn name(&self, block: usize, part: usize) -> String {
        format!("{}.{block}.{}", self.0.prefix, self.engine().layout().parts[part].name)
    }

    fn activations(&self) -> Option<MutexGuard<'_, Activations>> {
        let activations = self.0.activations.as_ref()?;
        Some(activations.lock().expect("a block that panicked ends the cell"))
    }

    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.0.engine.lock().expect("a block that panicked ends the cell")
    }
}
