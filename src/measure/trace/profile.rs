//! [`Profile`]: the activities of a step by phase and operator.

use std::collections::BTreeMap;

use super::summary::{length, span, union};
use super::{Activity, ActivityKind, Mark};
use crate::measure::Phase;

/// Where the time of a step went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Nanoseconds from the first activity to the end of the last phase.
    pub span: u64,
    /// In the order of the phases; in each the longest first.
    pub parts: Vec<Part>,
    /// Nanoseconds of each phase in which nothing ran, in the order of the phases.
    pub idle: Vec<(Option<Phase>, u64)>,
    /// The longest first.
    pub kernels: Vec<KernelTime>,
}

/// What an operator's kernels and copies on the device took in one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// `None` where the trace has no marks.
    pub phase: Option<Phase>,
    /// `None`: no operator issued them.
    pub operator: Option<String>,
    pub kernels: usize,
    /// Nanoseconds, added up.
    pub time: u64,
}

/// What one kernel took within one part.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// As [`short_name`] gives it.
    pub name: String,
    pub phase: Option<Phase>,
    pub operator: Option<String>,
    pub count: usize,
    /// Nanoseconds, added up.
    pub time: u64,
}

/// A phase from the end of the one before to its own.
struct Interval {
    start: u64,
    end: u64,
    phase: Option<Phase>,
}

impl Profile {
    /// `None` when nothing ran.
    pub fn new(activities: &[Activity]) -> Option<Self> {
        let runs = |a: &&Activity| {
            matches!(a.kind, ActivityKind::Kernel | ActivityKind::DeviceToDevice | ActivityKind::Exchange)
        };
        let intervals = intervals(activities)?;
        let (first, last) = (intervals.first()?.start, intervals.last()?.end);
        // What begins behind the last phase belongs to no step.
        let place = |a: &Activity| intervals.iter().position(|interval| a.start < interval.end);
        let placed = || activities.iter().filter(runs).filter_map(|a| Some((a, place(a)?)));
        let mut parts: BTreeMap<(usize, Option<&str>), (usize, u64)> = BTreeMap::new();
        let mut kernels: BTreeMap<(String, usize, Option<&str>), (usize, u64)> = BTreeMap::new();
        let mut ran: Vec<Vec<(u64, u64)>> = intervals.iter().map(|_| Vec::new()).collect();
        for (a, at) in placed() {
            let phase = order(intervals[at].phase);
            let add =
                |(count, time): &mut (usize, u64)| (*count, *time) = (*count + 1, *time + a.end - a.start);
            let exchanges = a.kind == ActivityKind::Exchange;
            let operator = if exchanges { Some(EXCHANGE) } else { a.operator.as_deref() };
            add(parts.entry((phase, operator)).or_default());
            add(kernels.entry((short_name(&a.name), phase, operator)).or_default());
            if exchanges {
                continue;
            }
            // A kernel may run on behind the mark that another stream's kernels end at.
            ran[at].push((a.start, a.end.min(intervals[at].end).max(a.start)));
        }
        let mut idle: BTreeMap<usize, u64> = BTreeMap::new();
        for (interval, ran) in intervals.iter().zip(ran) {
            let busy = length(&union(ran));
            *idle.entry(order(interval.phase)).or_default() +=
                (interval.end - interval.start).saturating_sub(busy);
        }
        let mut parts: Vec<Part> = parts
            .into_iter()
            .map(|((phase, operator), (kernels, time))| Part {
                phase: PHASES[phase],
                operator: operator.map(String::from),
                kernels,
                time,
            })
            .collect();
        parts.sort_by_key(|part| (order(part.phase), std::cmp::Reverse(part.time)));
        let mut kernels: Vec<KernelTime> = kernels
            .into_iter()
            .map(|((name, phase, operator), (count, time))| KernelTime {
                name,
                phase: PHASES[phase],
                operator: operator.map(String::from),
                count,
                time,
            })
            .collect();
        kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.time));
        Some(Self {
            span: last - first,
            parts,
            idle: idle.into_iter().map(|(phase, time)| (PHASES[phase], time)).collect(),
            kernels,
        })
    }
}

