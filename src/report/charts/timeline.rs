//! What the device did during one step: a lane a stream, kernels and copies in the colours of
//! their families.

use std::collections::BTreeMap;

use plotters::style::RGBColor;

use super::Chart;
use super::canvas::{
    Anchor, GRID, INK, MUTED, Result, SMALL, TEXT, WIDTH, method_color, svg, text_width, tint,
};
use super::legend::{Legend, Sign};
use super::plot::{Axis, BELOW, MARGIN, Ticks};
use crate::device::trace::{Activity, ActivityKind, Mark, Summary, span};
use crate::words::text::{percent, seconds, time_unit};

const LEGEND: i32 = 62;
/// Height of all lanes together, as long as each has room for its name.
const MOST: i32 = 640;
/// Colour of a pixel in which a stream was busy for a third, two thirds and all of its time.
const STRENGTHS: [f64; 3] = [0.4, 0.7, 1.0];

/// What is drawn in one colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Matmul,
    Elementwise,
    Reduction,
    Other,
    ToDevice,
    ToHost,
    OnDevice,
}

/// Name and colour, in the order of the legend and of [`Family`].
const FAMILIES: [(Family, &str, usize); 7] = [
    (Family::Matmul, "matrix products", 0),
    (Family::Elementwise, "element-wise kernels", 1),
    (Family::Reduction, "reductions", 2),
    (Family::Other, "other kernels", 7),
    (Family::ToDevice, "copies to the device", 4),
    (Family::ToHost, "copies to the host", 6),
    (Family::OnDevice, "copies on the device", 5),
];

/// Parts of the kernel names of cuBLASLt, CUTLASS, CubeCL and Burn that show a family, the first
/// that fits: `splitKreduce` of cuBLASLt belongs to its matrix product.
const NAMES: [(Family, &[&str]); 3] = [
    (Family::Matmul, &["gemm", "gemv", "nvjet", "cutlass", "cublas", "matmul", "cmma", "linear"]),
    (Family::Reduction, &["reduce", "_sum", "softmax", "norm"]),
    (
        Family::Elementwise,
        &["elementwise", "elemwise", "unary", "binop", "kernel_cmp", "scalar_cmp", "cast", "mask_", "gate"],
    ),
];

impl Family {
    fn of(activity: &Activity) -> Self {
        match activity.kind {
            ActivityKind::Mark => unreachable!("marks are no work"),
            ActivityKind::HostToDevice => Self::ToDevice,
            ActivityKind::DeviceToHost => Self::ToHost,
            ActivityKind::DeviceToDevice => Self::OnDevice,
            ActivityKind::Kernel => {
                let name = activity.name.to_lowercase();
                let fits = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
                NAMES.iter().find(|(_, parts)| fits(parts)).map_or(Self::Other, |(family, _)| *family)
            }
        }
    }

    fn color(self) -> RGBColor {
        method_color(FAMILIES[self as usize].2)
    }
}

/// What a kernel or copy is by its name; `None` for a mark.
pub fn family(activity: &Activity) -> Option<&'static str> {
    (activity.kind != ActivityKind::Mark).then(|| FAMILIES[Family::of(activity) as usize].1)
}

/// Neighbouring pixels of one look.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    from: usize,
    to: usize,
    family: Family,
    /// Index into [`STRENGTHS`].
    strength: usize,
}

