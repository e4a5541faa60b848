//! [`Rates`]: what a device does in a second, measured or of a device that need not be here.

use crate::device::{Ceilings, Target};
use crate::words::{Compute, DeviceId};

#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Of large products, of large copies and of the bus.
    pub ceilings: Ceilings,
    /// Bytes per second that an update on the host reads and writes.
    pub host_update: f64,
    /// Seconds from one kernel's launch to the next one's.
    pub launch: f64,
}

impl Rates {
    /// With the device's measured ceilings; rates that were not measured are those of [`assumed`](Self::assumed).
    pub fn of(device: DeviceId, ceilings: Ceilings) -> Self {
        let assumed = Self::assumed(device);
        let or = |measured: Option<f64>, assumed: Option<f64>| measured.or(assumed);
        let other = assumed.ceilings;
        let ceilings = Ceilings {
            matmul_fp32: or(ceilings.matmul_fp32, other.matmul_fp32),
            matmul_tf32: or(ceilings.matmul_tf32, other.matmul_tf32),
            matmul_bf16: or(ceilings.matmul_bf16, other.matmul_bf16),
            matmul_fp16: or(ceilings.matmul_fp16, other.matmul_fp16),
            copy: or(ceilings.copy, other.copy),
            host_to_device: or(ceilings.host_to_device, other.host_to_device),
            device_to_host: or(ceilings.device_to_host, other.device_to_host),
            both_ways: or(ceilings.both_ways, other.both_ways),
        };
        let host_update = match device {
            DeviceId::Cpu => ceilings.copy.unwrap_or(assumed.host_update),
            DeviceId::Cuda(_) => assumed.host_update,
        };
        Self { ceilings, host_update, ..assumed }
    }

    /// Of a GPU as an H200 with its host, by rows of `results/`; of a CPU as two cores of an AMD EPYC.
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
                    matmul_fp32: Some(50e12),
                    matmul_tf32: Some(400e12),
                    matmul_bf16: Some(700e12),
                    matmul_fp16: Some(700e12),
                    copy: Some(3.9e12),
                    host_to_device: Some(55e9),
                    device_to_host: Some(55e9),
                    both_ways: Some(48e9),
                },
                host_update: 110e9,
                launch: 5e-6,
            },
        }
    }

    /// Measured on this machine, or assumed where the target is another.
    pub fn measure(target: &Target, device: DeviceId, types: &[Compute]) -> Self {
        match target {
            Target::Here => Self::of(device, device.ceilings(types)),
            Target::Described(_) => Self::assumed(device),
        }
    }
}
