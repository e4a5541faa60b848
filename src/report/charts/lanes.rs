//! [`Lane`]: the work of one stream of the device, or of the host, named after its work, and its drawing.

use std::collections::BTreeMap;

use plotters::style::RGBColor;

use super::canvas::{Canvas, GRID, Result};
use super::legend::{Legend, Sign};
use super::look::{method_color, tint};
use crate::device::trace::{Activity, ActivityKind};
use crate::words::text::seconds;

/// Colour of a pixel in which a lane was busy for a third, two thirds and all of its time.
const STRENGTHS: [f64; 3] = [0.4, 0.7, 1.0];

/// Work that is drawn in one colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Matmul,
    Elementwise,
    Reduction,
    Other,
    ToDevice,
    ToHost,
    OnDevice,
    OnHost,
    Exchange,
}

/// Name and colour, in the order of the legend and of [`Family`].
const FAMILIES: [(Family, &str, Option<usize>); 9] = [
    (Family::Matmul, "matrix products", Some(0)),
    (Family::Elementwise, "element-wise kernels", Some(1)),
    (Family::Reduction, "reductions", Some(2)),
    (Family::Other, "other kernels", Some(7)),
    (Family::ToDevice, "copies to the device", Some(4)),
    (Family::ToHost, "copies to the host", Some(6)),
    (Family::OnDevice, "copies on the device", Some(5)),
    (Family::OnHost, "updates on the host", Some(3)),
    (Family::Exchange, "exchange between ranks", None),
];
/// There is one more family than colours of methods.
const NINTH: RGBColor = RGBColor(110, 110, 110);

/// Parts of kernel names of cuBLASLt, CUTLASS, CubeCL and Burn that show a family. The first that fits counts: cuBLASLt's
/// `splitKreduce` belongs to its matrix product.
const NAMES: [(Family, &[&str]); 3] = [
    (Family::Matmul, &["gemm", "gemv", "nvjet", "cutlass", "cublas", "matmul", "cmma", "linear"]),
    (Family::Reduction, &["reduce", "_sum", "softmax", "norm"]),
    (
        Family::Elementwise,
        &["elementwise", "elemwise", "unary", "binop", "kernel_cmp", "scalar_cmp", "cast", "mask_", "gate"],
    ),
];

impl Family {
    pub fn of(activity: &Activity) -> Self {
        match activity.kind {
            ActivityKind::Mark => unreachable!("marks are no work"),
            ActivityKind::HostToDevice => Self::ToDevice,
            ActivityKind::DeviceToHost => Self::ToHost,
            ActivityKind::DeviceToDevice => Self::OnDevice,
            ActivityKind::HostUpdate => Self::OnHost,
            ActivityKind::Exchange => Self::Exchange,
            ActivityKind::Kernel => {
                let name = activity.name.to_lowercase();
                let fits = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
                NAMES.iter().find(|(_, parts)| fits(parts)).map_or(Self::Other, |(family, _)| *family)
            }
        }
    }

    fn color(self) -> RGBColor {
        FAMILIES[self as usize].2.map_or(NINTH, method_color)
    }
}

/// The families that occur; `with_times`: with the sums of their times.
pub fn legend(activities: &[&Activity], with_times: bool) -> Legend {
    let mut legend = Legend::default();
    for (family, name, _) in FAMILIES {
        let times = activities.iter().filter(|a| Family::of(a) == family).map(|a| a.end - a.start);
        let time: u64 = times.sum();
        if time > 0 {
            let time = if with_times { format!(" {}", seconds(time as f64 * 1e-9)) } else { String::new() };
            legend.add(Sign::Fill(family.color()), &format!("{name}{time}"));
        }
    }
    legend
}

/// The work of a stream.
pub struct Lane<'t> {
    pub name: String,
    activities: Vec<&'t Activity>,
}

