//! [`Block`]: device memory straight from the driver, outside CubeCL's pools.

use cudarc::driver::DriverError;
use cudarc::driver::sys;

/// Freed when dropped.
pub struct Block(u64);

impl Block {
    /// `bytes` of device memory; needs the device's context to be current.
    ///
    /// # Errors
    /// The driver's, when it has no such block left.
    pub fn new(bytes: usize) -> Result<Self, DriverError> {
        let mut address = 0;
        // SAFETY: `address` is written before it is used.
        unsafe { sys::cuMemAlloc_v2(&mut address, bytes) }.result().map(|()| Self(address))
    }

    pub fn address(&self) -> u64 {
        self.0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; the driver waits for what still uses it.
        unsafe { sys::cuMemFree_v2(self.0) };
    }
}
