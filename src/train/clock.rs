//! [`Clock`]: the time of a training run.

use std::time::Instant;

use burn::tensor::Device;

#[cfg(test)]
thread_local! {
    /// How often this thread has waited for a device.
    pub static WAITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The host's clock over the measured steps. Before it starts or stops it waits for the device.
pub struct Clock<'a> {
    device: &'a Device,
    /// `None` while it is stopped.
    since: Option<Instant>,
    /// Up to the last [`stop`](Self::stop).
    pub seconds: f64,
}

impl<'a> Clock<'a> {
    /// A stopped clock.
    pub fn new(device: &'a Device) -> Self {
        Self { device, since: None, seconds: 0.0 }
    }

    pub fn start(&mut self) {
        self.wait();
        self.since = Some(Instant::now());
    }

    /// Seconds up to now, without waiting for the device.
    pub fn now(&self) -> f64 {
        self.seconds + self.since.map_or(0.0, |since| since.elapsed().as_secs_f64())
    }

    pub fn stop(&mut self) {
        self.wait();
        self.seconds += self.since.take().map_or(0.0, |since| since.elapsed().as_secs_f64());
    }

    /// Pauses while `work` runs. `work` gets the seconds so far and waits for the device itself.
    pub fn without<T>(&mut self, work: impl FnOnce(f64) -> T) -> T {
        let runs = self.since.is_some();
        self.stop();
        let result = work(self.seconds);
        if runs {
            self.start();
        }
        result
    }

    fn wait(&self) {
        #[cfg(test)]
        WAITS.set(WAITS.get() + 1);
        self.device.sync().unwrap_or_else(|e| panic!("the device does not answer: {e:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_lies_between_start_and_stop_counts() {
        let long = |_| sleep(Duration::from_millis(500));
        let device = Device::flex();
        let mut clock = Clock::new(&device);
        clock.without(long);
        long(0.0);
        assert_eq!(clock.seconds, 0.0);
        clock.start();
        sleep(Duration::from_millis(20));
        clock.without(long);
        sleep(Duration::from_millis(20));
        clock.stop();
        long(0.0);
        clock.stop();
        assert!((0.04..0.5).contains(&clock.seconds), "{}", clock.seconds);
    }
}
