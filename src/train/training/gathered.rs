//! Parameters of all stages of a pipeline, or of blocks that ranks divide among them, on the first rank, to be saved.

use std::collections::HashMap;

use burn::tensor::{DType, TensorData};

use super::Training;
use super::shares::asked_for;
use crate::params::table::{Entry, Table};
use crate::residence::{Residence, Shard};
use crate::train::build::Build;
use crate::world::Group;

/// The rank that writes files.
const FIRST: usize = 0;

impl<N: Build> Training<'_, N> {
    /// Brings the parameters that others have to the first rank.
    pub fn gather(&mut self) {
        if self.current().stages.is_none() {
            return self.gather_divided();
        }
        let (group, own) = (self.groups.pipeline.clone(), self.current().stage.residence.table().clone());
        if group.rank() != FIRST {
            for Entry { name, .. } in &own.entries {
                let residence = &mut self.step.as_mut().expect("begun").stage.residence;
                let bytes = residence.value(name).as_bytes().to_vec();
                self.announce(name, bytes.len());
                group.send(name.clone(), FIRST, bytes).wait();
            }
            self.announce("", 0);
            return;
        }
        let all = self.table();
        for rank in 1..group.size() {
            while let Some((name, count)) = self.announced(rank) {
                let bytes = group.receive(name.clone(), rank, count).wait();
                let entry = all.entries.iter().find(|entry| entry.name == name).expect("of the model");
                let value = TensorData::from_bytes_vec(bytes, entry.stored_shape(), entry.dtype);
                // A tied embedding is on two ranks.
                if own.entries.iter().all(|entry| entry.name != name) {
                    self.elsewhere.insert(name, value);
                }
            }
        }
    }

    /// Of weights that ranks divide among them. All ranks come with the same parameters, in the same order.
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

    /// Which parameter comes next, and how many bytes it has.
    fn announce(&self, name: &str, count: usize) {
        let mut text = vec![0; ANNOUNCEMENT];
        text[..8].copy_from_slice(&(count as u64).to_le_bytes());
        text[8..8 + name.len()].copy_from_slice(name.as_bytes());
        self.groups.pipeline.send("name of a parameter", FIRST, text).wait();
    }

    fn announced(&self, rank: usize) -> Option<(String, usize)> {
        let text = self.groups.pipeline.receive("name of a parameter", rank, ANNOUNCEMENT).wait();
        let (count, name) = text.split_at(8);
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_string();
        let count = u64::from_le_bytes(count.try_into().expect("8 bytes"));
        (!name.is_empty()).then_some((name, count as usize))
    }

    /// All parameters of the model, those on other ranks as well.
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

/// A parameter, whole and as numbers: of one on another rank of a pipeline what was gathered.
pub(super) fn gathered<N: Build>(
    name: &str,
    elsewhere: &HashMap<String, TensorData>,
    residence: &mut Residence<N>,
    ranks: &Group,
) -> TensorData {
    elsewhere.get(name).cloned().unwrap_or_else(|| asked_for(name, residence, ranks))
}

/// Bytes of an announcement: a count, and a name that is shorter.
const ANNOUNCEMENT: usize = 512;