/// The timeline of the step of the cell `cell`, as the file `name`; `None` when the activities span
/// no time.
///
/// # Errors
/// When Plotters cannot draw.
pub fn timeline(name: &str, cell: &str, activities: &[Activity]) -> Result<Option<Chart>> {
    let Some(summary) = Summary::new(activities) else { return Ok(None) };
    let origin = span(activities).map_or(0, |(start, _)| start);
    let (marks, activities): (Vec<&Activity>, Vec<&Activity>) =
        activities.iter().partition(|a| a.kind == ActivityKind::Mark);
    let mut streams: BTreeMap<u32, Vec<&Activity>> = BTreeMap::new();
    for &activity in &activities {
        streams.entry(activity.stream).or_default().push(activity);
    }
    let labels: Vec<String> = streams.keys().map(|stream| format!("stream {stream}")).collect();
    let legend = legend(&activities);
    let pitch = (MOST / labels.len() as i32).clamp(15, 44);
    let phases: Vec<(&str, u64)> = phases(&marks, origin);
    let names = if phases.is_empty() { 0 } else { 16 };
    let top = LEGEND + legend.height() + 10 + names;
    let bottom = top + pitch * labels.len() as i32;
    let left = MARGIN + 10 + labels.iter().map(|label| text_width(label, TEXT)).max().unwrap_or(0);
    let right = WIDTH - MARGIN - 10;

    let title = format!("Timeline of one step: {cell}");
    let seconds = summary.span as f64 * 1e-9;
    let (unit, size) = time_unit(seconds);
    let time = Axis { ticks: Ticks::About(8), ..Axis::new(format!("time in {unit}"), (0.0, seconds / size)) };
    let svg = svg(bottom + BELOW, |canvas| {
        canvas.title(&title)?;
        canvas.text(&facts(&summary), (MARGIN, 48), TEXT, MUTED, Anchor::Left)?;
        legend.draw(canvas, LEGEND)?;
        time.draw_below(canvas, (left, right), (top, bottom))?;
        for (lane, (label, activities)) in labels.iter().zip(streams.values()).enumerate() {
            let y = top + lane as i32 * pitch;
            canvas.text(label, (left - 10, y + pitch / 2), TEXT, INK, Anchor::Right)?;
            for run in runs(activities, origin, summary.span, (right - left) as usize) {
                let (from, to) = (left + run.from as i32, left + run.to as i32);
                let color = tint(run.family.color(), STRENGTHS[run.strength]);
                canvas.rect((from, y + 3), (to, y + pitch - 3), color)?;
            }
            canvas.line(&[(left, y + pitch), (right, y + pitch)], GRID, 1)?;
        }
        let mut from = left;
        for (name, end) in &phases {
            let to = left
                + ((*end).min(summary.span) as f64 / summary.span as f64 * f64::from(right - left)) as i32;
            canvas.line(&[(to, top - names), (to, bottom)], INK, 1)?;
            // A phase too short for its name is known by its neighbours.
            if text_width(name, SMALL) + 8 <= to - from {
                canvas.text(name, ((from + to) / 2, top - names / 2), SMALL, MUTED, Anchor::Middle)?;
            }
            from = to;
        }
        canvas.line(&[(left, top), (left, bottom)], MUTED, 1)
    })?;
    Ok(Some(Chart { name: name.into(), caption: format!("{title}."), svg }))
}

/// Name and end of each phase, in nanoseconds from the origin.
fn phases(marks: &[&Activity], origin: u64) -> Vec<(&'static str, u64)> {
    let end = |mark: &&Activity| match Mark::of(mark)? {
        Mark::End(phase) => Some((phase.into_str(), mark.start.saturating_sub(origin))),
        Mark::TurnBegins | Mark::TurnEnds => None,
    };
    marks.iter().filter_map(end).collect()
}

fn facts(summary: &Summary) -> String {
    let hidden = match summary.hidden_share {
        Some(share) => format!("{} of copy time hidden under kernels", percent(share)),
        None => "no copies over the bus".into(),
    };
    let facts = [
        format!("step {}", seconds(summary.span as f64 * 1e-9)),
        format!("{} kernels", summary.kernels),
        format!("device busy {}", percent(summary.busy_share)),
        hidden,
    ];
    facts.join(" · ")
}

/// The families that occur, with the sum of their times.
fn legend(activities: &[&Activity]) -> Legend {
    let mut legend = Legend::default();
    for (family, name, _) in FAMILIES {
        let times = activities.iter().filter(|a| Family::of(a) == family).map(|a| a.end - a.start);
        let time: u64 = times.sum();
        if time > 0 {
            legend.add(Sign::Fill(family.color()), &format!("{name} {}", seconds(time as f64 * 1e-9)));
        }
    }
    legend
}