/// The name of what moves data between ranks. It runs next to kernels that compute, and while nothing else runs the device
/// is idle.
pub const EXCHANGE: &str = "exchange between ranks";

/// In the order of a step; a trace without marks has the last alone.
const PHASES: [Option<Phase>; 4] =
    [Some(Phase::Forward), Some(Phase::Backward), Some(Phase::Optimizer), None];

fn order(phase: Option<Phase>) -> usize {
    phase.map_or(3, |phase| phase as usize)
}

/// The phases of a step in the order of time, those of several micro-batches one after the other; the whole of it
/// where there are no marks. `None` when nothing ran.
fn intervals(activities: &[Activity]) -> Option<Vec<Interval>> {
    let (mut start, last) = span(activities)?;
    let mut ends: Vec<(u64, Phase)> = activities
        .iter()
        .filter_map(|a| match Mark::of(a)? {
            Mark::End(phase) => Some((a.start, phase)),
            Mark::TurnBegins | Mark::TurnEnds => None,
        })
        .collect();
    ends.sort_unstable_by_key(|(time, _)| *time);
    if ends.is_empty() {
        return Some(vec![Interval { start, end: last, phase: None }]);
    }
    let interval = |(end, phase): (u64, Phase)| {
        let from = start;
        start = end.max(start);
        Interval { start: from, end: start, phase: Some(phase) }
    };
    Some(ends.into_iter().map(interval).collect())
}

/// A kernel's name without what does not distinguish it for a reader: the hash that CubeCL appends, C++'s mangling
/// and its arguments. Names that were cut are read as far as they go.
pub fn short_name(name: &str) -> String {
    if let Some(mangled) = name.strip_prefix("_Z") {
        return demangled(mangled).unwrap_or_else(|| name.into());
    }
    let is_hash = |end: &str| end.len() == 8 && end.chars().all(|c| c.is_ascii_hexdigit());
    let name = name.strip_prefix("void ").unwrap_or(name);
    let name = name.split(['<', '(']).next().unwrap_or(name);
    match name.rsplit_once('_') {
        Some((name, end)) if is_hash(end) => name.into(),
        _ => name.into(),
    }
}

/// The path of an Itanium name, `N7cutlass7Kernel2I4gemmEE…`, with its first argument where that is a name too:
/// `cutlass::Kernel2<gemm>`.
fn demangled(mangled: &str) -> Option<String> {
    let (mut path, mut rest) = (Vec::new(), mangled.strip_prefix('N').unwrap_or(mangled));
    while let Some((name, after)) = length_prefixed(rest) {
        path.push(name);
        rest = after;
    }
    let argument = rest.strip_prefix('I').and_then(length_prefixed).map(|(name, _)| format!("<{name}>"));
    (!path.is_empty()).then(|| path.join("::") + &argument.unwrap_or_default())
}

