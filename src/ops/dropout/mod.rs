//! Dropout (Srivastava et al. 2014) whose mask is a seed: an element is kept or dropped by its number, so that backward,
//! and what is computed again, draw the same mask, and none is in memory.
//!
//! The numbers are those of Philox4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3"): a
//! function of a key and a counter, here the number of four elements.
//!
//! ```text
//! let _masks = masks(Some(of_micro_batch(42, 0, 0)));    networks that begin their forward here drop elements
//! ```

pub mod cuda;

use std::cell::Cell;
use std::marker::PhantomData;

use burn::tensor::{DType, Tensor, TensorData};
use cpu_kernels::random::philox;

use super::backend::{cube, on_cuda, uncube};
use super::{narrow, wide};
use crate::ops::dropout::cuda as kernels;

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A region of this thread in which forward drops elements. It lasts until this is dropped.
#[must_use = "a region ends when it is dropped"]
pub struct Masks {
    outer: Option<u64>,
    /// A region belongs to the thread that entered it.
    thread: PhantomData<*const ()>,
}

/// Enters a region with this seed; with `None` one without dropout, as outside of every region.
pub fn masks(seed: Option<u64>) -> Masks {
    Masks { outer: SEED.replace(seed), thread: PhantomData }
}

impl Drop for Masks {
    fn drop(&mut self) {
        SEED.set(self.outer);
    }
}

/// The seed of the region around the call. A network asks for it once, as its forward begins: what is computed again
/// later has the same.
pub fn seed() -> Option<u64> {
    SEED.get()
}

/// The seed of one micro-batch's masks.
pub fn of_micro_batch(seed: u32, update: usize, micro_batch: usize) -> u64 {
    [u64::from(seed), update as u64, micro_batch as u64].into_iter().fold(0, |key, part| mix(key ^ part))
}

/// The dropout of one layer in one forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The share of elements that become 0, in [0, 1).
    pub rate: f64,
    key: u64,
}

impl Dropout {
    /// `seed`: of the forward; `layer`: a number of the layer's own. `None` where nothing is dropped.
    pub fn new(rate: f64, seed: Option<u64>, layer: u64) -> Option<Self> {
        let seed = seed.filter(|_| rate > 0.0)?;
        Some(Self { rate, key: mix(seed ^ layer) })
    }

    /// Philox's key, the least number of an element that is kept, and what that is multiplied by.
    pub fn draws(self) -> ([u32; 2], u32, f64) {
        let key = [self.key as u32, (self.key >> 32) as u32];
        (key, (self.rate * 2f64.powi(32)) as u32, 1.0 / (1.0 - self.rate))
    }

    /// x ⊙ m / (1 − rate) in x's type, with a mask m of zeros and ones of x's shape: of x, and of its gradient.
    pub fn apply<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        let (key, threshold, scale) = self.draws();
        if on_cuda(&x) {
            return uncube(kernels::dropout(&cube(x), key, threshold, scale as f32));
        }
        let (device, dtype) = (x.device(), x.dtype());
        let mut data = wide(x).into_data();
        match data.dtype() {
            DType::F64 => drop_elements(&mut data, key, threshold, scale),
            _ => {
                let elements = data.as_mut_slice::<f32>().expect("wide values");
                cpu_kernels::random::dropout(elements, key, threshold, scale as f32);
            }
        }
        let options = (&device, data.dtype());
        narrow(Tensor::from_data(data, options), dtype)
    }
}

/// The same in fp64, for references.
fn drop_elements(data: &mut TensorData, key: [u32; 2], threshold: u32, scale: f64) {
    let elements = data.as_mut_slice::<f64>().expect("wide values");
    for (block, four) in elements.chunks_mut(4).enumerate() {
        let numbers = philox([block as u32, 0, 0, 0], key);
        for (element, number) in four.iter_mut().zip(numbers) {
            *element = if number < threshold { 0.0 } else { *element * scale };
        }
    }
}

/// The finaliser of splitmix64 (Steele et al. 2014): every bit of the result depends on every bit of x.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::random;

    /// The known answers that come with the authors' library (Random123, kat_vectors).
    #[test]
    fn philox_gives_the_published_numbers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = u32::MAX;
        assert_eq!(philox([ones; 4], [ones; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let (counter, key) =
            ([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(philox(counter, key), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    fn list(tensor: Tensor<2>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    #[test]
    fn a_mask_is_the_same_each_time_and_another_one_of_another_layer_or_step() {
        let ones = Tensor::<2>::ones([37, 53], &burn::tensor::Device::flex());
        let mask = |rate, seed, layer| {
            list(Dropout::new(rate, Some(seed), layer).expect("a rate").apply(ones.clone()))
        };
        let dropped = |mask: &[f64]| mask.iter().filter(|kept| **kept == 0.0).count() as f64 / 1961.0;
        for rate in [0.1, 0.5, 0.9] {
            let first = mask(rate, 1, 2);
            // Three deviations of 1961 draws at most.
            assert!((dropped(&first) - rate).abs() < 3.0 * (rate * (1.0 - rate) / 1961.0).sqrt());
            let scale = f64::from((1.0 / (1.0 - rate)) as f32);
            assert!(first.iter().all(|kept| *kept == 0.0 || *kept == scale));
            assert_eq!(first, mask(rate, 1, 2));
            assert!(first != mask(rate, 1, 3) && first != mask(rate, 2, 2));
        }
        assert!(Dropout::new(0.0, Some(1), 2).is_none() && Dropout::new(0.5, None, 2).is_none());
    }

    #[test]
    fn a_region_has_a_seed_of_each_step_and_micro_batch() {
        assert_eq!(seed(), None);
        let seeds = [(0, 0), (0, 1), (1, 0)].map(|(update, part)| of_micro_batch(42, update, part));
        assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2] && seeds[0] != seeds[2]);
        let outer = masks(Some(seeds[0]));
        {
            let _none = masks(None);
            assert_eq!(seed(), None);
        }
        assert_eq!(seed(), Some(seeds[0]));
        drop(outer);
        assert_eq!(seed(), None);
    }

    /// In few bits the result is that of fp32, rounded once.
    #[test]
    fn few_bits_are_scaled_in_fp32() {
        let x = random::<2>([5, 9], 1).inner();
        let dropout = Dropout::new(0.3, Some(7), 1).expect("a rate");
        let narrowed = narrow(x, DType::BF16);
        let expected = narrow(dropout.apply(narrow(narrowed.clone(), DType::F32)), DType::BF16);
        let found = dropout.apply(narrowed);
        assert_eq!((found.dtype(), list(found)), (DType::BF16, list(expected)));
    }
}
