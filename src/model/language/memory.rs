//! What training a language model holds, step by step, and what it computes: the walks follow the
//! order in which the operators allocate and free.

use crate::device::DeviceId;
use crate::measure::{Estimate, Ledger};
use crate::model::Flops;
use crate::ops::attention::block;
use crate::ops::cross_entropy::chunk;
use crate::ops::swiglu::memory::Sizes;
use crate::ops::{Level, Operator};
use crate::recipe::Cell;
use crate::residence::Memory;

/// The sizes that decide a decoder's memory and arithmetic.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layers: usize,
    /// Query and key heads, and the elements of one.
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// SwiGLU (three matrices) or GELU (two).
    pub gated: bool,
    pub tied: bool,
    /// All parameters.
    pub parameters: u64,
}

impl Shape {
    /// Weights of all blocks.
    pub fn block_weights(&self) -> u64 {
        self.layers as u64 * (self.attention_weights() + self.mlp_weights())
    }

    fn attention_weights(&self) -> u64 {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        (self.hidden_size * (2 * queries + 2 * keys)) as u64
    }

    fn mlp_weights(&self) -> u64 {
        (if self.gated { 3 } else { 2 }) * (self.hidden_size * self.intermediate_size) as u64
    }

    /// Bytes of the matrices of one block, as they are stored.
    pub fn block_bytes(&self, cell: &Cell) -> u64 {
        let stored = if cell.precision.autocast { 4 } else { cell.precision.compute.bytes() };
        (self.attention_weights() + self.mlp_weights()) * stored
    }

    fn head_weights(&self) -> u64 {
        (self.vocab_size * self.hidden_size) as u64
    }

    /// Of a whole step without padding.
    pub fn flops(&self, cell: &Cell) -> Flops {
        let tokens = (cell.train.tokens() * cell.train.accumulation_steps) as f64;
        self.flops_of(cell, tokens, tokens * cell.train.seq_len as f64)
    }

    /// Of sequences with so many tokens together, whose squared lengths add up to `squares`.
    ///
    /// Two operations a weight and token, and the causal half of 4 · sequence · heads · head_dim a token
    /// and layer for attention; backward is twice that. Repeated: the scores, the head's logits, and at
    /// level 1 two of SwiGLU's three products.
    pub fn flops_of(&self, cell: &Cell, tokens: f64, squares: f64) -> Flops {
        let layers = self.layers as f64;
        let products = |weights: u64| 2.0 * tokens * weights as f64;
        let scores = squares * (self.heads * self.head_dim) as f64 * layers;
        let forward = layers * products(self.attention_weights() + self.mlp_weights())
            + products(self.head_weights())
            + 2.0 * scores;
        let mlp = match (self.gated, cell.checkpoint.level) {
            (true, Level::Full) => layers * products(self.mlp_weights()) * 2.0 / 3.0,
            _ => 0.0,
        };
        let head = if cell.ops.loss == Operator::Custom { products(self.head_weights()) } else { 0.0 };
        let attention = if cell.ops.attention == Operator::Custom { scores } else { 0.0 };
        // Blocks that move are computed again as a whole.
        let blocks = if cell.offload.moves() { forward - products(self.head_weights()) } else { 0.0 };
        Flops { forward, backward: 2.0 * forward, recompute: blocks + mlp + head + attention }
    }

