//! [`Ceilings`]: the rates that a device reaches.

use serde::{Deserialize, Serialize};

use crate::common::Compute;

/// Rates measured on the device and its host; a cell's own rates are given as shares of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Operations per second of a large matrix product, by compute type; `None`: not measured.
    pub matmul_fp32: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub matmul_tf32: Option<f64>,
    pub matmul_bf16: Option<f64>,
    pub matmul_fp16: Option<f64>,
    /// Bytes per second of a large copy, bytes read and bytes written both counted.
    pub copy: Option<f64>,
    /// Bytes per second from page-locked host memory to the device, and back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_to_device: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device_to_host: Option<f64>,
    /// Bytes per second each way while copies run both ways.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub both_ways: Option<f64>,
    /// Seconds of the host from one kernel of a step to the next.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub launch: Option<f64>,
}

impl Ceilings {
    /// Each rate of the device as the higher of both: what else runs on a machine makes a measured rate lower, and nothing
    /// makes it higher.
    pub fn or_higher(self, other: &Self) -> Self {
        // `None` is below every number.
        self.with(other, |own, other| if own < other { other } else { own })
    }

    /// Each rate of the device from both. The host's time for a launch stays.
    pub fn with(self, other: &Self, of: fn(Option<f64>, Option<f64>) -> Option<f64>) -> Self {
        Self {
            matmul_fp32: of(self.matmul_fp32, other.matmul_fp32),
            matmul_tf32: of(self.matmul_tf32, other.matmul_tf32),
            matmul_bf16: of(self.matmul_bf16, other.matmul_bf16),
            matmul_fp16: of(self.matmul_fp16, other.matmul_fp16),
            copy: of(self.copy, other.copy),
            host_to_device: of(self.host_to_device, other.host_to_device),
            device_to_host: of(self.device_to_host, other.device_to_host),
            both_ways: of(self.both_ways, other.both_ways),
            launch: self.launch,
        }
    }

    pub fn matmul(&self, compute: Compute) -> Option<f64> {
        match compute {
            Compute::Fp32 => self.matmul_fp32,
            Compute::Tf32 => self.matmul_tf32,
            Compute::Bf16 => self.matmul_bf16,
            Compute::Fp16 => self.matmul_fp16,
        }
    }
}
