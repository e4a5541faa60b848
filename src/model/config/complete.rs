//! What completes [`Dimensions`], and refuses those that do not go together.

use super::{Dimensions, LearnedOrSinusoidal};

impl Dimensions {
    /// Fills in the elements of an attention head where they are not written, and returns them.
    ///
    /// # Errors
    /// When the heads do not divide the hidden size.
    pub fn complete_head_dim(&mut self) -> Result<usize, String> {
        let head_dim = self.head_dim.map_or_else(|| self.even_head_dim(), Ok)?;
        self.head_dim = Some(head_dim);
        Ok(head_dim)
    }

    /// Elements of an attention head of a family whose heads share the hidden size.
    ///
    /// # Errors
    /// When the heads do not divide the hidden size.
    pub fn even_head_dim(&self) -> Result<usize, String> {
        let (hidden_size, heads) = (self.hidden_size(), self.num_attention_heads());
        if !hidden_size.is_multiple_of(heads) {
            return Err(format!(
                "hidden_size {hidden_size} is not a multiple of num_attention_heads {heads}; change one of them"
            ));
        }
        Ok(hidden_size / heads)
    }

    /// Fills in the heads of keys and values where they are not written.
    ///
    /// # Errors
    /// When they do not divide the query heads.
    pub fn complete_kv_heads(&mut self) -> Result<(), String> {
        let heads = self.num_attention_heads();
        let kv_heads = *self.num_key_value_heads.get_or_insert(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!(
                "num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}; change one of \
                 them"
            ));
        }
        Ok(())
    }

    /// Fills in the columns inside of the MLP where they are not written: four times those outside of it.
    pub fn complete_intermediate_size(&mut self) {
        let columns = 4 * self.hidden_size();
        self.intermediate_size.get_or_insert(columns);
    }

    /// Refuses sines and cosines that are no pairs.
    ///
    /// # Errors
    /// When the hidden size is odd.
    pub fn check_positions(&self) -> Result<(), String> {
        let hidden_size = self.hidden_size();
        if self.positions() == LearnedOrSinusoidal::Sinusoidal && !hidden_size.is_multiple_of(2) {
            return Err(format!(
                "hidden_size {hidden_size} is odd, and sinusoidal positions come in pairs of sine and cosine; \
                 make it even"
            ));
        }
        Ok(())
    }

    /// Refuses a head that is the embedding, of a model of this name.
    ///
    /// # Errors
    /// When it is tied.
    pub fn refuse_tied(&self, model: &str) -> Result<(), String> {
        match self.tie_word_embeddings() {
            true => Err(format!(
                "tie_word_embeddings is true, and {model}'s head has a weight and a bias of its own; remove the key"
            )),
            false => Ok(()),
        }
    }
}
