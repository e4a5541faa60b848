//! What a device did when: kernels and copies with their times, as a Chrome trace and in numbers,
//! such as the share of copying that ran behind computation.

use std::collections::BTreeSet;

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

/// The trace in Chrome's JSON format (chrome://tracing, ui.perfetto.dev): a named lane per stream,
/// times in microseconds from the first activity.
pub fn chrome_trace(activities: &[Activity]) -> Value {
    let origin = activities.iter().map(|a| a.start).min().unwrap_or(0);
    let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let streams: BTreeSet<u32> = activities.iter().map(|a| a.stream).collect();
    let lane = |stream: u32| {
        let name = format!("stream {stream}");
        json!({ "name": "thread_name", "ph": "M", "pid": 0, "tid": stream, "args": { "name": name } })
    };
    let event = |a: &Activity| {
        json!({
            "name": a.name, "cat": a.kind, "ph": "X", "pid": 0, "tid": a.stream,
            "ts": microseconds(a.start - origin), "dur": microseconds(a.end - a.start),
            "args": { "bytes": a.bytes },
        })
    };
    let events: Vec<Value> = streams.into_iter().map(lane).chain(activities.iter().map(event)).collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}

/// The activities of a trace that [`chrome_trace`] wrote; the first one starts at 0.
///
/// # Errors
/// What is not as `chrome_trace` writes it.
pub fn read_chrome_trace(text: &str) -> Result<Vec<Activity>, String> {
    #[derive(Deserialize)]
    struct Trace {
        #[serde(rename = "traceEvents")]
        events: Vec<Value>,
    }
    #[derive(Deserialize)]
    struct Event {
        name: String,
        cat: ActivityKind,
        tid: u32,
        ts: f64,
        dur: f64,
        args: Arguments,
    }
    #[derive(Deserialize)]
    struct Arguments {
        bytes: u64,
    }
    let trace: Trace = serde_json::from_str(text).map_err(|e| format!("it is no Chrome trace: {e}"))?;
    let read = |(i, event): (usize, Value)| {
        let event: Event = serde_json::from_value(event).map_err(|e| format!("its event {i}: {e}"))?;
        // Up to here a double holds every nanosecond.
        let nanoseconds = |microseconds: f64| match (microseconds * 1e3).round() {
            ns if (0.0..=f64::powi(2.0, 53)).contains(&ns) => Ok(ns as u64),
            _ => Err(format!("its event {i}: {microseconds} µs is no time of a trace")),
        };
        let start = nanoseconds(event.ts)?;
        let end = start + nanoseconds(event.dur)?;
        let Event { name, cat, tid, args, .. } = event;
        Ok(Activity { kind: cat, name, stream: tid, start, end, bytes: args.bytes })
    };
    trace.events.into_iter().enumerate().filter(|(_, event)| event["ph"] == "X").map(read).collect()
}

/// What the activities of one step come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Nanoseconds from the start of the first activity to the end of the last.
    pub span: u64,
    pub kernels: usize,
    /// The share of the span during which a kernel ran.
    pub busy_share: f64,
    /// Nanoseconds of the longest time in which nothing ran.
    pub longest_idle: u64,
    pub to_device: Transfers,
    pub to_host: Transfers,
    /// [`hidden_transfer_share`]
    pub hidden_share: Option<f64>,
}

/// All copies in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfers {
    pub count: usize,
    pub bytes: u64,
    /// Nanoseconds during which at least one of them ran.
    pub time: u64,
}

impl Transfers {
    /// Bytes per second while copies ran; `None` without any.
    pub fn rate(self) -> Option<f64> {
        (self.time > 0).then(|| self.bytes as f64 * 1e9 / self.time as f64)
    }
}

impl Summary {
    /// `None` when the activities span no time.
    pub fn new(activities: &[Activity]) -> Option<Self> {
        let (start, end) = span(activities).filter(|(start, end)| end > start)?;
        let all = spans(activities, |_| true);
        let transfers = |kind: ActivityKind| Transfers {
            count: activities.iter().filter(|a| a.kind == kind).count(),
            bytes: activities.iter().filter(|a| a.kind == kind).map(|a| a.bytes).sum(),
            time: length(&spans(activities, |other| other == kind)),
        };
        let kernels = spans(activities, |kind| kind == ActivityKind::Kernel);
        Some(Self {
            span: end - start,
            kernels: activities.iter().filter(|a| a.kind == ActivityKind::Kernel).count(),
            busy_share: length(&kernels) as f64 / (end - start) as f64,
            longest_idle: all.windows(2).map(|pair| pair[1].0 - pair[0].1).max().unwrap_or(0),
            to_device: transfers(ActivityKind::HostToDevice),
            to_host: transfers(ActivityKind::DeviceToHost),
            hidden_share: hidden_transfer_share(activities),
        })
    }
}

