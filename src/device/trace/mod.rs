//! What a device did when: kernels and copies with their times, as a Chrome trace and in numbers.

mod crossings;
mod host;
mod host_work;
mod profile;
mod scope;
mod summary;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use crossings::{Mark, crossings};
pub use host::HostRecording;
pub use host_work::{follow_host_work, note_host_work, take_host_work};
pub use profile::{EXCHANGE, KernelTime, Part, Profile};
pub use scope::{Follower, Scope, follow};
pub use summary::{Summary, Transfers, span};

/// One kernel or copy; on the CPU an operator without those inside of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    pub kind: ActivityKind,
    /// The kernel's name, shortened; for a copy its direction, for a mark the [`Mark`].
    pub name: String,
    /// The innermost operator that issued it, where the recording knows it.
    pub operator: Option<String>,
    /// The device's number of the stream it ran on.
    pub stream: u32,
    /// Nanoseconds on the device's clock.
    pub start: u64,
    pub end: u64,
    /// Bytes copied; 0 for a kernel.
    pub bytes: u64,
}

impl Activity {
    /// Of stream 0 until it gets another, without an operator or bytes.
    pub fn new(kind: ActivityKind, name: impl Into<String>, [start, end]: [u64; 2]) -> Self {
        Self { kind, name: name.into(), operator: None, stream: 0, start, end, bytes: 0 }
    }
}

/// The stream of what the host computes, which no device gives out.
pub const HOST: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityKind {
    /// It computes.
    Kernel,
    /// A kernel of NCCL: it moves data between ranks, or waits for another rank.
    Exchange,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// What the host computed for the step; its stream is [`HOST`].
    HostUpdate,
    /// A place in the stream of the kernels, a [`Mark`]; it computes nothing.
    Mark,
}

impl ActivityKind {
    /// Of the kernel of this name, which may be mangled.
    pub fn of_kernel(name: &str) -> Self {
        if name.contains("ncclDevKernel") { Self::Exchange } else { Self::Kernel }
    }
}

/// What a trace says of an activity besides its name and times.
#[derive(Serialize, Deserialize)]
struct Arguments {
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    operator: Option<String>,
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
            "args": Arguments { bytes: a.bytes, operator: a.operator.clone() },
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
        let Arguments { bytes, operator } = args;
        // Traces were once written without this kind.
        let kind = if cat == ActivityKind::Kernel { ActivityKind::of_kernel(&name) } else { cat };
        Ok(Activity { kind, name, operator, stream: tid, start, end, bytes })
    };
    trace.events.into_iter().enumerate().filter(|(_, event)| event["ph"] == "X").map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(kind: ActivityKind, stream: u32, start: u64, end: u64) -> Activity {
        Activity { kind, name: "x".into(), operator: None, stream, start, end, bytes: 0 }
    }

    /// Also in a trace that was written before they were told apart.
    #[test]
    fn kernels_of_nccl_compute_nothing() {
        let name = "_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE";
        let activity = Activity { name: name.into(), ..activity(ActivityKind::Kernel, 1, 0, 5) };
        let read = read_chrome_trace(&chrome_trace(&[activity]).to_string()).unwrap();
        assert_eq!(read[0].kind, ActivityKind::Exchange);
        assert_eq!(ActivityKind::of_kernel("nvjet_sm90"), ActivityKind::Kernel);
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
                operator: (i > 1).then(|| "attention".into()),
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
}
