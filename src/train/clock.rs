//! [`Clock`]: the time of a whole training run.

use std::time::Instant;

use burn::tensor::Device;

/// The host's clock over a training run; it stands still outside of it.
pub struct Clock<'a> {
    device: &'a Device,
    since: Instant,
    /// Up to the last [`stop`](Self::stop).
    pub seconds: f64,
}

impl<'a> Clock<'a> {
    /// Once the device has done what it was given.
    pub fn start(device: &'a Device) -> Self {
        wait(device);
        Self { device, since: Instant::now(), seconds: 0.0 }
    }

    /// Once the device has done what it was given.
    pub fn stop(&mut self) {
        wait(self.device);
        self.seconds += self.since.elapsed().as_secs_f64();
    }

    /// Stands still while `work` runs.
    pub fn without(&mut self, work: impl FnOnce()) {
        self.stop();
        work();
        self.since = Instant::now();
    }
}

fn wait(device: &Device) {
    device.sync().unwrap_or_else(|e| panic!("the device does not answer: {e:?}"));
}
