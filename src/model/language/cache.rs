//! [`Cache`]: the keys and values of the tokens so far, for generation.

use burn::tensor::Tensor;

/// Keys and values, [batch, tokens, columns] each; `None` before the first tokens.
type KeysAndValues = Option<(Tensor<3>, Tensor<3>)>;

/// The keys and values of every layer.
#[derive(Clone, Debug)]
pub struct Cache {
    layers: Vec<KeysAndValues>,
    batch: usize,
}

/// Those of one layer.
pub struct LayerCache<'c> {
    kept: &'c mut KeysAndValues,
    batch: usize,
}

impl Cache {
    pub fn new(layers: usize, batch: usize) -> Self {
        Self { layers: vec![None; layers], batch }
    }

    pub fn layer(&mut self, layer: usize) -> LayerCache<'_> {
        LayerCache { kept: &mut self.layers[layer], batch: self.batch }
    }
}

impl LayerCache<'_> {
    /// Appends the new tokens' keys and values [batch · new, columns]; returns all of them,
    /// [batch · tokens, columns], and the number of tokens.
    pub fn extend(self, k: Tensor<2>, v: Tensor<2>) -> (Tensor<2>, Tensor<2>, usize) {
        let [rows, columns] = k.dims();
        let shape = [self.batch, rows / self.batch, columns];
        let (k, v) = (k.reshape(shape), v.reshape(shape));
        let (k, v) = match self.kept.take() {
            None => (k, v),
            Some((keys, values)) => (Tensor::cat(vec![keys, k], 1), Tensor::cat(vec![values, v], 1)),
        };
        *self.kept = Some((k.clone(), v.clone()));
        let tokens = k.dims()[1];
        let flat = |t: Tensor<3>| t.reshape([self.batch * tokens, columns]);
        (flat(k), flat(v), tokens)
    }
}
