//! [`Training::flip_bit`]: the smallest change of one weight, for tests of how much rounding may do.

use std::collections::HashMap;

use burn::tensor::{DType, Tensor, TensorData};

use super::Training;
use crate::common::Compute;
use crate::ops::parameters::each_parameter;
use crate::params::table::{Entry, Group, id};
use crate::train::build::Build;

impl<N: Build> Training<'_, N> {
    /// Flips the last bit that products see of the largest number of a weight: of the first block, or of the last weight
    /// where blocks do not stay on the device.
    pub fn flip_bit(&mut self) {
        let (device, bit) = (self.cell.device_id().burn(), last_bit(self.cell.precision.compute));
        let residence = &mut self.step.as_mut().expect("begun").stage.residence;
        let (table, mut here) = (residence.table().clone(), Vec::new());
        each_parameter(residence.network(), |id, _| here.push(id));
        let stays = |entry: &&Entry| !entry.packed && here.contains(&id(&entry.name));
        let mut entries = table.entries.iter().filter(stays);
        let of_block = entries.clone().find(|entry| entry.group == Group::Block(0));
        let Some(entry) = of_block.or_else(|| entries.next_back()) else { return };
        let value = residence.value(&entry.name);
        let dtype = value.dtype();
        let mut numbers: Vec<f32> = value
            .convert_dtype(DType::F32)
            .try_into_vec()
            .expect("data of the type that they were converted to");
        let largest = numbers.iter_mut().max_by(|a, b| a.abs().total_cmp(&b.abs())).expect("a number");
        *largest = f32::from_bits(largest.to_bits() ^ bit);
        let count = numbers.len();
        let flipped = Tensor::<1>::from_data(TensorData::new(numbers, [count]), (&device, dtype));
        residence.replace(HashMap::from([(id(&entry.name), flipped)]));
    }
}

/// The last bit of a type's numbers, as fp32 has it.
fn last_bit(compute: Compute) -> u32 {
    match compute {
        Compute::Fp32 => 1,
        Compute::Tf32 | Compute::Fp16 => 1 << 13,
        Compute::Bf16 => 1 << 16,
    }
}
