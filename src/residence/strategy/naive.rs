//! The host waits for every copy and every block.

use super::Movement;

pub struct Naive;

impl Movement for Naive {
    fn host_waits(&self) -> bool {
        true
    }
}
