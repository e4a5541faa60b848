//! [`Rates`]: what a device and its host do in a second, measured or assumed.

use super::launches::from_launch_to_launch;
use crate::common::{Compute, DeviceId};
use crate::device::{Capability, Card, Ceilings, Feature, Slice, Target};
use crate::optim::host;

/// The card whose rates are assumed.
const MEASURED: &str = "H200";
/// Threads that update beside a GeForce card: of eight cores all but two.
const DESKTOP_THREADS: f64 = 6.0;

#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Of large products, of large copies and of the bus.
    pub ceilings: Ceilings,
    /// Bytes per second that an update on the host reads and writes.
    pub host_update: f64,
    /// Threads of the host that update.
    pub host_threads: f64,
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
        Self { launch, ..self.with_updates() }
    }

    /// With the rate of updates on this machine's host.
    #[must_use]
    pub fn with_updates(self) -> Self {
        let host_threads = host::updating_threads() as f64;
        Self { host_update: host::rate_of_updates(), host_threads, ..self }
    }

    /// Of a GPU as an H200 with its host: launches by the steps in `results/inference`, `qlora_7b` and `strong` that wait for
    /// them, 20 to 28 µs; updates on the host by those in `results/my_card` and `qwen3`, 110 to 135 GB/s on 16 cores; ceilings as
    /// rows have them. Of a CPU as two cores of an AMD EPYC.
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
                host_threads: 1.0,
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
                host_update: 120e9,
                host_threads: 14.0,
                launch: 23e-6,
            },
        }
    }

    /// Of a part of a card: its products as people measured them on such cards or on others of its kind; of memory and bus the
    /// share of the data sheet's figure that an H200 reaches, and its host; beside a GeForce card a desktop's, whose memory is as fast
    /// as that of two cores of a server.
    pub fn of_card(card: &Card, part: Slice) -> Self {
        let gpu = Self::assumed(DeviceId::Cuda(0));
        let own = Card::named(MEASURED).expect("in the table");
        let product = |compute| Some(card.reached(compute)? * part.products);
        let bandwidth = |rate: Option<f64>| Some(rate? * card.bandwidth() / own.bandwidth() * part.memory);
        let bus = |rate: Option<f64>| Some(rate? * card.bus() / own.bus());
        let ceilings = Ceilings {
            matmul_fp32: product(Compute::Fp32),
            matmul_tf32: product(Compute::Tf32),
            matmul_bf16: product(Compute::Bf16),
            matmul_fp16: product(Compute::Fp16),
            copy: bandwidth(gpu.ceilings.copy),
            host_to_device: bus(gpu.ceilings.host_to_device),
            device_to_host: bus(gpu.ceilings.device_to_host),
            both_ways: bus(gpu.ceilings.both_ways),
            launch: None,
        };
        let (host_update, host_threads) = match card.halves_sums() {
            true => (Self::assumed(DeviceId::Cpu).host_update, DESKTOP_THREADS),
            false => (gpu.host_update, gpu.host_threads),
        };
        Self { ceilings, host_update, host_threads, ..gpu }
    }

    /// Measured on this machine within seconds, in this process, or of a card by its data sheet; `None` for a device that is
    /// described, but no card.
    pub fn measure(target: &Target, device: DeviceId, types: &[Compute]) -> Option<Self> {
        match target {
            Target::Here | Target::Hosts => Some(Self::of(device, device.ceilings(types)).with_host(device)),
            Target::Described(_) => target.card().map(|(card, part)| Self::of_card(card, part)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An H100's data sheet, by what an H200 reaches of its own, against the highest rates in the rows of `results/` that an H100
    /// measured.
    #[test]
    fn rates_of_a_card_are_within_a_tenth_of_what_it_measures() {
        let (card, part) = "h100".parse::<Target>().expect("a card").card().expect("of the table");
        let Rates { ceilings, .. } = Rates::of_card(card, part);
        for (predicted, measured) in [
            (ceilings.matmul_fp32, 52.0e12),
            (ceilings.matmul_tf32, 417e12),
            (ceilings.matmul_bf16, 804e12),
            (ceilings.matmul_fp16, 776e12),
            (ceilings.copy, 3.01e12),
            (ceilings.host_to_device, 55.3e9),
            (ceilings.device_to_host, 55.2e9),
            (ceilings.both_ways, 45.8e9),
        ] {
            let ratio = predicted.expect("a rate") / measured;
            assert!((ratio - 1.0).abs() < 0.1, "{predicted:?} {measured}: {ratio}");
        }
        let smaller = "h100, 20 GiB".parse::<Target>().expect("a card").card().expect("of the table").1;
        let of_part = Rates::of_card(card, smaller).ceilings;
        assert_eq!(of_part.copy.zip(ceilings.copy).map(|(part, whole)| part / whole), Some(0.25));
        let turing = "2080 ti".parse::<Target>().expect("a card").card().expect("of the table").0;
        assert_eq!(Rates::of_card(turing, Slice::WHOLE).ceilings.matmul_bf16, None);
    }
}
