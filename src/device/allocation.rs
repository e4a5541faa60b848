//! What a tensor takes of a device's memory.

use crate::common::DeviceId;

/// CubeCL begins each row at a multiple of this many bytes at most, as `cuMemAllocPitch` does.
const WIDEST_ALIGNMENT: u64 = 512;
const NARROWEST_ALIGNMENT: u64 = 16;

impl DeviceId {
    /// Bytes of a matrix that one of Burn's own operators makes. On CUDA the rows of such a matrix are
    /// aligned; those of our kernels and products are not.
    pub fn padded(self, [rows, columns]: [u64; 2], element: u64) -> u64 {
        let row = columns * element;
        match self {
            Self::Cpu => rows * row,
            Self::Cuda(_) => {
                let alignment = row.next_power_of_two().clamp(NARROWEST_ALIGNMENT, WIDEST_ALIGNMENT);
                rows * row.next_multiple_of(alignment)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_matrix_are_aligned_on_cuda() {
        // 896 bf16 numbers are 1792 bytes, 3.5 times 512; 20 of them are 40, and 64 the next power of two.
        for (columns, row) in [(896, 2048), (768, 1536), (20, 64), (3, 16)] {
            assert_eq!(DeviceId::Cuda(0).padded([10, columns], 2), 10 * row, "{columns}");
            assert_eq!(DeviceId::Cpu.padded([10, columns], 2), 20 * columns);
        }
    }
}
