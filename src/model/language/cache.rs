//! [`Cache`]: the keys and values of the tokens so far, for generation.

use burn::tensor::Tensor;

/// One [batch, tokens, columns] tensor of keys and one of values a layer.
#[derive(Clone, Debug)]
pub struct Cache {
    layers: Vec<Option<(Tensor<3>, Tensor<3>)>>,
    batch: usize,
}

impl Cache {
    pub fn new(layers: usize, batch: usize) -> Self {
        Self { layers: vec![None; layers], batch }
    }

    /// Tokens a sequence has so far.
    pub fn len(&self) -> usize {
        self.layers.first().and_then(Option::as_ref).map_or(0, |(keys, _)| keys.dims()[1])
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the new tokens' keys and values [batch · new, columns] of a layer; returns all of them,
    /// [batch · tokens, columns], and the number of tokens.
    pub fn extend(&mut self, layer: usize, k: Tensor<2>, v: Tensor<2>) -> (Tensor<2>, Tensor<2>, usize) {
        let [rows, columns] = k.dims();
        let shape = [self.batch, rows / self.batch, columns];
        let (k, v) = (k.reshape(shape), v.reshape(shape));
        let (k, v) = match self.layers[layer].take() {
            None => (k, v),
            Some((keys, values)) => (Tensor::cat(vec![keys, k], 1), Tensor::cat(vec![values, v], 1)),
        };
        self.layers[layer] = Some((k.clone(), v.clone()));
        let tokens = k.dims()[1];
        let flat = |t: Tensor<3>| t.reshape([self.batch * tokens, columns]);
        (flat(k), flat(v), tokens)
    }
}
