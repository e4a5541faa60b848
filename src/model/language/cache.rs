//! [`Cache`]: the keys and values of the tokens so far, for generation.

use burn::tensor::Tensor;

use crate::device;

/// The keys and values of one layer, [batch, capacity, columns] each. The first `tokens` of each sequence are filled.
#[derive(Clone, Debug)]
struct Kept {
    keys: Tensor<3>,
    values: Tensor<3>,
    tokens: usize,
}

/// The keys and values of every layer.
#[derive(Clone, Debug)]
pub struct Cache {
    /// `None` before the first tokens.
    layers: Vec<Option<Kept>>,
    batch: usize,
    capacity: usize,
}

/// Those of one layer.
pub struct LayerCache<'c> {
    kept: &'c mut Option<Kept>,
    batch: usize,
    capacity: usize,
}

impl Cache {
    /// For sequences of at most `capacity` tokens.
    pub fn new(layers: usize, batch: usize, capacity: usize) -> Self {
        Self { layers: vec![None; layers], batch, capacity }
    }

    pub fn layer(&mut self, layer: usize) -> LayerCache<'_> {
        LayerCache { kept: &mut self.layers[layer], batch: self.batch, capacity: self.capacity }
    }
}

impl LayerCache<'_> {
    /// Whether no token is there yet.
    pub fn is_empty(&self) -> bool {
        self.kept.is_none()
    }

    /// Adds the new tokens' keys and values [batch · new, columns], in place; returns all of them, [batch, capacity,
    /// columns], and how many tokens each sequence has.
    ///
    /// # Panics
    /// When there are more tokens than the capacity.
    pub fn extend(self, k: Tensor<2>, v: Tensor<2>) -> (Tensor<3>, Tensor<3>, usize) {
        let Self { kept, batch, capacity } = self;
        let [rows, columns] = k.dims();
        let new = rows / batch;
        let empty = || device::zeros([batch, capacity, columns], (&k.device(), k.dtype()));
        let Kept { keys, values, tokens: before } =
            kept.take().unwrap_or_else(|| Kept { keys: empty(), values: empty(), tokens: 0 });
        let tokens = before + new;
        let with = |all: Tensor<3>, new: Tensor<2>| {
            let new = new.reshape([batch, tokens - before, columns]);
            all.slice_assign([0..batch, before..tokens, 0..columns], new)
        };
        let (keys, values) = (with(keys, k), with(values, v));
        *kept = Some(Kept { keys: keys.clone(), values: values.clone(), tokens });
        (keys, values, tokens)
    }
}