/// `7cutlass7Kernel2` → `cutlass` and `7Kernel2`.
fn length_prefixed(text: &str) -> Option<(&str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (length, rest) = text.split_at(digits);
    let length: usize = length.parse().ok()?;
    rest.split_at_checked(length.min(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(kind: ActivityKind, name: &str, operator: &str, start: u64, end: u64) -> Activity {
        let operator = Some(operator).filter(|operator| !operator.is_empty()).map(String::from);
        Activity { kind, name: name.into(), operator, stream: 7, start, end, bytes: 0 }
    }

    fn end(phase: Phase, time: u64) -> Activity {
        activity(ActivityKind::Mark, Mark::End(phase).name(), "", time, time + 1)
    }

    /// Two micro-batches: 0..100 forward, 101..200 backward, 201..290 forward, 291..400 backward, 401..450 update.
    fn step() -> Vec<Activity> {
        use ActivityKind::{DeviceToDevice, HostToDevice, Kernel};
        vec![
            activity(Kernel, "gemm", "linear", 0, 40),
            activity(HostToDevice, "copy to the device", "linear", 0, 90),
            activity(Kernel, "norm_x_f32_0a2b1105", "norm", 50, 60),
            activity(Kernel, "gemm", "attention", 60, 90),
            end(Phase::Forward, 100),
            activity(Kernel, "gemm", "linear", 110, 190),
            end(Phase::Backward, 200),
            activity(Kernel, "gemm", "linear", 210, 240),
            end(Phase::Forward, 290),
            activity(DeviceToDevice, "copy on the device", "attention", 300, 310),
            activity(Kernel, "binop", "", 310, 330),
            end(Phase::Backward, 400),
            activity(Kernel, "adamw", "update", 410, 440),
            end(Phase::Optimizer, 450),
            activity(Kernel, "of the next step", "linear", 460, 470),
        ]
    }

    #[test]
    fn a_step_by_hand() {
        let profile = Profile::new(&step()).expect("a profile");
        let parts: Vec<_> = profile
            .parts
            .iter()
            .map(|part| (part.phase.expect("marked"), part.operator.as_deref(), part.kernels, part.time))
            .collect();
        use Phase::{Backward, Forward, Optimizer};
        assert_eq!(
            parts,
            [
                (Forward, Some("linear"), 2, 70),
                (Forward, Some("attention"), 1, 30),
                (Forward, Some("norm"), 1, 10),
                (Backward, Some("linear"), 1, 80),
                (Backward, None, 1, 20),
                (Backward, Some("attention"), 1, 10),
                (Optimizer, Some("update"), 1, 30),
            ]
        );
        // 100 − 80 and 90 − 30; 100 − 80 and 110 − 30; 50 − 30. A copy over the bus is no work.
        assert_eq!(
            profile.idle,
            [(Some(Forward), 20 + 60), (Some(Backward), 20 + 80), (Some(Optimizer), 20)]
        );
        assert_eq!(profile.span, 450);
        let total: u64 = profile.parts.iter().map(|part| part.time).sum();
        assert_eq!(total + profile.idle.iter().map(|(_, time)| time).sum::<u64>(), profile.span);
        let top = &profile.kernels[0];
        assert_eq!(
            (top.name.as_str(), top.operator.as_deref(), top.count, top.time),
            ("gemm", Some("linear"), 1, 80)
        );
        assert!(profile.kernels.iter().any(|kernel| kernel.name == "norm_x_f32"));
    }

    #[test]
    fn a_trace_without_marks_is_one_phase() {
        let kernels = [
            activity(ActivityKind::Kernel, "gemm", "", 5, 9),
            activity(ActivityKind::Kernel, "x", "", 7, 15),
        ];
        let profile = Profile::new(&kernels).expect("a profile");
        assert_eq!(profile.span, 10);
        assert_eq!(profile.idle, [(None, 0)]);
        assert_eq!(profile.parts.len(), 1);
        assert_eq!(Profile::new(&[end(Phase::Forward, 3)]), None);
    }

    #[test]
    fn names_are_short() {
        let of = [
            ("kernel_binop_c_f32_n_4_0a2b1105", "kernel_binop_c_f32_n_4"),
            (
                "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN",
                "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN",
            ),
            ("void cublasLt::splitKreduce_kernel<32, 16, int>(Params)", "cublasLt::splitKreduce_kernel"),
            (
                "_ZN7cutlass7Kernel2I43cutlass_80_simt_sgemm_128x256_8x4_nt_align1EEvNT_6ParamsE",
                "cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>",
            ),
            (
                "_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiffffLb0EfffLb1ELb0ELb0ELb0EEEvNS_18",
                "cublasLt::splitKreduce_kernel",
            ),
            ("_ZN5short99cut", "short::cut"),
            ("_Zx", "_Zx"),
            ("attention", "attention"),
        ];
        for (name, short) in of {
            assert_eq!(short_name(name), short);
        }
    }
}
