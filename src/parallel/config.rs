//! `[parallel]`: a cell in several processes, its ranks, and how they divide its work.

use serde::{Deserialize, Serialize};

use super::pipeline::Pipeline;
use crate::common::DeviceId;
use crate::device::cuda::{self, nccl};
use crate::keys::key::DefaultValue::{Number, Whole, Word};
use crate::keys::section::section;
use crate::keys::values::{POSITIVE, Values};
use crate::keys::{Key, Rule, Section};
use crate::residence::Shard;

/// Most ranks of a cell: each has a connection to every other.
const MOST_RANKS: i64 = 256;

section! {
    /// Several processes for a cell, its ranks.
    pub struct Parallel: Section::new("parallel"), Default => {
        /// Replicas of the model, each with its share of the rows of every batch.
        ///
        /// `train.batch_size` is that of all together: the same problem, whatever their number.
        pub data: usize = Key::method(Values::Whole { least: 1, most: MOST_RANKS })
            .default(Whole(1)).called("replicas"),
        /// How the replicas' gradients come together: summed on every rank, block by block during backward; or
        /// gathered on the first rank, which updates and sends the weights.
        pub data_reduce: DataReduce =
            Key::method(Values::Words(&["all_reduce", "rank0"])).default(Word("all_reduce")),
        /// What is divided among the replicas: nothing, the optimizer's state, also the gradients, or also the weights of
        /// blocks, which are gathered for their turns.
        ///
        /// Absent in rows where it says nothing new.
        #[serde(default, skip_serializing_if = "Shard::is_none")]
        pub shard: Shard = Key::method(Values::Words(&["none", "optimizer", "gradients", "weights"]))
            .default(Word("none")),
        /// What carries sums and messages between ranks on GPUs: NCCL, with a GPU for each; or sockets, through the host's
        /// memory, where ranks may share a GPU. "auto": NCCL if it is installed and there is a GPU for each rank, else sockets.
        #[serde(default, skip_serializing_if = "Engine::is_auto")]
        pub engine: Engine =
            Key::method(Values::Words(&["auto", "nccl", "sockets"])).default(Word("auto")),
        /// Ranks that each layer of a replica is divided among: attention by its heads, the MLP by its inner columns,
        /// embedding, head and loss by the vocabulary.
        pub tensor: usize = Key::method(Values::Whole { least: 1, most: MOST_RANKS })
            .default(Whole(1)).called("ranks of a layer"),
        /// Seconds that a rank waits for another before the cell ends as failed.
        pub timeout: f64 = Key::method(POSITIVE).default(Number(30.0)).called("time limit of a wait"),
    } and {
        /// `None`: every rank has the whole network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub pipeline: Option<Pipeline>,
    }
}

/// `parallel.data_reduce`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataReduce {
    AllReduce,
    Rank0,
}

/// `parallel.engine`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    #[default]
    Auto,
    Nccl,
    Sockets,
}

impl Engine {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

impl Parallel {
    /// The number of processes of a cell.
    pub fn ranks(&self) -> usize {
        let stages = self.pipeline.as_ref().map_or(1, |pipeline| pipeline.stages);
        self.data * self.tensor * stages
    }

    /// Whether the cell has one process.
    pub fn is_alone(&self) -> bool {
        self.ranks() == 1
    }

    /// Whether all ranks form one group: they only sum gradients, or only divide layers.
    pub fn is_one_group(&self) -> bool {
        self.data == 1 || self.tensor == 1
    }

    /// Whether NCCL sums over the ranks of a cell whose first rank is on this device.
    pub fn is_by_nccl(&self, first: DeviceId) -> bool {
        let on_gpus = first != DeviceId::Cpu && !self.is_alone();
        let possible = || self.is_one_group() && self.ranks() <= cuda::count() && nccl::present();
        on_gpus && (self.engine == Engine::Nccl || self.engine == Engine::Auto && possible())
    }

