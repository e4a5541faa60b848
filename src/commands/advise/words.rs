//! [`Words`]: a way of training in the words of a sentence and of a table.

use super::question::Question;
use crate::common::DeviceId;
use crate::common::text::{significant, value};
use crate::device::Target;
use crate::ops::Level;
use crate::params::tuning::TuningConfig;
use crate::precision::ScalerConfig;
use crate::recipe::Cell;
use crate::residence::{Memory, ResidentBlocks, Strategy};

pub struct Words<'c>(pub &'c Cell);

impl Words<'_> {
    /// `Train Qwen2.5-1.5B with 8-bit AdamW, every block recomputed, in steps of 16 x 1024 tokens by micro-batches of 2`
    pub fn sentence(&self, question: &Question) -> String {
        let train = &self.0.train;
        let mut text = match (train.mode.trains(), train.optimizer.rule()) {
            (false, _) => format!("Run forward of {}", model(question)),
            (true, None) => format!("Run forward and backward of {}", model(question)),
            (true, Some(_)) => format!("Train {} with {}", model(question), self.trained_by()),
        };
        let moving = self.moving().map(|blocks| format!("{blocks} on the host"));
        let recomputed = self.recomputed().map(|what| format!("{what} recomputed"));
        moving.into_iter().chain(recomputed).for_each(|how| text += &format!(", {how}"));
        let sequences = train.batch_size * train.accumulation_steps;
        text += &format!(", in steps of {sequences} x {} tokens", train.seq_len);
        if train.accumulation_steps > 1 {
            text += &format!(" by micro-batches of {}", train.batch_size);
        }
        text
    }

    pub fn trained_by(&self) -> String {
        let kind = self.0.settings().get("train.optimizer.kind").map_or_else(String::new, value);
        let optimizer = match kind.as_str() {
            "adamw" => "AdamW",
            "adamw8bit" => "8-bit AdamW",
            "adamw_bf16" => "AdamW with bf16 moments",
            "adafactor" => "Adafactor",
            "sgd" => "SGD",
            "none" => "no update",
            other => other,
        };
        let place = if self.0.offload.optimizer == Memory::Host { " on the host" } else { "" };
        let method = match &self.0.tuning {
            TuningConfig::Full(_) => return format!("{optimizer}{place}"),
            TuningConfig::Lora(lora) => format!("LoRA of rank {}", lora.rank),
            TuningConfig::QLora(lora) => format!("QLoRA of rank {}", lora.0.rank),
            other => <&str>::from(other).into(),
        };
        // Few parameters mostly have AdamW.
        if kind.starts_with("adamw") { method } else { format!("{method}, {optimizer}") }
    }

    /// `bf16, 16 bits beside`
    pub fn weights(&self) -> String {
        let precision = &self.0.precision;
        let compute = precision.compute.into_str();
        let scale = match precision.scaler {
            None => "",
            Some(ScalerConfig::Static(_)) => ", static scale",
            Some(ScalerConfig::Dynamic(_)) => ", dynamic scale",
        };
        let weights = match (precision.autocast, self.0.tuning.packs()) {
            (true, true) => format!("4 bits, {compute} products"),
            (true, false) => format!("fp32, {compute} products"),
            (false, true) => format!("4 bits, {compute}"),
            (false, false) => compute.to_string(),
        };
        let master = match self.0.offload.optimizer {
            Memory::Host if precision.stored_bytes() == 2 => ", fp32 on the host",
            _ if self.0.train.optimizer.keeps_remainders() && self.0.tuning.is_full() => ", 16 bits beside",
            _ => "",
        };
        format!("{weights}{scale}{master}")
    }

    /// What backward computes again, besides blocks that move.
    fn recomputed(&self) -> Option<String> {
        let level = match self.0.checkpoint.level {
            Level::Keep => None,
            Level::Elementwise => Some("the gate".to_string()),
            Level::Full => Some("the MLP".into()),
        };
        let blocks = match (self.0.checkpoint.blocks, self.0.offload.resident_blocks) {
            (0, _) => None,
            (_, ResidentBlocks::Count(0)) if self.0.offload.moves() => None,
            (_, ResidentBlocks::Count(_)) if self.moving().is_some() && level.is_some() => {
                return level.map(|level| format!("the others and {level}"));
            }
            (_, ResidentBlocks::Count(_)) if self.moving().is_some() => Some("the others".into()),
            (1, _) => Some("every block".into()),
            (n, _) => Some(format!("{n} blocks at a time")),
        };
        let parts: Vec<String> = blocks.into_iter().chain(level).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// `11 of 28 blocks`, of those that move.
    fn moving(&self) -> Option<String> {
        let all = self.0.model.decoder().map_or(0, |shape| shape.layers);
        match self.0.offload.resident_blocks {
            _ if !self.0.offload.moves() => None,
            ResidentBlocks::Count(0) => Some("all blocks".into()),
            ResidentBlocks::Count(count) if count == all => None,
            ResidentBlocks::Count(count) => Some(format!("{} of {all} blocks", all - count)),
            ResidentBlocks::Auto => Some("blocks as needed".into()),
        }
    }

    /// How memory is saved.
    pub fn saves(&self) -> String {
        let offload = self.0.offload;
        let recomputed = self.recomputed().map(|what| format!("{what} recomputed"));
        let slots = match offload.strategy {
            Strategy::Overlap(overlap) => format!(" {}", overlap.buffers),
            _ => String::new(),
        };
        let inputs = if offload.activations == Memory::Host { ", inputs too" } else { "" };
        let moved = match self.moving() {
            Some(moving) => Some(format!("{}{slots}: {moving} on the host{inputs}", offload.strategy)),
            // Every block stays; the host updates each as soon as its gradients have come.
            None => offload.moves().then(|| "updates during backward".to_string()),
        };
        let parts: Vec<String> = moved.into_iter().chain(recomputed).collect();
        if parts.is_empty() { "-".into() } else { parts.join(", ") }
    }

    pub fn micro_batches(&self) -> String {
        let train = &self.0.train;
        let as_graph = if train.graph { ", graph" } else { "" };
        format!("{} of {}{as_graph}", train.accumulation_steps, train.batch_size)
    }
}