/// One for each stream, named after what most of its time was; computation first, then copies to the device and from it.
pub fn lanes<'t>(activities: &[&'t Activity]) -> Vec<Lane<'t>> {
    const NAMED: [(ActivityKind, &str); 6] = [
        (ActivityKind::Kernel, "compute"),
        (ActivityKind::Exchange, "between ranks"),
        (ActivityKind::HostToDevice, "host to device"),
        (ActivityKind::DeviceToHost, "device to host"),
        (ActivityKind::DeviceToDevice, "on the device"),
        (ActivityKind::HostUpdate, "host update"),
    ];
    let mut streams: BTreeMap<u32, Vec<&Activity>> = BTreeMap::new();
    for &activity in activities {
        streams.entry(activity.stream).or_default().push(activity);
    }
    let place = |of: &[&Activity]| {
        let time = |kind| of.iter().filter(|a| a.kind == kind).map(|a| a.end - a.start).sum::<u64>();
        // The last of equals would be taken: copies are no computation.
        (0..NAMED.len()).rev().max_by_key(|&place| time(NAMED[place].0)).unwrap_or(0)
    };
    let mut found: Vec<(usize, u32, Vec<&Activity>)> =
        streams.into_iter().map(|(stream, of)| (place(&of), stream, of)).collect();
    found.sort_by_key(|(place, stream, _)| (*place, *stream));
    let count = |place: usize| found.iter().filter(|(other, ..)| *other == place).count();
    let counts: Vec<usize> = (0..NAMED.len()).map(count).collect();
    let lane = |(place, stream, activities): (usize, u32, Vec<&'t Activity>)| Lane {
        name: match counts[place] {
            1 => NAMED[place].1.into(),
            _ => format!("{}, stream {stream}", NAMED[place].1),
        },
        activities,
    };
    found.into_iter().map(lane).collect()
}

impl Lane<'_> {
    /// Draws what lies between two times, in nanoseconds, on the pixels between `sides`.
    pub fn draw(
        &self,
        canvas: &Canvas,
        (from, to): (u64, u64),
        (left, right): (i32, i32),
        (y, pitch): (i32, i32),
    ) -> Result {
        for run in runs(&self.activities, from, to - from, (right - left) as usize) {
            let sides = (left + run.from as i32, left + run.to as i32);
            let color = tint(run.family.color(), STRENGTHS[run.strength]);
            canvas.rect((sides.0, y + 3), (sides.1, y + pitch - 3), color)?;
        }
        canvas.line(&[(left, y + pitch), (right, y + pitch)], GRID, 1)
    }
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

/// The drawing of a lane: each pixel shows the family that ran longest within it, paler where the stream was idle for part of
/// it. So the drawing stays small and true for any number of kernels, and no kernel vanishes between pixels.
fn runs(activities: &[&Activity], origin: u64, span: u64, pixels: usize) -> Vec<Run> {
    let per_nanosecond = pixels as f64 / span as f64;
    let mut busy = vec![[0.0f64; FAMILIES.len()]; pixels];
    for activity in activities.iter().filter(|a| a.end > origin && a.start < origin + span) {
        let family = Family::of(activity) as usize;
        let from = activity.start.saturating_sub(origin) as f64 * per_nanosecond;
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
    fn lanes_are_named_after_their_work() {
        let of = |kind, stream, time| Activity { kind, stream, ..kernel("gemm", 0, time) };
        let all = [
            of(ActivityKind::DeviceToHost, 3, 5),
            of(ActivityKind::HostToDevice, 9, 5),
            of(ActivityKind::DeviceToDevice, 7, 2),
            of(ActivityKind::Kernel, 7, 4),
            of(ActivityKind::HostToDevice, 8, 5),
        ];
        let names: Vec<String> =
            lanes(&all.iter().collect::<Vec<_>>()).into_iter().map(|lane| lane.name).collect();
        assert_eq!(
            names,
            ["compute", "host to device, stream 8", "host to device, stream 9", "device to host"]
        );
    }

    #[test]
    fn pixels_show_what_ran_longest() {
        let activities = [
            kernel("before", 10, 900),
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
}