/// A lane as it is drawn: each of its pixels shows the family that ran longest within it, paler
/// where the stream was idle for part of it. So the drawing stays small and true however many
/// kernels there are, and none vanishes between pixels.
fn runs(activities: &[&Activity], origin: u64, span: u64, pixels: usize) -> Vec<Run> {
    let per_nanosecond = pixels as f64 / span as f64;
    let mut busy = vec![[0.0f64; FAMILIES.len()]; pixels];
    for activity in activities {
        let family = Family::of(activity) as usize;
        let from = (activity.start - origin) as f64 * per_nanosecond;
        let to = (activity.end - origin) as f64 * per_nanosecond;
        let last = (to.ceil() as usize).min(pixels);
        for (i, pixel) in busy[..last].iter_mut().enumerate().skip(from as usize) {
            let share = to.min((i + 1) as f64) - from.max(i as f64);
            pixel[family] += share.max(0.0);
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    for (i, shares) in busy.iter().enumerate() {
        let most = FAMILIES
            .iter()
            .map(|(family, ..)| *family)
            .max_by(|a, b| shares[*a as usize].total_cmp(&shares[*b as usize]));
        let total: f64 = shares.iter().sum();
        let Some(family) = most.filter(|_| total > 0.0) else { continue };
        // A sum of shares may miss 1 by rounding.
        let strength = ((total * 3.0 - 1e-6).ceil() as usize).clamp(1, 3) - 1;
        match runs.last_mut() {
            Some(run) if run.to == i && run.family == family && run.strength == strength => run.to = i + 1,
            _ => runs.push(Run { from: i, to: i + 1, family, strength }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, start: u64, end: u64) -> Activity {
        Activity {
            kind: ActivityKind::Kernel,
            name: name.into(),
            operator: None,
            stream: 7,
            start,
            end,
            bytes: 0,
        }
    }

    #[test]
    fn families_of_kernel_names() {
        let of = |name: &str| Family::of(&kernel(name, 0, 1));
        for name in ["nvjet_sm90_tst_128x256", "void cutlass::Kernel2<x>", "cublasLt::splitKreduce_kernel"] {
            assert_eq!(of(name), Family::Matmul, "{name}");
        }
        assert_eq!(of("reduce_kernel_f32"), Family::Reduction);
        for name in ["kernel_scalar_binop_f32", "silu_and_gate", "void vectorized_elementwise_kernel<4>"] {
            assert_eq!(of(name), Family::Elementwise, "{name}");
        }
        assert_eq!(of("prng_kernel"), Family::Other);
    }

    #[test]
    fn pixels_show_what_ran_longest() {
        let activities = [
            kernel("gemm", 1000, 1200),
            // Pixel 2: 60 of 100 ns busy, most of it reductions; pixel 3: 10 ns.
            kernel("reduce", 1200, 1240),
            kernel("gemm", 1240, 1260),
            kernel("prng", 1390, 1400),
            kernel("gemm", 1400, 1450),
            kernel("gemm", 1450, 1500),
        ];
        let run = |from, to, family, strength| Run { from, to, family, strength };
        assert_eq!(
            runs(&activities.iter().collect::<Vec<_>>(), 1000, 1000, 10),
            [
                run(0, 2, Family::Matmul, 2),
                run(2, 3, Family::Reduction, 1),
                run(3, 4, Family::Other, 0),
                run(4, 5, Family::Matmul, 2),
            ]
        );
    }

    #[test]
    fn thousands_of_kernels_make_a_small_drawing() {
        let kernels: Vec<Activity> =
            (0..20_000).map(|i| kernel(["gemm", "binop"][i as usize % 2], i * 100, i * 100 + 90)).collect();
        let chart = timeline("timeline-x", "level 0", &kernels).expect("a chart").expect("a timeline");
        assert!(chart.svg.len() < 100_000, "{} bytes", chart.svg.len());
        assert!(chart.svg.contains("20000 kernels · device busy 90 %"));
        assert!(timeline("timeline-x", "level 0", &[]).expect("no chart").is_none());
    }
}
