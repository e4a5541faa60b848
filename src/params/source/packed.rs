//! Frozen weights of linear layers in 4 bits, from a source: packed on the host as they are loaded or drawn.

use burn::module::Param;
use burn::tensor::{Device, Shape, Tensor, TensorData};

use super::first_values::random;
use super::{Init, Origin, Shared, Source};
use crate::ops::nf4;
use crate::params::table::{Entry, Group, id};

impl Source {
    /// Whether the weight of a linear layer of this source is stored in 4 bits.
    pub fn packs(&self) -> bool {
        self.shared.tuning.packs && matches!(self.group, Group::Block(_))
    }

    /// As [`parameter`](Self::parameter), frozen and stored as [`nf4`] packs it.
    ///
    /// # Panics
    /// As there.
    pub fn packed(&self, name: &'static str, shape: [usize; 2], init: Init) -> Param<Tensor<2>> {
        let Shared { device, dtype, origin, table, .. } = &*self.shared;
        let stored = [1, nf4::carriers(shape, *dtype)];
        if let Origin::Given(_) = origin {
            return self.parameter(name, stored, init);
        }
        let name = self.path_of(name.into()).into_owned();
        let id = id(&name);
        let packed = match origin {
            Origin::Given(_) => unreachable!("handed out above"),
            Origin::Shapes => None,
            Origin::Files(files) => {
                let tensor = self.replaced(&name).or_else(|| files.weights.get(&name));
                let tensor = tensor.expect("it was there when the files were checked");
                Some(match tensor.shape() == stored {
                    true => TensorData::from_bytes_vec(self.bytes(&tensor, stored), stored, *dtype),
                    false => nf4::pack(&self.bytes(&tensor, shape), shape, *dtype),
                })
            }
            Origin::Random(_) => {
                let values: Tensor<2> = random(init, shape, (&device.clone().inner(), *dtype));
                Some(nf4::pack(values.into_data().as_bytes(), shape, *dtype))
            }
        };
        let (shape, group) = (shape.to_vec(), self.group);
        let (dtype, split) = (*dtype, None);
        let entry = Entry { name, shape, dtype, trainable: false, group, packed: true, split };
        table.borrow_mut().entries.push(entry);
        match packed {
            None => {
                let empty = |_: &Device, _| unreachable!("a source of shapes has no values");
                Param::uninitialized(id, empty, device.clone(), false, Shape::from(stored))
            }
            Some(packed) => {
                let tensor = Tensor::<2>::from_data(packed, (&device.clone().inner(), dtype));
                Param::initialized(id, tensor.autodiff())
            }
        }
    }
}
