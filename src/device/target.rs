//! [`Target`]: what a recipe is checked and planned for: this machine, or a device that the user describes, so
//! that a laptop checks what a cluster will run.

use std::str::FromStr;

use super::{Capability, Card, DeviceInfo, Feature, Slice, cuda};
use crate::common::{Bytes, DeviceId};
use crate::keys::Rule;

/// Where the cells of a recipe are to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Target {
    /// On this machine's devices.
    #[default]
    Here,
    /// On this machine's devices and those of other hosts, of which nothing is known here.
    Hosts,
    /// On a device that need not be here.
    Described(Description),
}

/// A device in the words of `--for`.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// [`DeviceId::Cpu`], or the GPU with the number 0.
    device: DeviceId,
    /// Bytes that are free there; `None`: not known.
    memory: Option<Bytes>,
    /// Of a GPU; `None`: one that has every feature.
    capability: Option<Capability>,
    card: Option<&'static Card>,
}

const GRAMMAR: &str = "write a card such as \"rtx 3060\", \"cpu\" or \"cuda\", and after it, separated by commas, what is known: \
                       the memory such as 11 GiB, and of \"cuda\" the architecture such as sm_75 (compute capability 7.5)";

/// Bytes that the driver and a process's context take of what nvidia-smi counts: of an H100's 81,559 MiB 1.06 GB.
const TAKEN: u64 = 1_060_000_000;

impl FromStr for Target {
    type Err = String;

    /// `cpu[, MEMORY]`, `cuda[, MEMORY][, sm_XY]` or `CARD[, MEMORY]`
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let (device, card) = match parts.next().unwrap_or_default() {
            "cpu" => (DeviceId::Cpu, None),
            "cuda" => (DeviceId::Cuda(0), None),
            name => (DeviceId::Cuda(0), Some(Card::named(name).map_err(|e| format!("{e}; {GRAMMAR}"))?)),
        };
        let capability = card.map(Card::capability);
        let mut described = Description { device, memory: None, capability, card };
        for part in parts {
            let of_gpu = part.strip_prefix("sm_").filter(|_| device != DeviceId::Cpu && card.is_none());
            let twice = match of_gpu {
                Some(number) => {
                    described.capability.replace(Capability::of_number(number).ok_or(GRAMMAR)?).is_some()
                }
                None => described.memory.replace(Bytes::parse(part).ok_or(GRAMMAR)?).is_some(),
            };
            if twice {
                return Err(GRAMMAR.into());
            }
        }
        if let (Some(card), Some(memory)) = (card, described.memory)
            && memory.0 > card.memory()
        {
            return Err(format!("the {} has {} of memory", card.name, Bytes(card.memory())));
        }
        Ok(Self::Described(described))
    }
}

impl Target {
    /// The device that a recipe's `device` value names there.
    ///
    /// # Errors
    /// When there is no such device; lists those there are.
    pub fn resolve(&self, name: &str) -> Result<DeviceId, Rule> {
        let Self::Described(described) = self else { return DeviceId::resolve(name) };
        match (name, DeviceId::gpu(name), described.device) {
            ("auto", _, device) => Ok(device),
            ("cpu", ..) => Ok(DeviceId::Cpu),
            (_, Some(gpu), DeviceId::Cuda(_)) => Ok(gpu),
            (_, gpu, device) => {
                let rule = Rule::new(
                    &["device"],
                    format!(
                        "the device \"{name}\" is not there: --for describes a machine with \"{device}\""
                    ),
                    "use device = \"auto\", or describe another device with --for",
                );
                Err(Rule { elsewhere: gpu.is_some(), ..rule })
            }
        }
    }

    /// Whether the device is there; of GPUs of a described machine nobody knows how many there are.
    pub fn has(&self, device: DeviceId) -> bool {
        match (self, device) {
            (Self::Here | Self::Hosts, DeviceId::Cuda(ordinal)) => ordinal < cuda::count(),
            (Self::Here | Self::Hosts, DeviceId::Cpu) | (Self::Described(_), _) => true,
        }
    }

    /// How many GPUs there are; `None` where nobody knows.
    pub fn gpus(&self) -> Option<usize> {
        (*self == Self::Here).then(cuda::count)
    }

    /// The same machine with tensor cores for every precision; `None` if nothing is known of its own.
    pub fn of_any_capability(&self) -> Option<Self> {
        match self {
            Self::Described(described) => {
                Some(Self::Described(Description { capability: None, ..described.clone() }))
            }
            Self::Here if cuda::count() > 0 => Some(Self::Described(Description {
                device: DeviceId::Cuda(0),
                memory: None,
                capability: None,
                card: None,
            })),
            Self::Here | Self::Hosts => None,
        }
    }

    /// The card of the table that is described, and which part of it.
    pub fn card(&self) -> Option<(&'static Card, Slice)> {
        let Self::Described(Description { memory, card, .. }) = self else { return None };
        card.map(|card| (card, memory.map_or(Slice::WHOLE, |memory| card.slice(memory.0))))
    }

    /// What is known of a device there; memory of 0 bytes is not known.
    pub fn info(&self, device: DeviceId) -> DeviceInfo {
        let (memory, card) = match self {
            Self::Here | Self::Hosts if self.has(device) => return device.info(),
            Self::Here | Self::Hosts => (0, None),
            Self::Described(described) => {
                // Nothing is known of the CPU of a described GPU.
                let same_kind = (device == DeviceId::Cpu) == (described.device == DeviceId::Cpu);
                let card = described.card.filter(|_| same_kind);
                let own = card.map_or(0, |card| card.memory() - TAKEN);
                (described.memory.filter(|_| same_kind).map_or(own, |memory| memory.0), card)
            }
        };
        DeviceInfo {
            id: device.to_string(),
            name: card.map_or("described", |card| &card.name).into(),
            memory_total: memory,
            memory_available: memory,
            ..DeviceInfo::default()
        }
    }

    /// The compute capability of a device there; `None` where nobody knows it, and of a CPU.
    pub fn capability(&self, device: DeviceId) -> Option<Capability> {
        match (self, device) {
            (_, DeviceId::Cpu) => None,
            (Self::Here | Self::Hosts, DeviceId::Cuda(ordinal)) => {
                self.has(device).then(|| cuda::capability(ordinal))
            }
            (Self::Described(described), DeviceId::Cuda(_)) => described.capability,
        }
    }

    /// Refuses what the device lacks.
    pub(crate) fn check(
        &self,
        device: DeviceId,
        key: &'static str,
        need: Feature,
        help: &str,
    ) -> Result<(), Rule> {
        match self.capability(device).filter(|capability| !capability.has(need)) {
            None => Ok(()),
            Some(has) => Err(Rule::elsewhere(&[key], format!("{need}, and {device} has {has}"), help)),
        }
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
