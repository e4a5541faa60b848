//! [`Rates`]: what a device and its host do in a second, measured or assumed.

use super::launches::from_launch_to_launch;
use crate::common::{Compute, DeviceId};
use crate::device::{Capability, Ceilings, Feature, Target};
use crate::optim::host;

#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Of large products, of large copies and of the bus.
    pub ceilings: Ceilings,
    /// Bytes per second that an update on the host reads and writes.
    pub host_update: f64,
    /// Seconds of the host from one kernel of a step to the next, autodiff included.
    pub launch: f64,
}

impl Rates {
    /// Measured rates, and [`assumed`](Self::assumed) ones where nothing was measured.
    pub fn of(device: DeviceId, ceilings: Ceilings) -> Self {
        let assumed = Self::assumed(device);
        let ceilings = ceilings.with(&assumed.ceilings, Option::or);
        Self { launch: ceilings.launch.unwrap_or(assumed.launch), ceilings, ..assumed }
    }

    /// With the rates of this machine's host, measured now where they are not among the ceilings.
    #[must_use]
    pub fn with_host(self, device: DeviceId) -> Self {
        // A device without kernels is listed all the same.
        let has_kernels = Capability::may_have(Target::Here.capability(device), Feature::Kernels);
        let launch = match self.ceilings.launch {
            None if has_kernels => from_launch_to_launch(device),
            known => known.unwrap_or(self.launch),
        };
        Self { host_update: host::rate_of_updates(), launch, ..self }
    }

    /// Of a GPU as an H200 with its host: launches by the steps in `results/inference`, `qlora_7b` and `strong` that wait for
    /// them, 20 to 28 µs; updates on the host by those of GPT-J-6B, 166 to 192 GB/s; ceilings as rows have them. Of a CPU as two
    /// cores of an AMD EPYC.
    pub fn assumed(device: DeviceId) -> Self {
        match device {
            DeviceId::Cpu => Self {
                ceilings: Ceilings {
                    matmul_fp32: Some(150e9),
                    matmul_bf16: Some(30e9),
                    matmul_fp16: Some(30e9),
                    copy: Some(15e9),
                    ..Ceilings::default()
                },
                host_update: 35e9,
                launch: 4e-6,
            },
            DeviceId::Cuda(_) => Self {
                ceilings: Ceilings {
                    matmul_fp32: Some(51e12),
                    matmul_tf32: Some(408e12),
                    matmul_bf16: Some(800e12),
                    matmul_fp16: Some(755e12),
                    copy: Some(4.2e12),
                    host_to_device: Some(55.5e9),
                    device_to_host: Some(55.4e9),
                    both_ways: Some(50e9),
                    launch: None,
                },
                host_update: 170e9,
                launch: 23e-6,
            },
        }
    }

    /// Measured on this machine within seconds; `None` for a device that is described, whose rates nobody has measured.
    pub fn measure(target: &Target, device: DeviceId, types: &[Compute]) -> Option<Self> {
        match target {
            Target::Here | Target::Hosts => Some(Self::of(device, device.ceilings(types)).with_host(device)),
            Target::Described(_) => None,
        }
    }
}
