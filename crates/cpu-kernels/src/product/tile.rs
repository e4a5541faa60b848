//! The innermost part of a product: [`ROWS`] rows of a few vectors, whose sums stay in registers.

/// Rows of a tile. With four vectors of AVX-512, or two of AVX2, its sums take 24 of 32 and 12 of 16 registers.
pub const ROWS: usize = 6;

/// A register of fp32 numbers.
///
/// # Safety
/// The processor must have the instructions, and pointers must be valid for [`LANES`](Self::LANES) numbers.
pub unsafe trait Vector: Copy {
    const LANES: usize;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn add(self, other: Self) -> Self;
    /// self + a · b
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Vector;

    macro_rules! vector {
        ($type:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $fma:ident) => {
            // SAFETY: each function is one instruction, whose conditions are those of the trait.
            unsafe impl Vector for $type {
                const LANES: usize = $lanes;
                #[inline(always)]
                unsafe fn splat(x: f32) -> Self {
                    unsafe { $splat(x) }
                }
                #[inline(always)]
                unsafe fn load(from: *const f32) -> Self {
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut f32) {
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    unsafe { $add(self, other) }
                }
                #[inline(always)]
                unsafe fn add_product(self, a: Self, b: Self) -> Self {
                    unsafe { $fma(a, b, self) }
                }
            }
        };
    }
    vector!(__m512, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps);
    vector!(__m256, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, _mm256_fmadd_ps);
}

/// Four numbers, as registers of processors without AVX2 hold.
#[derive(Clone, Copy)]
pub struct Four([f32; 4]);

// SAFETY: plain arithmetic; the pointers are the trait's.
unsafe impl Vector for Four {
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; 4])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's pointer is valid for four numbers.
        Self(unsafe { from.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's pointer is valid for four numbers.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) };
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|i| {
            crate::simd::multiply_add::<{ crate::simd::BASELINE_FMA }>(a.0[i], b.0[i], self.0[i])
        }))
    }
}

/// The rows of the left side that a tile reads.
#[derive(Clone, Copy)]
pub struct Left {
    pub first: *const f32,
    /// From a row to the next, and from a column to the next.
    pub row: usize,
    pub column: usize,
    /// At most [`ROWS`].
    pub rows: usize,
}

/// Writes `rows` rows of `WIDTH` vectors to `out`, or adds them to what is there: left · packed, where `packed` has
/// `WIDTH` vectors for each of `inner` columns of the left side.
///
/// # Safety
/// The processor must have the vector's instructions; `left` must be readable for `inner` columns, `packed` for
/// `inner · WIDTH` vectors, and `out` writable for `left.rows` rows of `WIDTH` vectors, `out_row` numbers apart.
#[inline(always)]
pub unsafe fn tile<V: Vector, const WIDTH: usize>(
    left: Left,
    packed: *const f32,
    inner: usize,
    out: *mut f32,
    out_row: usize,
    add: bool,
) {
    // SAFETY: rows beyond the last one read the last one again, and are not written.
    unsafe {
        let mut rows = [left.first; ROWS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = left.first.add(i.min(left.rows - 1) * left.row);
        }
        let mut sums = [[V::splat(0.0); WIDTH]; ROWS];
        let (mut packed, mut at) = (packed, 0);
        for _ in 0..inner {
            let mut right = [V::splat(0.0); WIDTH];
            for j in 0..WIDTH {
                right[j] = V::load(packed.add(j * V::LANES));
            }
            for i in 0..ROWS {
                let x = V::splat(*rows[i].add(at));
                for j in 0..WIDTH {
                    sums[i][j] = sums[i][j].add_product(x, right[j]);
                }
            }
            packed = packed.add(WIDTH * V::LANES);
            at += left.column;
        }
        for i in 0..ROWS {
            if i < left.rows {
                for j in 0..WIDTH {
                    let to = out.add(i * out_row + j * V::LANES);
                    let sum = if add { V::load(to).add(sums[i][j]) } else { sums[i][j] };
                    sum.store(to);
                }
            }
        }
    }
}
