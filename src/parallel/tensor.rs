//! [`TensorRanks`]: tensor parallelism. Each rank has a share of every layer, and computes the same loss.

use std::collections::HashSet;

use burn::module::ParamId;
use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::optim::GradientSet;
use crate::params::split::Slice;
use crate::params::table::{Entry, Table, id};
use crate::world::ProcessGroup;

/// The ranks that divide the layers, including this one.
pub struct TensorRanks {
    group: ProcessGroup,
    /// Parameters of which each rank has a share. All ranks have the same gradients of the others.
    divided: HashSet<ParamId>,
    /// Outside of autodiff.
    device: Device,
}

impl TensorRanks {
    /// `None` if there is only one.
    pub fn of(group: &ProcessGroup, table: &Table, device: &Device) -> Option<Self> {
        let divided = table.entries.iter().filter(|entry| entry.split.is_some());
        let divided = divided.map(|entry| id(&entry.name)).collect();
        (group.size() > 1).then(|| Self { group: group.clone(), divided, device: device.clone() })
    }

    /// Σ g² over the gradients of the whole network, [1] in fp32; gradients that every rank has count once. On no rank is it
    /// finite if a gradient of one rank is not.
    ///
    /// # Panics
    /// With a [`Failure`](crate::world::Failure) if another rank does not come.
    pub fn squares(&self, gradients: &GradientSet) -> Tensor<1> {
        let counts = |id| self.group.place() == 0 || self.divided.contains(&id);
        let own = gradients.squares_of(counts);
        let own = own.unwrap_or_else(|| Tensor::zeros([1], (&self.device, DType::F32)));
        self.group.sum("squares of gradients", own).wait().expect("every rank gets it")
    }
}

/// A whole parameter on every rank, from the shares of all ranks.
///
/// # Panics
/// As [`TensorRanks::squares`].
pub fn whole(entry: &Entry, own: TensorData, ranks: &ProcessGroup) -> TensorData {
    let Some(split) = entry.split.filter(|_| ranks.size() > 1) else { return own };
    let shares = ranks.collect(format!("shares of {}", entry.name), own.as_bytes().to_vec()).wait();
    let size = entry.dtype.size();
    let mut bytes = vec![0; entry.shape.iter().product::<usize>() * size];
    for (place, share) in shares.iter().enumerate() {
        Slice { shape: &entry.shape, split, place, ranks: ranks.size() }.put(share, &mut bytes, size);
    }
    TensorData::from_bytes_vec(bytes, entry.shape.clone(), entry.dtype)
}
