//! [`Groups`]: the groups of ranks in which a rank works.

use super::config::Parallel;
use crate::world::{ProcessGroup, World};

/// The groups of a rank. Its number is replica · `parallel.tensor` + its place in the tensor group: the ranks that divide
/// layers are neighbours.
#[derive(Clone)]
pub struct Groups {
    /// Ranks with the same part of the network and other shares of each batch.
    pub replicas: ProcessGroup,
    /// Ranks with other parts of each layer and the same share.
    pub tensor: ProcessGroup,
    /// Ranks with the other stages of a pipeline.
    pub pipeline: ProcessGroup,
}

impl Groups {
    pub fn of(world: &World, parallel: &Parallel) -> Self {
        let (rank, tensor) = (world.rank(), parallel.tensor);
        let alone = || world.all().of([rank]);
        if parallel.pipeline.is_some() {
            return Self { replicas: alone(), tensor: alone(), pipeline: world.all().clone() };
        }
        let first = rank / tensor * tensor;
        Self {
            replicas: world.all().of((rank % tensor..world.size()).step_by(tensor)),
            tensor: world.all().of(first..first + tensor),
            pipeline: alone(),
        }
    }

    /// The groups of a single process.
    pub fn alone() -> Self {
        Self {
            replicas: ProcessGroup::alone(),
            tensor: ProcessGroup::alone(),
            pipeline: ProcessGroup::alone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn neighbours_divide_layers_and_replicas_stand_apart() {
        let parallel = Parallel { data: 2, tensor: 3, ..Parallel::default() };
        let worlds = World::threads(6, Duration::from_secs(1));
        let places = |world| {
            let Groups { replicas, tensor, .. } = Groups::of(world, &parallel);
            ([replicas.place(), tensor.place()], [replicas.first(), tensor.first()])
        };
        let found: Vec<_> = worlds.iter().map(places).collect();
        let expected = (0..6).map(|rank| ([rank / 3, rank % 3], [rank % 3, rank / 3 * 3]));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}
