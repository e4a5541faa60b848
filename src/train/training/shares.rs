//! [`Shares`]: whole parameters for a file. The first of the ranks that have parts of the model asks the others, one parameter at
//! a time, in the order of the file: so the model is never whole in its memory.

use std::collections::HashMap;

use burn::tensor::{DType, TensorData};

use super::Training;
use crate::parallel::whole;
use crate::params::table::Table;
use crate::residence::{Residence, Shard};
use crate::train::build::Build;
use crate::world::ProcessGroup;

/// Which ranks have what of a model.
pub struct Shares {
    group: ProcessGroup,
    of: Of,
    /// All parameters of the model.
    pub table: Table,
}

enum Of {
    /// Each rank a part of each parameter, or the one rank all.
    Layers,
    /// Each rank a part of each block; all of them gather a parameter together.
    Blocks,
    /// Each rank the parameters of its stages. The lowest rank that has one gives it: two have a tied embedding.
    Stages(HashMap<String, usize>),
}

impl Shares {
    /// Whether this rank gives a share or writes: of replicas that all have the same weights only the first does.
    pub fn takes_part(&self, replicas: &ProcessGroup) -> bool {
        !matches!(self.of, Of::Layers) || replicas.place() == 0
    }

    /// A parameter, whole and as numbers, for the rank that writes.
    pub fn asked_for<N: Build>(&self, name: &str, residence: &mut Residence<N>) -> TensorData {
        let asked = self.asked(name);
        self.of_all(&asked, residence).expect("the first rank gets it")
    }

    /// On a rank that writes nothing: gives its share of each parameter that the first rank asks for.
    pub fn give<N: Build>(&self, residence: &mut Residence<N>) {
        loop {
            let name = self.asked("");
            if name.is_empty() {
                return;
            }
            self.of_all(&name, residence);
        }
    }

    /// On the first rank: tells the others that the file is written.
    pub fn end(&self) {
        self.asked("");
    }

    /// The name of the parameter that the first rank asks for, on every rank; it is empty after the last. Between two names
    /// the first rank writes its file, which may take long.
    fn asked(&self, name: &str) -> String {
        let first = self.group.first();
        let name = self.group.broadcast_when_ready("name of a parameter", first, name.into()).wait();
        String::from_utf8(name).expect("a name")
    }

    /// `None` on a rank of a pipeline that has given its own, or has nothing of it.
    fn of_all<N: Build>(&self, name: &str, residence: &mut Residence<N>) -> Option<TensorData> {
        let entry = self.table.entries.iter().find(|entry| entry.name == name).expect("a parameter's name");
        let (group, first) = (&self.group, self.group.first());
        match &self.of {
            Of::Layers => Some(whole(entry, residence.dense(name), group)),
            Of::Blocks => Some(residence.dense(name)),
            Of::Stages(ranks) => match (ranks[name], group.rank()) {
                (owner, own) if owner == own && own == first => Some(residence.dense(name)),
                (owner, own) if owner == own => {
                    group.send(name, first, residence.dense(name).as_bytes().to_vec()).wait();
                    None
                }
                (owner, own) if own == first => {
                    let count = entry.shape.iter().product::<usize>() * entry.dtype.size();
                    let bytes = group.receive(name, owner, count).wait();
                    Some(TensorData::from_bytes_vec(bytes, entry.shape.clone(), entry.dtype))
                }
                _ => None,
            },
        }
    }
}

impl<N: Build> Training<'_, N> {
    /// Who has what. All ranks ask together.
    pub fn shares(&self) -> Shares {
        let own = self.current().stage.residence.table();
        if self.current().stages.is_none() {
            let (group, of) = match self.cell.parallel.shard {
                Shard::Weights => (&self.groups.replicas, Of::Blocks),
                _ => (&self.groups.tensor, Of::Layers),
            };
            return Shares { group: group.clone(), of, table: (**own).clone() };
        }
        let group = self.groups.pipeline.clone();
        let names: Vec<&str> = own.entries.iter().map(|entry| entry.name.as_str()).collect();
        let names = serde_json::to_vec(&names).expect("names are text");
        let of_all = group.collect("names of the parameters of all stages", names).wait();
        let mut ranks = HashMap::new();
        for (rank, names) in of_all.iter().enumerate() {
            let names: Vec<String> = serde_json::from_slice(names).expect("written by a rank of this build");
            names.into_iter().for_each(|name| {
                ranks.entry(name).or_insert(rank);
            });
        }
        let dtype: DType = self.cell.precision.stored();
        let table = self.cell.model.table(dtype, &self.cell.tuning()).expect("checked: a language model");
        Shares { group, of: Of::Stages(ranks), table }
    }

    /// On a rank that writes nothing.
    pub fn give(&mut self, shares: &Shares) {
        shares.give(&mut self.step.as_mut().expect("begun").stage.residence);
    }
}
