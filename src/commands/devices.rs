//! `runner devices`: what this machine can run on, and how fast it measured.

use miette::{Result, miette};

use crate::advise::Rates;
use crate::words::{Bytes, Compute};
use crate::words::{DeviceId, text};

/// A table of devices with memory, measured matmul rate per compute type, copy rates, the rate of updates on the host, and the
/// time from one kernel's launch to the next.
pub fn list() -> String {
    let types = [Compute::Fp32, Compute::Tf32, Compute::Bf16, Compute::Fp16];
    let rates = types.map(|t| format!("{} GFLOP/s", t.into_str()));
    let mut header = vec!["device", "name", "cores", "threads", "memory", "available"];
    header.extend(rates.iter().map(String::as_str));
    header.extend([
        "copy GB/s",
        "to device GB/s",
        "to host GB/s",
        "both ways GB/s",
        "host update GB/s",
        "launch us",
        "driver",
        "CUDA",
        "compute capability",
    ]);
    let lines = DeviceId::all()
        .into_iter()
        .map(|id| {
            let info = id.info();
            let ceilings = id.ceilings(&types);
            let rates = Rates::of(id, ceilings).with_host(id);
            let giga = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |r| format!("{:.1}", r / 1e9));
            let mut line = vec![
                info.id,
                info.name,
                info.cores.to_string(),
                info.threads.to_string(),
                Bytes(info.memory_total).to_string(),
                Bytes(info.memory_available).to_string(),
            ];
            line.extend(types.iter().map(|t| giga(ceilings.matmul(*t))));
            line.extend(
                [ceilings.copy, ceilings.host_to_device, ceilings.device_to_host, ceilings.both_ways]
                    .map(giga),
            );
            line.extend([format!("{:.1}", rates.host_update / 1e9), format!("{:.1}", rates.launch * 1e6)]);
            line.extend([info.driver, info.cuda, info.compute_capability].map(|v| v.unwrap_or("-".into())));
            line
        })
        .collect();
    text::table(&header, lines, 2)
}

/// `runner ceilings`: a device's rates as JSON, measured in this process.
///
/// # Errors
/// When the device is not there.
pub fn ceilings(device: &str, types: &[Compute]) -> Result<String> {
    let device = DeviceId::resolve(device).map_err(|rule| miette!(help = rule.help, "{}", rule.message))?;
    Ok(serde_json::to_string(&device.ceilings(types)).expect("plain data"))
}
