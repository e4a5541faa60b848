//! `runner devices`: the devices of this machine, their measured rates and the libraries that GPUs need.

use miette::Result;

use crate::advise::{Rates, from_launch_to_launch};
use crate::common::refusal::{Refusal, unless_refused};
use crate::common::{Bytes, Compute, DeviceId, text};
use crate::device::cuda::libraries;
use crate::device::{Card, Ceilings};

/// A property of a device; `None` where it has none.
type Property = (String, Option<String>);

/// A column for each device: memory, measured rates of matrix products in each compute type, of copies and of updates on the
/// host, and the time from one kernel's launch to the next. What no device has is left out. A table of libraries follows, and
/// why a GPU cannot be used.
pub fn list() -> String {
    let ids = DeviceId::all();
    let devices: Vec<_> = ids.iter().map(|id| properties(*id)).collect();
    let names = devices[0].0.iter().map(|(name, _)| name);
    let lines = names.enumerate().filter_map(|(row, name)| {
        let values: Vec<Option<&String>> = devices.iter().map(|(own, _)| own[row].1.as_ref()).collect();
        let or_none = |value: &Option<&String>| value.map_or_else(|| "-".into(), String::clone);
        let line = [name.clone()].into_iter().chain(values.iter().map(or_none));
        values.iter().any(Option::is_some).then(|| line.collect())
    });
    let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let header: Vec<&str> = ["device"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut out = format!("{}\n\n{}", text::table(&header, lines.collect(), 1), libraries::table());
    for (id, (_, refusal)) in ids.iter().zip(&devices) {
        if let Some(Refusal(reason)) = refusal {
            out += &format!("\n\n{id} cannot be used: {reason}");
        }
    }
    out
}

/// A line for each card of the table, and where its figures are from.
pub fn cards() -> String {
    let header = [
        "card",
        "memory",
        "capability",
        "GB/s",
        "bus, GB/s",
        "fp32",
        "tf32",
        "fp16",
        "bf16",
        "int8",
        "fp8",
        "source",
    ];
    let line = |card: &Card| {
        let products = card.products;
        let of_types =
            [Some(products.fp32), products.tf32, products.fp16, products.bf16, products.int8, products.fp8];
        let mut line =
            vec![card.name.clone(), Bytes(card.memory()).to_string(), card.capability().to_string()];
        line.extend([card.bandwidth(), card.bus()].map(|rate| format!("{:.1}", rate / 1e9)));
        line.extend(of_types.map(|tera| tera.map_or_else(|| "-".into(), |tera| format!("{tera:.1}"))));
        line.push(card.source.clone());
        line
    };
    let table = text::table(&header, Card::all().iter().map(line).collect(), 1);
    let sources = Card::sources().map(|(name, url)| format!("{name}: {url}"));
    format!(
        "{table}\nproducts of dense matrices in TFLOP/s, in int8 TOP/s; memory as nvidia-smi counts it\n{}",
        sources.collect::<Vec<_>>().join("\n")
    )
}

/// In the same order for every device, and why the device cannot be used.
fn properties(id: DeviceId) -> (Vec<Property>, Option<Refusal>) {
    let types = [Compute::Fp32, Compute::Tf32, Compute::Bf16, Compute::Fp16];
    let info = id.info();
    let measured = unless_refused(|| {
        let ceilings = id.ceilings(&types);
        (ceilings, Rates::of(id, ceilings).with_host(id))
    });
    let (measured, refusal) = match measured {
        Ok(measured) => (Some(measured), None),
        Err(refusal) => (None, Some(refusal)),
    };
    let ceilings = measured.map(|(ceilings, _)| ceilings).unwrap_or_default();
    let rates = measured.map(|(_, rates)| rates);
    let giga = |rate: Option<f64>| rate.map(|rate| format!("{:.1}", rate / 1e9));
    let products = types.map(|compute| {
        (format!("products in {}, GFLOP/s", compute.into_str()), giga(ceilings.matmul(compute)))
    });
    let before = [
        ("name", Some(info.name)),
        ("cores", Some(info.cores.to_string())),
        ("threads of the host", Some(info.threads.to_string())),
        ("memory", Some(Bytes(info.memory_total).to_string())),
        ("free memory", Some(Bytes(info.memory_available).to_string())),
        ("driver", info.driver),
        ("CUDA", info.cuda),
        ("compute capability", info.compute_capability),
    ];
    let after = [
        ("copies on the device, GB/s", giga(ceilings.copy)),
        ("copies to the device, GB/s", giga(ceilings.host_to_device)),
        ("copies to the host, GB/s", giga(ceilings.device_to_host)),
        ("copies both ways at once, GB/s", giga(ceilings.both_ways)),
        ("AdamW on the host, GB/s", giga(rates.map(|rates| rates.host_update))),
        ("from launch to launch, µs", rates.map(|rates| format!("{:.1}", rates.launch * 1e6))),
    ];
    let named = |(name, value): (&str, Option<String>)| (name.to_string(), value);
    let all = before.map(named).into_iter().chain(products).chain(after.map(named)).collect();
    (all, refusal)
}

/// `runner ceilings`: a device's rates as JSON, measured in this process.
///
/// # Errors
/// When the device is not there.
pub fn ceilings(device: &str, types: &[Compute]) -> Result<String> {
    let device = super::device(device)?;
    let ceilings = device.ceilings(types);
    // The other rates are known where the device cannot run the step that this takes.
    let launch = std::panic::catch_unwind(|| from_launch_to_launch(device)).ok();
    let ceilings = Ceilings { launch, ..ceilings };
    Ok(serde_json::to_string(&ceilings).expect("plain data"))
}
