//! [`Costs`]: the operators of cells that train one network in several ways; each kind of them is derived once. [`Load`]: what
//! one of these cells computes and holds.

use std::sync::{Arc, Mutex, OnceLock};

use super::pools::{Parameters, most};
use super::{Account, Workload};
use crate::common::locked;
use crate::ops::cost::{Operators, Setting, Works};
use crate::params::table::Tuning;
use crate::recipe::Cell;
use crate::residence::ResidentBlocks;

/// Operators of cells with one model, one tuning and one task. They may differ in number types, in where things live, in what is
/// computed again and in how a step is divided.
pub struct Costs {
    /// Tokens of a sequence that the network reads, and positions that it can read.
    lengths: [usize; 2],
    tuning: Tuning,
    adapted: Adapted,
    parameters: Arc<OnceLock<Parameters>>,
    known: Mutex<Vec<(Setting, Arc<Operators>)>>,
}

/// The linear layers of a block that have an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adapted {
    pub layers: u64,
    /// Columns of their inputs and of their results, added up.
    pub inputs: u64,
    pub outputs: u64,
}

impl Adapted {
    fn new(cell: &Cell, tuning: &Tuning) -> Self {
        let layers = tuning.adapter.iter().flat_map(|adapters| {
            let all = cell.model.linear_layers().into_iter();
            all.filter(|(name, _)| adapters.adapts(name)).map(|(_, sizes)| sizes.map(|size| size as u64))
        });
        layers.fold(Self::default(), |all, [inputs, outputs]| Self {
            layers: all.layers + 1,
            inputs: all.inputs + inputs,
            outputs: all.outputs + outputs,
        })
    }
}

/// A cell with its operators.
pub struct Load<'c> {
    pub cell: &'c Cell,
    pub adapted: Adapted,
    pub(super) parameters: Arc<OnceLock<Parameters>>,
    pub operators: Arc<Operators>,
    pub workload: Workload<'c>,
}

impl Costs {
    pub fn new(cell: &Cell) -> Self {
        let tuning = cell.tuning();
        Self {
            lengths: cell.lengths(),
            adapted: Adapted::new(cell, &tuning),
            parameters: Arc::default(),
            tuning,
            known: Mutex::default(),
        }
    }

    pub fn load<'c>(&self, cell: &'c Cell) -> Load<'c> {
        let workload = cell.workload_of(self.lengths);
        let operators = self.operators(cell, workload.setting());
        Load { cell, adapted: self.adapted, parameters: self.parameters.clone(), operators, workload }
    }

    fn operators(&self, cell: &Cell, setting: Setting) -> Arc<Operators> {
        let find = |known: &[(Setting, Arc<Operators>)]| {
            known.iter().find(|(other, _)| *other == setting).map(|(_, operators)| operators.clone())
        };
        let found = find(&locked(&self.known));
        found.unwrap_or_else(|| {
            let operators = Arc::new(cell.operators_with(&setting, &self.tuning));
            locked(&self.known).push((setting, operators.clone()));
            operators
        })
    }

    /// The cell with as many resident blocks as its estimate has room for in `limit` bytes of its device, where the
    /// recipe leaves their number open.
    pub fn within(&self, cell: &Cell, limit: u64) -> Cell {
        if cell.offload.resident_blocks != ResidentBlocks::Auto {
            return cell.clone();
        }
        let with = |count: usize| cell.with_resident_blocks(Some(count));
        let room = cell.device_id().room(limit);
        let fits = |count: usize| {
            let cell = with(count);
            let load = self.load(&cell);
            let account = load.account();
            account.estimate().total() <= room && most(load.driver_memory(&account), &cell) <= limit
        };
        // All of them need no slots. Of fewer, more need as much memory or more: the largest number is found by halving.
        let blocks = self.load(&with(0)).operators.layers();
        if fits(blocks) {
            return with(blocks);
        }
        let (mut most, mut beyond) = (0, blocks);
        while most + 1 < beyond {
            let middle = usize::midpoint(most, beyond);
            match fits(middle) {
                true => most = middle,
                false => beyond = middle,
            }
        }
        with(most)
    }
}

impl Load<'_> {
    /// [`Cell::account`]
    pub fn account(&self) -> Account {
        match self.cell.parallel.is_alone() {
            true => self.operators.account(&self.workload),
            false => self.cell.account(),
        }
    }

    /// [`Cell::works`]
    pub fn works(&self) -> Works {
        match self.cell.parallel.is_alone() {
            true => self.operators.works(&self.workload),
            false => self.cell.works(),
        }
    }
}