    /// Walks through the last micro-batch of one step: forward, loss, backward, optimizer.
    pub fn estimate(&self, cell: &Cell) -> Estimate {
        let compute = cell.precision.compute.bytes();
        let stored = cell.precision.stored_bytes();
        let tokens = cell.train.tokens() as u64;
        let Self { hidden_size, intermediate_size, .. } = *self;
        let (hidden, inner) = (tokens * hidden_size as u64, tokens * intermediate_size as u64);
        let queries = tokens * (self.heads * self.head_dim) as u64;
        let keys = tokens * (self.kv_heads * self.head_dim) as u64;
        let layer_weights = self.attention_weights() + self.mlp_weights();
        let moves = cell.offload.moves();
        let blocks = self.block_weights();
        // Gradients of earlier micro-batches, to which more are added.
        let accumulates = cell.train.accumulation_steps > 1 && !moves;
        // Under autocast every weight that is multiplied exists once more, in the compute type: from its
        // use in forward to that in backward, or over all micro-batches.
        let casts = |weights: u64| if cell.precision.autocast { weights * compute } else { 0 };
        let cast = |weights: u64| if accumulates { 0 } else { casts(weights) };

        let mut ledger = Ledger::new(cell.precision.compute, cell.device_id());
        ledger.now.weights = (self.parameters - if moves { blocks } else { 0 }) * stored;
        if accumulates {
            ledger.now.weights += casts(blocks + self.head_weights());
            ledger.now.gradients = self.parameters * stored;
        }
        if moves {
            // What slots hold is neither the host's nor freed between the blocks.
            ledger.take(cell.offload.slot_count(cell.device_id()) * layer_weights * stored);
        }
        let offload = cell.offload;
        ledger.now.optimizer = cell.train.optimizer.state_tensors(offload.optimizer) * self.parameters * 4;
        ledger.now.host = offload.host_bytes(cell);
        // Inputs of blocks: kept on the device, or only those that are in the slots.
        let input = match offload.activations {
            Memory::Device => hidden * stored,
            Memory::Host => 0,
        };
        ledger.take(offload.activation_slots(cell.device_id()) * hidden * stored);

        // Between the operators: the residual stream.
        ledger.take(hidden * stored);
        let mlp = Sizes::new(tokens, hidden_size as u64, intermediate_size as u64, compute);
        let mlp_kept = match (self.gated, cell.ops.gelu) {
            (true, _) => mlp.kept(cell.checkpoint.level, cell.ops.swiglu),
            (false, Operator::Custom) => 2 * inner * compute,
            // x, x², tanh and tanh + 1 in fp32, and the result.
            (false, Operator::Plain) => inner * (4 * 4 + compute),
        };
        let scores = self.scores(cell);
        let attention_kept = match cell.ops.attention {
            Operator::Custom => 0,
            // Scores, their mask and the probabilities of the whole square.
            Operator::Plain => self.square(cell) * (2 * 4 + compute),
        };
        // Burn's autodiff keeps x in fp32, x · r and what the weight multiplies.
        let norm_kept = match cell.ops.norm {
            Operator::Custom => 0,
            Operator::Plain => hidden * (2 * 4 + if stored == 4 { 0 } else { 2 }),
        };
        // Two inputs of norms, their results, q, k and v split into heads, and attention's result.
        let layer_kept = 2 * hidden * (stored + compute)
            + (queries + 2 * keys) * compute
            + queries * compute
            + cast(layer_weights)
            + attention_kept
            + 2 * norm_kept
            + mlp_kept;
        for _ in 0..self.layers {
            // q, k and v, a block of scores and probabilities, and the result.
            let moment = (2 * queries + 2 * keys) * compute + scores * (4 + compute);
            ledger.take(moment);
            ledger.give(moment);
            ledger.now.activations += if moves { input } else { layer_kept };
            ledger.take(inner * compute);
            ledger.give(inner * compute);
        }
        ledger.now.activations += hidden * (stored + compute) + norm_kept + cast(self.head_weights());

        // The loss: in backward a chunk's logits and their gradient, dh in fp32 and dW.
        let head = self.head_weights() * stored;
        let columns = chunk(tokens as usize, self.vocab_size).min(self.vocab_size) as u64;
        // The CPU computes fp32 results from fp32 copies of what it multiplies.
        let widened = match (cell.device_id(), compute) {
            (DeviceId::Cpu, 2) => 4 * (hidden + columns * hidden_size as u64),
            _ => 0,
        };
        let logits = match cell.ops.loss {
            Operator::Custom => tokens * columns * (4 + compute) + widened,
            // Logits and their softmax's logarithm, or the gradients of the two.
            Operator::Plain => tokens * self.vocab_size as u64 * (2 * 4 + 2 * compute),
        };
        ledger.take(logits);
        ledger.now.gradients += head;
        ledger.take(hidden * 4);
        ledger.give(logits + hidden * 4);
        ledger.now.activations -= hidden * compute + cast(self.head_weights());

        for _ in 0..self.layers {
            let gradients = layer_weights * stored;
            if moves {
                // Computed again: what would have been kept is there for this block alone.
                ledger.take(layer_kept);
            }
            // The MLP: the gradients of what is inside it. Those of a and b take the place of what was kept
            // of them, but at level 1, which has to make them again.
            let inside = match (self.gated, cell.checkpoint.level) {
                (true, Level::Full) => 3,
                (true, Level::Keep | Level::Elementwise) => 1,
                (false, _) => 2,
            };
            let moment = (hidden + inside * inner) * compute;
            ledger.take(moment);
            ledger.now.gradients += self.mlp_weights() * stored;
            ledger.give(moment);
            // What the MLP kept is free, and then what attention kept.
            let kept = if moves { &mut ledger.now.workspace } else { &mut ledger.now.activations };
            *kept -= mlp_kept;
            // Attention: g, dq, dk and dv, and of a block Z and dP in fp32, P and dS; in fp32 P takes the place
            // of Z.
            let moment = 2 * queries * compute + 2 * keys * 4 + scores * 12;
            ledger.take(moment);
            ledger.give(moment);
            ledger.now.gradients += gradients - self.mlp_weights() * stored;
            ledger.take(0);
            ledger.now.activations -= if moves { input } else { layer_kept - mlp_kept };
            if moves {
                ledger.give(layer_kept - mlp_kept);
                // On their way to the host.
                let slots = offload.momentary_slots(cell.device_id()) * gradients;
                ledger.take(slots);
                ledger.give(slots);
                ledger.now.gradients -= gradients;
            }
        }
        // The embedding's gradient; a tied head's is already there, and the two are added.
        ledger.take(head);
        ledger.give(head);
        ledger.now.gradients += if self.tied { 0 } else { head };
        ledger.take(0);
        if moves {
            // An update works on a whole block.
            ledger.take(cell.train.optimizer.workspace_tensors(offload.optimizer) * layer_weights * 4);
        }
        ledger.peak()
    }

    /// Elements of one block's scores at most. Packed samples are attended as batches of their own, with as
    /// many scores as full rows have at most.
    fn scores(&self, cell: &Cell) -> u64 {
        let (batch, sequence) = (cell.train.batch_size, cell.train.seq_len);
        let rows = block(batch, self.heads, sequence, sequence).min(sequence);
        (batch * self.heads * rows * sequence) as u64
    }

    /// Elements of all scores.
    fn square(&self, cell: &Cell) -> u64 {
        let tokens = cell.train.tokens();
        if packed(cell) {
            return (self.heads * tokens * tokens) as u64;
        }
        (cell.train.batch_size * self.heads * cell.train.seq_len * cell.train.seq_len) as u64
    }
}

/// Whether a step is one sequence of packed samples.
fn packed(cell: &Cell) -> bool {
    cell.data.sampler().sampler.is_packed()
}