/// The model that is asked about: its name, that of its preset or its folder, or its kind.
pub fn model(question: &Question) -> String {
    if let Some(named) = &question.named {
        return named.name.clone();
    }
    let cell = question.cell();
    let settings = cell.settings();
    let preset = settings.get("model.preset").filter(|preset| !preset.is_null()).map(value);
    let folder = cell.model.weights_folder().and_then(|folder| folder.file_name());
    let folder = folder.map(|name| name.to_string_lossy().into_owned());
    let kind = || format!("the {} model", settings.get("model.kind").map_or_else(String::new, value));
    folder.or(preset).unwrap_or_else(kind)
}

/// `the RTX 3060`, or the device by its name here.
pub fn device(question: &Question) -> String {
    let cell = question.cell();
    match (question.target.card(), &question.target) {
        (Some((card, _)), _) => format!("the {}", card.name),
        (None, Target::Here | Target::Hosts) => {
            format!("the {}", question.target.info(cell.device_id()).name)
        }
        (None, Target::Described(_)) if cell.device_id() == DeviceId::Cpu => "the CPU".into(),
        (None, Target::Described(_)) => "the GPU".into(),
    }
}

/// `95 s`, `12 min`, `5.1 h`, `3.2 days`
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{} s", significant(s)),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 48.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_a_reader_counts_in() {
        let of = [
            (1.234, "1.23 s"),
            (119.0, "119 s"),
            (600.0, "10 min"),
            (18_360.0, "5.1 h"),
            (276_480.0, "3.2 days"),
        ];
        of.into_iter().for_each(|(seconds, text)| assert_eq!(duration(seconds), text));
    }
}
