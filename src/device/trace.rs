//! What a device did when: kernels and copies with their times, as a Chrome trace and as the share
//! of copying that ran behind computation.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One kernel or copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    pub kind: ActivityKind,
    /// The kernel's name, shortened; for a copy its direction.
    pub name: String,
    /// The device's number of the stream it ran on.
    pub stream: u32,
    /// Nanoseconds on the device's clock.
    pub start: u64,
    pub end: u64,
    /// Bytes copied; 0 for a kernel.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityKind {
    Kernel,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
}

impl ActivityKind {
    /// Copies over the bus, which computation can hide.
    fn is_transfer(self) -> bool {
        matches!(self, Self::HostToDevice | Self::DeviceToHost)
    }
}

/// The trace in Chrome's JSON format (chrome://tracing, ui.perfetto.dev): a lane per stream, times
/// in microseconds from the first activity.
pub fn chrome_trace(activities: &[Activity]) -> Value {
    let origin = activities.iter().map(|a| a.start).min().unwrap_or(0);
    let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let events: Vec<Value> = activities
        .iter()
        .map(|a| {
            json!({
                "name": a.name, "cat": a.kind, "ph": "X", "pid": 0, "tid": a.stream,
                "ts": microseconds(a.start - origin), "dur": microseconds(a.end - a.start),
                "args": { "bytes": a.bytes },
            })
        })
        .collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}

/// The share of the time in which data crossed the bus during which a kernel ran too; `None`
/// without such copies. Overlapping copies count once.
pub fn hidden_transfer_share(activities: &[Activity]) -> Option<f64> {
    let spans = |wanted: fn(ActivityKind) -> bool| {
        union(activities.iter().filter(|a| wanted(a.kind)).map(|a| (a.start, a.end)).collect())
    };
    let transfers = spans(ActivityKind::is_transfer);
    let kernels = spans(|kind| kind == ActivityKind::Kernel);
    let total: u64 = transfers.iter().map(|(start, end)| end - start).sum();
    let (mut hidden, mut first) = (0, 0);
    for (start, end) in transfers {
        // Both lists are sorted: kernels that ended before this transfer are over for all later.
        while first < kernels.len() && kernels[first].1 <= start {
            first += 1;
        }
        for kernel in kernels[first..].iter().take_while(|kernel| kernel.0 < end) {
            hidden += end.min(kernel.1) - start.max(kernel.0);
        }
    }
    (total > 0).then(|| hidden as f64 / total as f64)
}

/// Sorted disjoint spans that cover the same times.
fn union(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in spans {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(kind: ActivityKind, stream: u32, start: u64, end: u64) -> Activity {
        Activity { kind, name: "x".into(), stream, start, end, bytes: 0 }
    }

    #[test]
    fn hidden_share_counts_overlapping_spans_once() {
        use ActivityKind::*;
        let activities = [
            activity(Kernel, 1, 0, 10),
            activity(Kernel, 2, 5, 20),
            activity(Kernel, 1, 30, 40),
            activity(HostToDevice, 3, 10, 35),
            activity(DeviceToHost, 4, 15, 25),
            activity(DeviceToDevice, 1, 100, 200),
        ];
        // Transfers cover 10..35; kernels cover 0..20 and 30..40, so 10..20 and 30..35 are hidden.
        assert_eq!(hidden_transfer_share(&activities), Some(15.0 / 25.0));
        assert_eq!(hidden_transfer_share(&activities[..3]), None);
    }

    #[test]
    fn chrome_events_start_at_zero_in_microseconds() {
        let trace = chrome_trace(&[
            activity(ActivityKind::Kernel, 7, 5_000, 6_500),
            activity(ActivityKind::HostToDevice, 8, 4_000, 9_000),
        ]);
        let event = &trace["traceEvents"][0];
        assert_eq!((&event["ts"], &event["dur"], &event["tid"]), (&json!(1.0), &json!(1.5), &json!(7)));
        assert_eq!(trace["traceEvents"][1]["cat"], "host_to_device");
    }
}
