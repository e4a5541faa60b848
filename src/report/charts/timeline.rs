//! Steps of several cells above one another: a lane for each stream of a device.

use std::collections::BTreeMap;

use super::lanes::{LANE, Lane, Section};
use super::prelude::*;
use crate::common::text::{percent, seconds};
use crate::measure::trace::{Activity, ActivityKind, Summary, span};

/// Strength of the colour of a pixel in which a lane was busy for a third, two thirds and all of its time.
const STRENGTHS: [f64; 3] = [0.4, 0.7, 1.0];

/// What streams do, in the order of their lanes, and the place of each among the colours of methods.
const WORK: [(ActivityKind, &str, usize); 6] = [
    (ActivityKind::Kernel, "compute", 0),
    (ActivityKind::Exchange, "between ranks", 7),
    (ActivityKind::HostToDevice, "host to device", 4),
    (ActivityKind::DeviceToHost, "device to host", 3),
    (ActivityKind::DeviceToDevice, "on the device", 5),
    (ActivityKind::HostUpdate, "host update", 2),
];

/// The work of a stream.
struct Stream<'t> {
    name: String,
    /// Index into [`WORK`] of what took most of its time.
    work: usize,
    activities: Vec<&'t Activity>,
}

/// `None` of fewer than two cells whose activities take time.
///
/// # Errors
/// When Plotters cannot draw.
pub fn compared(name: &str, title: &str, cells: &[(String, &[Activity])]) -> Result<Option<Chart>> {
    let steps = cells.iter().filter_map(|(cell, activities)| {
        let (summary, (start, _)) = (Summary::new(activities)?, span(activities)?);
        let heading = format!("{cell}: {}", facts(&summary));
        let lanes = streams(activities).into_iter().map(|stream| stream.lane(start, summary.span)).collect();
        Some((summary.span, Section { heading, lanes }))
    });
    let (lengths, sections): (Vec<u64>, Vec<Section>) = steps.unzip();
    if sections.len() < 2 {
        return Ok(None);
    }
    let longest = lengths.into_iter().max().unwrap_or(1) as f64 * 1e-9;
    let svg = super::lanes::lanes(title, &Legend::default(), longest, &sections)?;
    let caption = format!(
        "{title}, on one axis of time. A lane is a stream of the device, paler where it was idle for part of the time."
    );
    Ok(Some(Chart { name: name.into(), caption, svg }))
}

/// One for each stream, named after what most of its time was; computation first, then copies to the device and from it.
fn streams(activities: &[Activity]) -> Vec<Stream<'_>> {
    let mut streams: BTreeMap<u32, Vec<&Activity>> = BTreeMap::new();
    for activity in activities.iter().filter(|activity| activity.kind != ActivityKind::Mark) {
        streams.entry(activity.stream).or_default().push(activity);
    }
    let work = |activities: &[&Activity]| {
        let time = |kind| activities.iter().filter(|a| a.kind == kind).map(|a| a.end - a.start).sum::<u64>();
        // The last of equals would be taken: copies are no computation.
        (0..WORK.len()).rev().max_by_key(|&work| time(WORK[work].0)).unwrap_or(0)
    };
    let mut found: Vec<(usize, u32, Vec<&Activity>)> =
        streams.into_iter().map(|(stream, activities)| (work(&activities), stream, activities)).collect();
    found.sort_by_key(|(work, stream, _)| (*work, *stream));
    let count = |work: usize| found.iter().filter(|(other, ..)| *other == work).count();
    let counts: Vec<usize> = (0..WORK.len()).map(count).collect();
    let lane = |(work, stream, activities): (usize, u32, Vec<_>)| {
        let number = if counts[work] > 1 { format!(", stream {stream}") } else { String::new() };
        Stream { name: format!("{}{number}", WORK[work].1), work, activities }
    };
    found.into_iter().map(lane).collect()
}

impl<'t> Stream<'t> {
    /// The lane of a step of this start and length, in nanoseconds.
    fn lane(self, start: u64, length: u64) -> Lane<'t> {
        let color = |strength: usize| tint(method_color(WORK[self.work].2), STRENGTHS[strength]);
        let colors = [0, 1, 2].map(color);
        let draw = move |canvas: &Canvas, at: &dyn Fn(f64) -> i32, y: i32| {
            let left = at(0.0);
            let pixels = (at(length as f64 * 1e-9) - left).max(1) as usize;
            runs(&self.activities, start, length, pixels).into_iter().try_for_each(|run| {
                let [from, to] = [run.from, run.to].map(|pixel| left + pixel as i32);
                canvas.rect((from, y + 3), (to, y + LANE - 3), colors[run.strength])
            })
        };
        Lane { name: self.name, draw: Box::new(draw) }
    }
}

