//! A trace as a file: Chrome's JSON format, compressed.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Activity, ActivityKind};
use crate::common::Bytes;

/// The folder of the traces in a results folder.
pub const FOLDER: &str = "traces";

/// What a trace says of an activity besides its name and times.
#[derive(Serialize, Deserialize)]
struct Arguments {
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    operator: Option<String>,
}

/// The file of the trace of the row with this key, in a results folder.
pub fn path(results: &Path, key: &str) -> PathBuf {
    results.join(FOLDER).join(format!("{key}.json.gz"))
}

/// The trace in Chrome's JSON format, compressed by gzip, which both viewers read (ui.perfetto.dev, chrome://tracing):
/// a step has thousands of kernels with the same few names. The same activities make the same bytes.
pub fn chrome_trace(activities: &[Activity]) -> Vec<u8> {
    compressed(&trace(activities))
}

fn compressed(trace: &Value) -> Vec<u8> {
    let mut file = GzEncoder::new(Vec::new(), Compression::best());
    serde_json::to_writer(&mut file, trace).expect("a trace is plain data, and memory takes it");
    file.finish().expect("memory takes it")
}

/// A named lane per stream, times in microseconds from the first activity.
fn trace(activities: &[Activity]) -> Value {
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

/// Bytes that a trace has at most when it is unzipped, a hundred times those of a long step: a small file can unzip to more
/// than a machine has memory.
const MOST_BYTES: u64 = 1 << 30;

fn unzipped(file: &[u8], most: u64) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let unzipped = GzDecoder::new(file).take(most + 1).read_to_end(&mut text);
    unzipped.map_err(|e| format!("it is not compressed by gzip: {e}"))?;
    match text.len() as u64 > most {
        true => Err(format!("it unzips to more than {}, and no trace of a step is that long", Bytes(most))),
        false => Ok(text),
    }
}

/// The activities of a trace that [`chrome_trace`] wrote; the first one starts at 0.
///
/// # Errors
/// What is not as `chrome_trace` writes it.
pub fn read_chrome_trace(file: &[u8]) -> Result<Vec<Activity>, String> {
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
    let text = unzipped(file, MOST_BYTES)?;
    let trace: Trace = serde_json::from_slice(&text).map_err(|e| format!("it is no Chrome trace: {e}"))?;
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
        Activity { stream, ..Activity::new(kind, "x", [start, end]) }
    }

    /// Also in a trace that was written before they were told apart.
    #[test]
    fn kernels_of_nccl_compute_nothing() {
        let name = "_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE";
        let activity = Activity { name: name.into(), ..activity(ActivityKind::Kernel, 1, 0, 5) };
        let read = read_chrome_trace(&chrome_trace(&[activity])).unwrap();
        assert_eq!(read[0].kind, ActivityKind::Exchange);
        assert_eq!(ActivityKind::of_kernel("nvjet_sm90"), ActivityKind::Kernel);
    }

    /// Nothing beyond the limit is unzipped.
    #[test]
    fn a_trace_that_unzips_to_too_much_is_refused() {
        let mut file = GzEncoder::new(Vec::new(), Compression::best());
        std::io::copy(&mut std::io::repeat(b' ').take(5000), &mut file).unwrap();
        let file = file.finish().unwrap();
        assert!(file.len() < 100);
        assert_eq!(unzipped(&file, 5000).map(|text| text.len()), Ok(5000));
        let refused = unzipped(&file, 4999).unwrap_err();
        assert!(refused.contains("unzips to more than 4.88 KiB"), "{refused}");
    }

    #[test]
    fn chrome_events_start_at_zero_in_microseconds() {
        let trace = trace(&[
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
        assert_eq!(read_chrome_trace(&chrome_trace(&activities)), Ok(activities));
        assert_eq!(read_chrome_trace(&chrome_trace(&[])), Ok(Vec::new()));
    }

    #[test]
    fn a_damaged_trace_says_what_is_wrong() {
        let of = |file: &[u8]| read_chrome_trace(file).expect_err("a damaged trace");
        let events = |events: Value| of(&compressed(&json!({ "traceEvents": events })));
        let whole = chrome_trace(&[activity(ActivityKind::Kernel, 1, 0, 5)]);
        assert!(of(b"{}").contains("not compressed by gzip"));
        assert!(of(&whole[..whole.len() / 2]).contains("not compressed by gzip"));
        assert!(of(&compressed(&json!([1]))).contains("no Chrome trace"));
        assert!(events(json!([{ "ph": "M" }, { "ph": "X" }])).contains("event 1: missing field"));
        let mut trace = trace(&[activity(ActivityKind::Kernel, 1, 0, 5)]);
        trace["traceEvents"][1]["dur"] = json!(-1.0);
        assert!(of(&compressed(&trace)).contains("event 1: -1 µs"));
    }
}
