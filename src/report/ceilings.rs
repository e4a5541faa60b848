//! The measured ceilings of each device as a sentence.

use itertools::Itertools;

use super::alike::groups;
use crate::common::text::{seconds, significant};
use crate::row::Ceilings;
use crate::row::Environment;

/// A rate by its name and unit.
type Rate = (&'static str, fn(&Ceilings) -> Option<f64>, &'static str);

const RATES: [Rate; 8] = [
    ("matmul fp32", |c| c.matmul_fp32, "FLOP/s"),
    ("matmul tf32", |c| c.matmul_tf32, "FLOP/s"),
    ("matmul bf16", |c| c.matmul_bf16, "FLOP/s"),
    ("matmul fp16", |c| c.matmul_fp16, "FLOP/s"),
    ("copy", |c| c.copy, "B/s (bytes read and written)"),
    ("pinned copy to the device", |c| c.host_to_device, "B/s"),
    ("pinned copy to the host", |c| c.device_to_host, "B/s"),
    ("pinned copy each way at once", |c| c.both_ways, "B/s"),
];

/// `Measured ceilings of GPU: matmul fp32 50.0 to 51.3 TFLOP/s, copy 4242 GB/s (bytes read and written); …`, one for each device: a
/// device may have been measured several times, and then its highest rates count.
pub fn sentences<'e>(environments: impl Iterator<Item = &'e Environment>) -> Vec<String> {
    let sentence = |measured: Vec<&Environment>| {
        let ranges: Vec<(String, bool)> = RATES.iter().filter_map(|rate| range(rate, &measured)).collect();
        let parts = ranges.iter().map(|(range, _)| range.clone()).chain(launch(&measured)).join(", ");
        let parts = if parts.is_empty() { "not measured" } else { &parts };
        let several = if ranges.iter().any(|(_, is_wide)| *is_wide) {
            "; floors and shares are of the highest"
        } else {
            ""
        };
        format!("Measured ceilings of {}: {parts}{several}", measured[0].device.name)
    };
    groups(environments, |a, b| a.device.name == b.device.name).into_iter().map(sentence).collect()
}

/// From one small kernel to the next: a step that takes less than this for each of its kernels waits for its host.
fn launch(measured: &[&Environment]) -> Option<String> {
    let times = measured.iter().filter_map(|environment| environment.ceilings.launch);
    let (least, most) = times.minmax_by(f64::total_cmp).into_option()?;
    let [least, most] = [least, most].map(seconds);
    Some(format!(
        "{} for the host to launch a kernel",
        if least == most { most } else { format!("{least} to {most}") }
    ))
}

/// The rate as one number, or from the least to the highest, and whether these differ.
fn range((name, of, unit): &Rate, measured: &[&Environment]) -> Option<(String, bool)> {
    let rates = measured.iter().filter_map(|environment| of(&environment.ceilings));
    let (least, most) = rates.minmax_by(f64::total_cmp).into_option()?;
    let tera = most >= 1e12 && *unit == "FLOP/s";
    let (prefix, size) = if tera { ("T", 1e12) } else { ("G", 1e9) };
    let [least, most] = [least, most].map(|rate| significant(rate / size));
    let is_wide = least != most;
    let range = if is_wide { format!("{least} to {most}") } else { most };
    Some((format!("{name} {range} {prefix}{unit}"), is_wide))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::environment;

    #[test]
    fn each_device_has_its_own_ceilings_and_each_rate_is_named_once() {
        let measured = |name: &str, matmul: f64| {
            let mut environment = environment();
            environment.device.name = name.into();
            environment.ceilings =
                Ceilings { matmul_fp32: Some(matmul), copy: Some(10e9), ..Ceilings::default() };
            environment
        };
        let mut all = [measured("GPU", 51.3e12), measured("CPU", 180e9), measured("GPU", 50e12)];
        (all[0].ceilings.launch, all[2].ceilings.launch) = (Some(30.2e-6), Some(40.3e-6));
        assert_eq!(
            sentences(all.iter()),
            [
                "Measured ceilings of GPU: matmul fp32 50.0 to 51.3 TFLOP/s, copy 10.0 GB/s (bytes read and written), \
                 30.2 µs to 40.3 µs for the host to launch a kernel; floors and shares are of the highest",
                "Measured ceilings of CPU: matmul fp32 180 GFLOP/s, copy 10.0 GB/s (bytes read and written)",
            ]
        );
    }
}
