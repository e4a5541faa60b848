//! [`Staging`]: a batch's arrays in one copy from page-locked memory.

use burn::tensor::{DType, Int, Shape, Tensor};

use super::{Gpu, Uploader, int_tensor, part};

/// Arrays begin at multiples of so many numbers, 512 bytes.
const ALIGNMENT: usize = 128;
/// Bytes of each of the two page-locked buffers: a batch of 100 thousand tokens.
const BUFFER: usize = 4 << 20;

pub struct Staging {
    uploader: Uploader,
}

impl Staging {
    /// # Errors
    /// When the host cannot lock the buffers.
    pub fn new(gpu: &'static Gpu) -> Result<Self, String> {
        Ok(Self { uploader: Uploader::new(gpu, BUFFER)? })
    }

    /// One tensor for each array. All of them are parts of one buffer of the device.
    ///
    /// # Errors
    /// When the device is out of memory or refuses a copy.
    pub fn upload(&mut self, arrays: &[Vec<i32>]) -> Result<Vec<Tensor<1, Int>>, String> {
        let mut starts = vec![0];
        for array in arrays {
            starts.push(starts[starts.len() - 1] + array.len().next_multiple_of(ALIGNMENT));
        }
        let elements = starts[arrays.len()];
        let mut joined = vec![0i32; elements];
        for (array, start) in arrays.iter().zip(&starts) {
            joined[*start..][..array.len()].copy_from_slice(array);
        }
        let fill = |range: std::ops::Range<usize>, bytes: &mut [u8]| {
            bytes.copy_from_slice(bytemuck::cast_slice(&joined[range]));
        };
        let whole = self.uploader.tensor(Shape::from([elements]), DType::I32, &fill)?;
        let places = arrays.iter().zip(starts).map(|(array, start)| start..start + array.len());
        Ok(places.map(|place| int_tensor(part(&whole, place))).collect())
    }
}
