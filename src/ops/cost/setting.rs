//! [`Setting`]: what the operators of a network compute on, and the bytes that follow from it.

use cpu_kernels::nf4::Packing;

use crate::common::{Compute, DeviceId};
use crate::device::Capability;
use crate::ops::{Level, Ops};

/// Which parameters of operators are trained; those of adapters always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trained {
    /// Matrices, and the factors of norms.
    pub weights: bool,
    pub biases: bool,
}

impl Trained {
    pub const ALL: Self = Self { weights: true, biases: true };
    pub const BIASES: Self = Self { weights: false, biases: true };
    pub const NONE: Self = Self { weights: false, biases: false };
}

/// What the operators of a network compute on, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    pub device: DeviceId,
    /// `None`: the device has every feature.
    pub capability: Option<Capability>,
    /// Sequences of a micro-batch and tokens of each.
    pub batch: u64,
    pub sequence: u64,
    /// The squared lengths of all sequences added up.
    pub squares: f64,
    pub compute: Compute,
    /// Bytes of a number as parameters and the sums between blocks are stored.
    pub stored: u64,
    /// Casts of weights serve all micro-batches of a step: no operator keeps its own.
    pub keeps_casts: bool,
    pub ops: Ops,
    pub level: Level,
    /// All results of products that backward needs stay in memory: none is computed again or moves.
    pub ample: bool,
    pub trained: Trained,
    /// Whether the weights of blocks' linear layers are stored in 4 bits.
    pub packs: bool,
    /// Ranks that layers are divided among; costs are one rank's.
    pub tensor: u64,
}

impl Setting {
    /// Bytes that each of so many ranks sends of a sum of numbers over them, as around a ring.
    pub fn sent_of_sum(numbers: u64, ranks: u64) -> u64 {
        2 * 4 * numbers * (ranks - 1) / ranks
    }

    /// A rank's part of what is divided.
    pub fn part(&self, size: u64) -> u64 {
        size / self.tensor
    }

    pub fn tokens(&self) -> u64 {
        self.batch * self.sequence
    }

    /// Bytes of a number in a product.
    pub fn element(&self) -> u64 {
        self.compute.bytes()
    }

    /// Whether kernels compute whole operators in place: those of CUDA, and the CPU's in fp32.
    pub fn has_kernels(&self) -> bool {
        self.on_cuda() || (self.element() == 4 && self.stored == 4)
    }

    pub fn on_cuda(&self) -> bool {
        self.device != DeviceId::Cpu
    }

    /// Bytes of [tokens, columns] in the compute type.
    pub fn activation(&self, columns: u64) -> u64 {
        self.tokens() * columns * self.element()
    }

    /// Bytes of [tokens, columns] in fp32.
    pub fn wide(&self, columns: u64) -> u64 {
        self.tokens() * columns * 4
    }

    /// A weight matrix of this shape.
    pub fn weight(&self, shape: [u64; 2]) -> WeightCost {
        let elements = shape[0] * shape[1];
        let cast = if self.stored == self.element() { 0 } else { elements * self.element() };
        let (kept_cast, cast) = if self.keeps_casts { (cast, 0) } else { (0, cast) };
        let bytes = elements * self.stored;
        WeightCost { elements, bytes, gradient: bytes, cast, kept_cast, unpacked: 0 }
    }

    /// The weight of a linear layer of a block.
    pub fn linear_weight(&self, shape: [u64; 2]) -> WeightCost {
        let elements = shape[0] * shape[1];
        match self.packs {
            false => self.weight(shape),
            true => WeightCost {
                elements,
                bytes: (Packing::of(elements as usize).bytes() as u64).next_multiple_of(self.stored),
                gradient: 0,
                cast: 0,
                kept_cast: 0,
                unpacked: elements * self.element(),
            },
        }
    }

    /// What a product of operands of `lhs` and `rhs` elements in the compute type takes for a moment besides its
    /// result of `out` elements, in that type or `wide`, in fp32.
    ///
    /// The CPU widens operands to a result's type. Burn's products of fewer bits zero a result in one buffer and move it
    /// to an aligned one, and multiply bf16 in fp32 copies of all three.
    pub fn product(&self, lhs: u64, rhs: u64, out: u64, wide: bool) -> u64 {
        match (self.device, self.compute) {
            (DeviceId::Cuda(_), _) => 0,
            (DeviceId::Cpu, Compute::Fp32 | Compute::Tf32) => 0,
            (DeviceId::Cpu, _) if wide => 4 * (lhs + rhs),
            (DeviceId::Cpu, Compute::Bf16) => 4 * (lhs + rhs) + 6 * out,
            (DeviceId::Cpu, Compute::Fp16) => 2 * out,
        }
    }
}

/// Bytes of a weight matrix.
#[derive(Clone, Copy, Debug)]
pub struct WeightCost {
    pub elements: u64,
    /// Bytes of the stored weight, and of its gradient.
    pub bytes: u64,
    pub gradient: u64,
    /// Its copy in the compute type under autocast, as an operator keeps it until its backward,
    pub cast: u64,
    /// or as it serves all micro-batches.
    pub kept_cast: u64,
    /// Its numbers while a product reads them, where codes are stored.
    pub unpacked: u64,
}
