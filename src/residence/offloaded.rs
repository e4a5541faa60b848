//! [`Offloaded`]: the network's view of blocks that live elsewhere and come for their turns.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::backend::DispatchTensor;
use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};

use super::config::Placement;
use super::engine::{Engine, Pass};
use super::layout::Layout;
use super::names::BlockNames;
use super::sharded::{ShardedBlocks, Sharding};
use super::strategy::resident;
use super::turns::Turns;
use crate::params::source::Source;
use crate::params::table::{Table, Tuning};

/// Computes a block from its number, the source of its parameters, and its input.
pub type Compute = Arc<dyn Fn(usize, &Source, Tensor<2>) -> Tensor<2> + Send + Sync>;

/// The blocks of a network in order: on the host, resident on the device, or divided among ranks.
#[derive(Clone)]
pub struct Offloaded(Arc<Shared>);

struct Shared {
    engine: Mutex<Box<dyn Turns>>,
    home: String,
    /// By block, whether it keeps what its backward needs.
    keeps: Vec<bool>,
    device: Device,
    dtype: DType,
    tuning: Tuning,
}

impl fmt::Debug for Offloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offloaded({} x {})", self.0.home, self.0.keeps.len())
    }
}

impl Offloaded {
    /// Makes the blocks one by one on the device, and moves each to the host or to its own slot; `None` if blocks do not
    /// move. `table`: the network's parameters.
    ///
    /// # Panics
    /// When the host or the device does not have enough memory.
    pub fn new<M: Module>(
        placement: Placement,
        names: &BlockNames,
        source: &Source,
        table: &Table,
        make: impl Fn(usize) -> M,
    ) -> Option<Self> {
        let movement = placement.offload.strategy.movement()?;
        let layouts = layouts(names, table);
        let made = layouts.clone();
        let values = |i: usize| {
            let values = made[i].values(&make(i)).into_iter();
            values.map(|(part, values)| (part.first, values.into_dispatch())).collect()
        };
        let stored = (source.dtype(), source.device().clone().inner());
        let engine = Engine::filled((placement, movement), (names.clone(), layouts), stored, values);
        let resident = placement.offload.resident_blocks.places(names.count());
        let keeps = resident.iter().map(|stays| *stays && !placement.recomputes).collect();
        Some(Self::of(Box::new(engine), format!("{:?}", placement.offload), keeps, source))
    }

    /// As [`new`](Self::new), for blocks whose weights are divided among ranks. All ranks make the same blocks, and each
    /// keeps its part, on its device or where `placement` says.
    pub fn divided<M: Module>(
        (sharding, placement): (&Sharding, Placement),
        names: &BlockNames,
        source: &Source,
        table: &Table,
        make: impl Fn(usize) -> M,
    ) -> Self {
        let layouts = layouts(names, table);
        let blocks = ShardedBlocks::new((sharding, placement), names.clone(), layouts, source, make);
        Self::of(Box::new(blocks), format!("{sharding:?}"), vec![false; names.count()], source)
    }

    fn of(engine: Box<dyn Turns>, home: String, keeps: Vec<bool>, source: &Source) -> Self {
        let (device, tuning) = (source.device().clone().inner(), source.tuning().clone());
        let (engine, dtype) = (Mutex::new(engine), source.dtype());
        Self(Arc::new(Shared { engine, home, keeps, device, dtype, tuning }))
    }

    /// Computes x, [tokens, hidden_size], through all blocks, and keeps what backward needs: the input of each block that
    /// moves, and of a resident block its input or its graph.
    pub fn run(&self, x: Tensor<2>, compute: &Compute) -> Tensor<2> {
        let movement = self.engine().movement();
        self.0.keeps.iter().enumerate().fold(x, |x, (i, keeps)| match keeps {
            true => resident(self, i, x, compute),
            false => movement.forward(self, i, x, compute.clone()),
        })
    }

    /// As [`run`](Self::run) without a backward.
    pub fn infer(
        &self,
        x: Tensor<2>,
        mut compute: impl FnMut(usize, &Source, Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        (0..self.0.keeps.len()).fold(x.inner(), |x, i| self.through(i, Pass::Inference, x, &mut compute))
    }

    /// Computes x, outside of autodiff, through one block.
    pub(super) fn through(
        &self,
        block: usize,
        pass: Pass,
        x: Tensor<2>,
        mut compute: impl FnMut(usize, &Source, Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let parameters = self.engine().enter(block, pass);
        let y = compute(block, &self.source(block, &parameters), x);
        self.engine().leave(block);
        y
    }

    /// A source of the parameters of a block, which are given in the layout's order.
    pub(super) fn source(&self, block: usize, parameters: &[DispatchTensor]) -> Source {
        let layout = self.engine().layout(block).clone();
        let given = layout.made.iter().map(|part| (layout.parts[*part].id, parameters[*part].clone()));
        Source::given(&self.0.device, self.0.dtype, &self.0.tuning, given.collect())
    }

    pub(super) fn engine(&self) -> MutexGuard<'_, Box<dyn Turns>> {
        self.0.engine.lock().expect("a block that panicked ends the cell")
    }
}

/// The layouts of all blocks.
fn layouts(names: &BlockNames, table: &Table) -> Vec<Arc<Layout>> {
    let layout = |i| Arc::new(Layout::of(&table.entries, &format!("{}.", names.name(i))));
    (0..names.count()).map(layout).collect()
}
