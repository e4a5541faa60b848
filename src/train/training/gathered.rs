//! Brings the parameters of all stages of a pipeline, or of blocks divided among ranks, to the first rank to be saved.

use std::collections::HashMap;

use burn::tensor::{DType, TensorData};

use super::Training;
use super::shares::asked_for;
use crate::params::table::{Entry, Table};
use crate::residence::{Residence, Shard};
use crate::train::build::Build;
use crate::world::ProcessGroup;

/// The rank that writes files.
const FIRST: usize = 0;

impl<N: Build> Training<'_, N> {
    /// Brings the parameters of other ranks to the first.
    pub fn gather(&mut self) {
        if self.current().stages.is_none() {
            return self.gather_divided();
        }
        let (group, own) = (self.groups.pipeline.clone(), self.current().stage.residence.table().clone());
        let names: Vec<&str> = own.entries.iter().map(|entry| entry.name.as_str()).collect();
        let names = serde_json::to_vec(&names).expect("names are text");
        let of_all = group.collect("names of the parameters of all stages", names).wait();
        if group.rank() != FIRST {
            for Entry { name, .. } in &own.entries {
                let residence = &mut self.step.as_mut().expect("begun").stage.residence;
                let bytes = residence.dense(name).as_bytes().to_vec();
                group.send(name.clone(), FIRST, bytes).wait();
            }
            return;
        }
        let all = self.table();
        for (rank, names) in of_all.iter().enumerate().skip(1) {
            let names: Vec<String> = serde_json::from_slice(names).expect("written by a rank of this build");
            for name in names {
                let entry = all.entries.iter().find(|entry| entry.name == name).expect("of the model");
                let count = entry.shape.iter().product::<usize>() * entry.dtype.size();
                let bytes = group.receive(name.clone(), rank, count).wait();
                let value = TensorData::from_bytes_vec(bytes, entry.shape.clone(), entry.dtype);
                // Two ranks have a tied embedding.
                if own.entries.iter().all(|entry| entry.name != name) {
                    self.elsewhere.insert(name, value);
                }
            }
        }
    }

    /// Frees what was brought here.
    pub fn forget_gathered(&mut self) {
        self.elsewhere.clear();
    }

    /// Gathers weights that are divided among ranks. All ranks ask for the same parameters in the same order.
    fn gather_divided(&mut self) {
        if self.cell.parallel.shard != Shard::Weights {
            return;
        }
        for Entry { name, .. } in self.table().entries {
            let value = self.step.as_mut().expect("begun").stage.residence.dense(&name);
            if self.groups.replicas.rank() == FIRST {
                self.elsewhere.insert(name, value);
            }
        }
    }

    /// All parameters of the model, including those on other ranks.
    pub(super) fn table(&self) -> Table {
        match self.current().stages {
            None => (**self.current().stage.residence.table()).clone(),
            Some(_) => {
                let dtype: DType = self.cell.precision.stored();
                self.cell.model.table(dtype, &self.cell.tuning()).expect("checked: a language model")
            }
        }
    }
}

/// A parameter, whole and as numbers: as it was gathered, or from the ranks that divide layers.
pub(super) fn gathered<N: Build>(
    name: &str,
    elsewhere: &HashMap<String, TensorData>,
    residence: &mut Residence<N>,
    ranks: &ProcessGroup,
) -> TensorData {
    elsewhere.get(name).cloned().unwrap_or_else(|| asked_for(name, residence, ranks))
}
