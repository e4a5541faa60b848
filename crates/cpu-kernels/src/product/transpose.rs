//! Turns a matrix round in memory.

use crate::simd::{Level, level};

/// Rows and columns of the blocks that are turned in registers.
const BLOCK: usize = 8;

/// Number j of row i of `from` becomes number i of row j of `to`; rows are `from_row` and `to_row` numbers apart.
///
/// # Safety
/// `from` must be readable for `rows` rows of `columns` numbers, `to` writable for `columns` rows of `rows`.
pub unsafe fn transpose(
    from: *const f32,
    from_row: usize,
    rows: usize,
    columns: usize,
    to: *mut f32,
    to_row: usize,
) {
    let scalar = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| {
        for j in columns {
            for i in rows.clone() {
                // SAFETY: the caller's.
                unsafe { *to.add(j * to_row + i) = *from.add(i * from_row + j) };
            }
        }
    };
    if level() == Level::Baseline {
        return scalar(0..rows, 0..columns);
    }
    let (whole_rows, whole_columns) = (rows / BLOCK * BLOCK, columns / BLOCK * BLOCK);
    #[cfg(target_arch = "x86_64")]
    for i in (0..whole_rows).step_by(BLOCK) {
        for j in (0..whole_columns).step_by(BLOCK) {
            // SAFETY: the caller's; the processor has AVX2.
            unsafe { block(from.add(i * from_row + j), from_row, to.add(j * to_row + i), to_row) };
        }
    }
    scalar(whole_rows..rows, 0..columns);
    scalar(0..whole_rows, whole_columns..columns);
}

/// Eight rows of eight numbers.
///
/// # Safety
/// As [`transpose`]'s.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn block(from: *const f32, from_row: usize, to: *mut f32, to_row: usize) {
    use std::arch::x86_64::*;
    // SAFETY: the caller's.
    let row = |i: usize| unsafe { _mm256_loadu_ps(from.add(i * from_row)) };
    // Rows i and i + 4 of one half side by side, so that no step crosses the halves after this.
    let half = |i: usize| {
        let (a, b) = (row(i), row(i + 4));
        (_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
    };
    let ((a0, b0), (a1, b1), (a2, b2), (a3, b3)) = (half(0), half(1), half(2), half(3));
    for (first, [r0, r1, r2, r3]) in [(0, [a0, a1, a2, a3]), (4, [b0, b1, b2, b3])] {
        let (low01, high01) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
        let (low23, high23) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
        let turned = [
            _mm256_shuffle_ps::<0b01_00_01_00>(low01, low23),
            _mm256_shuffle_ps::<0b11_10_11_10>(low01, low23),
            _mm256_shuffle_ps::<0b01_00_01_00>(high01, high23),
            _mm256_shuffle_ps::<0b11_10_11_10>(high01, high23),
        ];
        for (j, column) in turned.into_iter().enumerate() {
            // SAFETY: the caller's.
            unsafe { _mm256_storeu_ps(to.add((first + j) * to_row), column) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_turned() {
        for (rows, columns) in [(8, 8), (1, 1), (7, 9), (16, 24), (19, 8), (33, 70)] {
            let from: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
            let mut to = vec![0.0; rows * columns];
            // SAFETY: both have as many numbers.
            unsafe { transpose(from.as_ptr(), columns, rows, columns, to.as_mut_ptr(), rows) };
            for (i, x) in to.iter().enumerate() {
                assert_eq!(*x, ((i % rows) * columns + i / rows) as f32);
            }
        }
    }
}