/// Neighbouring pixels of one look.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    from: usize,
    to: usize,
    /// Index into [`STRENGTHS`].
    strength: usize,
}

/// The drawing of a lane: each pixel has the share of its time in which the stream was busy. So the drawing stays small and
/// true for any number of kernels, and no kernel vanishes between pixels.
fn runs(activities: &[&Activity], start: u64, length: u64, pixels: usize) -> Vec<Run> {
    let per_nanosecond = pixels as f64 / length as f64;
    let mut busy = vec![0.0f64; pixels];
    for activity in activities {
        let [from, to] =
            [activity.start, activity.end].map(|time| time.saturating_sub(start) as f64 * per_nanosecond);
        let last = (to.ceil() as usize).min(pixels);
        for (i, pixel) in busy[..last].iter_mut().enumerate().skip(from as usize) {
            *pixel += (to.min((i + 1) as f64) - from.max(i as f64)).max(0.0);
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    for (i, share) in busy.iter().enumerate().filter(|(_, share)| **share > 0.0) {
        // A sum of shares may miss 1 by rounding.
        let strength = ((share * 3.0 - 1e-6).ceil() as usize).clamp(1, 3) - 1;
        match runs.last_mut() {
            Some(run) if run.to == i && run.strength == strength => run.to = i + 1,
            _ => runs.push(Run { from: i, to: i + 1, strength }),
        }
    }
    runs
}

fn facts(summary: &Summary) -> String {
    let hidden = summary.hidden_share.map(|share| format!("{} of copy time hidden", percent(share)));
    let facts = [
        seconds(summary.span as f64 * 1e-9),
        format!("{} kernels", summary.kernels),
        format!("device busy {}", percent(summary.busy_share())),
    ];
    facts.into_iter().chain(hidden).collect::<Vec<_>>().join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, start: u64, end: u64) -> Activity {
        Activity { stream: 7, ..Activity::new(ActivityKind::Kernel, name, [start, end]) }
    }

    #[test]
    fn lanes_are_named_after_their_work() {
        let of = |kind, stream, time| Activity { kind, stream, ..kernel("gemm", 0, time) };
        let all = [
            of(ActivityKind::DeviceToHost, 3, 5),
            of(ActivityKind::HostToDevice, 9, 5),
            of(ActivityKind::DeviceToDevice, 7, 2),
            of(ActivityKind::Kernel, 7, 4),
            of(ActivityKind::HostToDevice, 8, 5),
        ];
        let names: Vec<String> = streams(&all).into_iter().map(|stream| stream.name).collect();
        assert_eq!(
            names,
            ["compute", "host to device, stream 8", "host to device, stream 9", "device to host"]
        );
    }

    #[test]
    fn pixels_are_as_strong_as_their_stream_was_busy() {
        // Pixel 2 is busy for 60 of 100 ns, pixel 3 for 10.
        let activities = [
            kernel("a", 1000, 1200),
            kernel("b", 1200, 1240),
            kernel("c", 1240, 1260),
            kernel("d", 1390, 1400),
            kernel("e", 1400, 1450),
            kernel("f", 1450, 1500),
        ];
        let run = |from, to, strength| Run { from, to, strength };
        assert_eq!(
            runs(&activities.iter().collect::<Vec<_>>(), 1000, 1000, 10),
            [run(0, 2, 2), run(2, 3, 1), run(3, 4, 0), run(4, 5, 2)]
        );
    }

    #[test]
    fn thousands_of_kernels_make_a_small_drawing() {
        let kernels: Vec<Activity> = (0..20_000).map(|i| kernel("gemm", i * 100, i * 100 + 90)).collect();
        let cells = ["naive", "overlap"].map(|name| (name.to_string(), &kernels[..]));
        let chart = compared("strategies", "Copies", &cells).expect("a chart").expect("two steps");
        assert!(chart.svg.len() < 100_000, "{} bytes", chart.svg.len());
        assert!(chart.svg.contains("naive: 2.00 ms · 20000 kernels · device busy 90 %"));
        assert!(compared("strategies", "Copies", &cells[..1]).expect("no chart").is_none());
    }
}
