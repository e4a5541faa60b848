//! [`Timer`]: when the device reaches a piece of work, on the host's clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::cuda::{Event, Gpu, Stamp};
use crate::common::DeviceId;

/// Notes when this thread's work is done. On a GPU the thread does not wait for it.
pub struct Timer {
    began: Instant,
    /// Seconds on the host's clock when it began.
    offset: f64,
    /// The GPU, and an event at the beginning.
    gpu: Option<(&'static Gpu, Event)>,
}

/// A moment of a [`Timer`].
pub enum Moment {
    /// Seconds on the host's clock.
    Host(f64),
    Gpu(Stamp),
}

impl Timer {
    /// Waits for the device.
    pub fn new(device: DeviceId) -> Self {
        let gpu = match device {
            DeviceId::Cpu => None,
            DeviceId::Cuda(ordinal) => {
                let gpu = Gpu::open(ordinal);
                gpu.synchronize();
                let event = Event::record(gpu);
                event.wait();
                Some((gpu, event))
            }
        };
        let offset = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Self { began: Instant::now(), offset, gpu }
    }

    /// When what was issued so far on this thread is done.
    pub fn now(&self) -> Moment {
        match &self.gpu {
            None => Moment::Host(self.offset + self.began.elapsed().as_secs_f64()),
            Some((gpu, _)) => Moment::Gpu(Stamp::new(gpu)),
        }
    }

    /// Seconds of these moments on the host's clock; waits for the device.
    pub fn seconds<'m>(&self, moments: impl Iterator<Item = &'m Moment>) -> Vec<f64> {
        if let Some((gpu, _)) = &self.gpu {
            gpu.synchronize();
        }
        let seconds = |moment: &Moment| match (moment, &self.gpu) {
            (Moment::Host(seconds), _) => *seconds,
            (Moment::Gpu(stamp), Some((_, began))) => self.offset + stamp.seconds_since(began),
            (Moment::Gpu(_), None) => unreachable!("a moment of this timer"),
        };
        moments.map(seconds).collect()
    }
}