/// Start of the first activity and end of the last; `None` without any.
pub fn span(activities: &[Activity]) -> Option<(u64, u64)> {
    Some((activities.iter().map(|a| a.start).min()?, activities.iter().map(|a| a.end).max()?))
}

/// The share of the time in which data crossed the bus during which a kernel ran too; `None`
/// without such copies. Overlapping copies count once.
pub fn hidden_transfer_share(activities: &[Activity]) -> Option<f64> {
    let transfers = spans(activities, ActivityKind::is_transfer);
    let kernels = spans(activities, |kind| kind == ActivityKind::Kernel);
    let total = length(&transfers);
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

/// The times during which an activity of a wanted kind ran, sorted and disjoint.
fn spans(activities: &[Activity], wanted: impl Fn(ActivityKind) -> bool) -> Vec<(u64, u64)> {
    union(activities.iter().filter(|a| wanted(a.kind)).map(|a| (a.start, a.end)).collect())
}

fn length(disjoint: &[(u64, u64)]) -> u64 {
    disjoint.iter().map(|(start, end)| end - start).sum()
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
        let events = trace["traceEvents"].as_array().expect("events");
        let lanes: Vec<&Value> =
            events.iter().filter(|e| e["ph"] == "M").map(|e| &e["args"]["name"]).collect();
        assert_eq!(lanes, ["stream 7", "stream 8"]);
        let event = &events[2];
        assert_eq!((&event["ts"], &event["dur"], &event["tid"]), (&json!(1.0), &json!(1.5), &json!(7)));
        assert_eq!(events[3]["cat"], "host_to_device");
    }

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        use ActivityKind::*;
        let activities: Vec<Activity> = [Kernel, HostToDevice, DeviceToHost, DeviceToDevice]
            .into_iter()
            .zip(0..)
            .map(|(kind, i)| Activity {
                kind,
                name: format!("void \"kernel\"<{i}>"),
                stream: i,
                // Nanoseconds that are no whole microseconds, minutes into a trace.
                start: u64::from(i) * 123_456_789_013,
                end: u64::from(i) * 123_456_789_013 + 7,
                bytes: u64::from(i) << 33,
            })
            .collect();
        assert_eq!(read_chrome_trace(&chrome_trace(&activities).to_string()), Ok(activities));
        assert_eq!(read_chrome_trace(&chrome_trace(&[]).to_string()), Ok(Vec::new()));
    }

    #[test]
    fn a_damaged_trace_says_what_is_wrong() {
        let of = |text: &str| read_chrome_trace(text).expect_err("a damaged trace");
        assert!(of("{\"traceEvents\": [{\"ph\": \"X\"").contains("no Chrome trace"));
        assert!(
            of("{\"traceEvents\": [{\"ph\": \"M\"}, {\"ph\": \"X\"}]}").contains("event 1: missing field")
        );
        let mut trace = chrome_trace(&[activity(ActivityKind::Kernel, 1, 0, 5)]);
        trace["traceEvents"][1]["dur"] = json!(-1.0);
        assert!(of(&trace.to_string()).contains("event 1: -1 µs"));
    }

    #[test]
    fn a_summary_by_hand() {
        use ActivityKind::*;
        let copy = |kind, start, end, bytes| Activity { bytes, ..activity(kind, 2, start, end) };
        let summary = Summary::new(&[
            activity(Kernel, 1, 100, 300),
            activity(Kernel, 3, 250, 400),
            activity(Kernel, 1, 500, 600),
            copy(HostToDevice, 350, 450, 1000),
            copy(HostToDevice, 400, 550, 2000),
            copy(DeviceToHost, 1000, 1100, 500),
        ]);
        let expected = Summary {
            span: 1000,
            kernels: 3,
            // Kernels run in 100..400 and 500..600.
            busy_share: 0.4,
            // Copies to the device run in 350..550: 3000 bytes in 200 ns are 15 GB/s.
            // From 600 to 1000.
            longest_idle: 400,
            to_device: Transfers { count: 2, bytes: 3000, time: 200 },
            to_host: Transfers { count: 1, bytes: 500, time: 100 },
            // 350..400 and 500..550 of 350..550 and 1000..1100.
            hidden_share: Some(100.0 / 300.0),
        };
        assert_eq!(summary, Some(expected));
        assert_eq!(Transfers { count: 2, bytes: 3000, time: 200 }.rate(), Some(15e9));
        assert_eq!(Transfers { count: 0, bytes: 0, time: 0 }.rate(), None);
        assert_eq!(Summary::new(&[]), None);
    }
}