    /// The device of a rank. Each rank takes the next GPU; after the last comes the first again.
    pub fn device(&self, first: DeviceId, rank: usize) -> DeviceId {
        match first {
            DeviceId::Cpu => DeviceId::Cpu,
            DeviceId::Cuda(ordinal) => DeviceId::Cuda((ordinal + rank) % cuda::count().max(ordinal + 1)),
        }
    }

    /// The devices of all ranks, each once, in rising order.
    pub fn devices(&self, first: DeviceId) -> Vec<DeviceId> {
        let mut devices: Vec<DeviceId> = (0..self.ranks()).map(|rank| self.device(first, rank)).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// The most ranks that share a device.
    pub fn ranks_on_device(&self, first: DeviceId) -> usize {
        match (self.engine, first) {
            // Also for GPUs of another machine.
            (Engine::Nccl, DeviceId::Cuda(_)) => 1,
            _ => self.ranks().div_ceil(self.devices(first).len()),
        }
    }

    /// Refuses keys without an effect. `written`: whether a dotted key stands in the recipe.
    ///
    /// # Errors
    /// Names the key, and what to change.
    pub fn check(&self, written: impl Fn(&str) -> bool) -> Result<(), Rule> {
        let unused = [
            (
                "parallel.data_reduce",
                self.data == 1,
                "with one replica: there is no other to sum gradients with",
            ),
            ("parallel.shard", self.data == 1, "with one replica: there is no other to divide anything with"),
            ("parallel.engine", self.is_alone(), "in one process: there is no other to speak to"),
            ("parallel.timeout", self.is_alone(), "in one process: there is no other to wait for"),
        ];
        if let Some((key, _, reason)) = unused.into_iter().find(|(key, unused, _)| *unused && written(key)) {
            return Err(Rule::new(
                &[key],
                format!("{key} has no effect {reason}"),
                format!("remove {key}, or set parallel.data to 2 or more"),
            ));
        }
        Rule::refuse_if(
            self.data * self.tensor > 1 && self.pipeline.is_some(),
            &["parallel.pipeline", "parallel.data", "parallel.tensor"],
            "parallel.pipeline does not go with parallel.data or parallel.tensor: each stage is on one rank",
            "remove one of them",
        )?;
        let ranks = self.ranks();
        Rule::refuse_if(
            ranks as i64 > MOST_RANKS,
            &["parallel.tensor", "parallel.data"],
            format!(
                "{} replicas over {} ranks each are {ranks} ranks, more than {MOST_RANKS}",
                self.data, self.tensor
            ),
            "make one of the two smaller: each rank has a connection to every other",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a GPU here every rank counts as on the first; NCCL always has a GPU for each rank.
    #[test]
    fn ranks_share_what_devices_there_are() {
        let ranks = |engine| Parallel { data: 4, engine, ..Parallel::default() };
        let (auto, nccl) = (ranks(Engine::Auto), ranks(Engine::Nccl));
        assert_eq!(auto.devices(DeviceId::Cpu), [DeviceId::Cpu]);
        assert_eq!((auto.ranks_on_device(DeviceId::Cpu), nccl.ranks_on_device(DeviceId::Cpu)), (4, 4));
        assert!(!nccl.is_by_nccl(DeviceId::Cpu));
        let gpu = DeviceId::Cuda(0);
        assert!(nccl.is_by_nccl(gpu) && !Parallel { data: 1, ..nccl.clone() }.is_by_nccl(gpu));
        assert!(!ranks(Engine::Sockets).is_by_nccl(gpu));
        let gpus = cuda::count().clamp(1, 4);
        assert_eq!(auto.devices(gpu), (0..gpus).map(DeviceId::Cuda).collect::<Vec<_>>());
        assert_eq!((auto.ranks_on_device(gpu), nccl.ranks_on_device(gpu)), (4usize.div_ceil(gpus), 1));
    }
}
