//! [`Crossing`]: what crossed the bus during a phase of a step, how fast, and how much of it behind
//! computation, all by the device's own clock.

use super::summary::{common, length, spans, union};
use super::{Activity, ActivityKind};
use crate::measure::{Crossing, Direction, Phase};

/// A place in the stream of the kernels that a recording notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The phase ends.
    End(Phase),
    /// A block whose weights came over the bus begins to compute, and has computed.
    TurnBegins,
    TurnEnds,
}

impl Mark {
    /// All marks with their names, as in [`Activity::name`].
    const ALL: [(Self, &'static str); 5] = [
        (Self::End(Phase::Forward), "end of forward"),
        (Self::End(Phase::Backward), "end of backward"),
        (Self::End(Phase::Optimizer), "end of optimizer"),
        (Self::TurnBegins, "a block begins"),
        (Self::TurnEnds, "a block ends"),
    ];

    fn place(self) -> usize {
        Self::ALL.iter().position(|(mark, _)| *mark == self).expect("all are listed")
    }

    pub fn name(self) -> &'static str {
        Self::ALL[self.place()].1
    }

    /// The byte that a device writes for this mark: from 1 on.
    pub fn code(self) -> u8 {
        self.place() as u8 + 1
    }

    pub fn of_code(code: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?.checked_sub(1)?).map(|(mark, _)| *mark)
    }

    /// The mark that an activity stands for.
    pub fn of(activity: &Activity) -> Option<Self> {
        let name = (activity.kind == ActivityKind::Mark).then_some(activity.name.as_str())?;
        Self::ALL.into_iter().find(|(_, other)| *other == name).map(|(mark, _)| mark)
    }
}

/// The crossings of each phase and direction, in the order of the step; none without marks.
pub fn crossings(activities: &[Activity]) -> Vec<Crossing> {
    let mut marks: Vec<(u64, Mark)> =
        activities.iter().filter_map(|a| Some((a.start, Mark::of(a)?))).collect();
    marks.sort_by_key(|(time, _)| *time);
    let phase_of = |time: u64| {
        marks.iter().find_map(|(end, mark)| match mark {
            Mark::End(phase) if *end >= time => Some(*phase),
            _ => None,
        })
    };
    let turns = turns(&marks);
    let kernels = spans(activities, |kind| kind == ActivityKind::Kernel);
    let mut out = Vec::new();
    for phase in [Phase::Forward, Phase::Backward, Phase::Optimizer] {
        let in_phase = |a: &&Activity| phase_of(a.start) == Some(phase);
        let own = |kind| activities.iter().filter(move |a| a.kind == kind).filter(in_phase);
        let turns: Vec<(u64, u64)> =
            turns.iter().copied().filter(|(start, _)| phase_of(*start) == Some(phase)).collect();
        let compute = match turns.is_empty() {
            true => length(&union(own(ActivityKind::Kernel).map(|a| (a.start, a.end)).collect())),
            false => common(&turns, &kernels),
        };
        let directions = [
            (Direction::ToDevice, ActivityKind::HostToDevice),
            (Direction::ToHost, ActivityKind::DeviceToHost),
        ];
        for (direction, kind) in directions {
            let copies = union(own(kind).map(|a| (a.start, a.end)).collect());
            if length(&copies) == 0 {
                continue;
            }
            let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
            out.push(Crossing {
                phase,
                direction,
                copies: own(kind).count(),
                bytes: own(kind).map(|a| a.bytes).sum(),
                copy_seconds: seconds(length(&copies)),
                hidden_seconds: seconds(common(&copies, &kernels)),
                compute_seconds: seconds(compute),
            });
        }
    }
    out
}

/// From the beginning of each turn to its end.
fn turns(marks: &[(u64, Mark)]) -> Vec<(u64, u64)> {
    let (mut begun, mut out) = (None, Vec::new());
    for (time, mark) in marks {
        match mark {
            Mark::TurnBegins => begun = Some(*time),
            Mark::TurnEnds => out.extend(begun.take().map(|start| (start, *time))),
            Mark::End(_) => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(kind: ActivityKind, start: u64, end: u64, bytes: u64) -> Activity {
        Activity { kind, name: "x".into(), operator: None, stream: 7, start, end, bytes }
    }

    fn mark(mark: Mark, time: u64) -> Activity {
        Activity { name: mark.name().into(), ..activity(ActivityKind::Mark, time, time + 1, 1) }
    }

    #[test]
    fn codes_and_names_tell_marks_apart() {
        for (mark, _) in Mark::ALL {
            assert_eq!(Mark::of_code(mark.code().into()), Some(mark));
            assert_eq!(Mark::of(&self::mark(mark, 5)), Some(mark));
        }
        assert_eq!((Mark::of_code(0), Mark::of_code(6)), (None, None));
    }

    /// Two blocks: forward copies the second while the first computes, backward sends gradients.
    #[test]
    fn a_step_by_hand() {
        use ActivityKind::{DeviceToHost, HostToDevice, Kernel};
        let step = [
            activity(HostToDevice, 0, 100, 800),
            mark(Mark::TurnBegins, 100),
            activity(Kernel, 100, 160, 0),
            activity(HostToDevice, 100, 200, 800),
            mark(Mark::TurnEnds, 160),
            mark(Mark::TurnBegins, 200),
            activity(Kernel, 200, 260, 0),
            mark(Mark::TurnEnds, 260),
            // The head: no turn.
            activity(Kernel, 260, 300, 0),
            mark(Mark::End(Phase::Forward), 300),
            mark(Mark::TurnBegins, 310),
            activity(Kernel, 310, 400, 0),
            mark(Mark::TurnEnds, 400),
            activity(DeviceToHost, 400, 500, 400),
            mark(Mark::TurnBegins, 410),
            activity(Kernel, 410, 500, 0),
            mark(Mark::TurnEnds, 500),
            activity(DeviceToHost, 500, 600, 400),
            mark(Mark::End(Phase::Backward), 600),
            activity(Kernel, 610, 620, 0),
            mark(Mark::End(Phase::Optimizer), 630),
        ];
        let found = crossings(&step);
        let [forward, backward] = found.as_slice() else { panic!("{found:?}") };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        assert_eq!((forward.phase, forward.direction), (Phase::Forward, Direction::ToDevice));
        assert_eq!((forward.copies, forward.bytes), (2, 1600));
        near(forward.copy_seconds, 200e-9);
        near(forward.compute_seconds, 120e-9);
        near(forward.hidden_seconds, 60e-9);
        near(forward.rate() * 1e-9, 8.0);
        near(forward.ceiling(), 0.5);
        assert_eq!((backward.phase, backward.direction), (Phase::Backward, Direction::ToHost));
        near(backward.hidden_share(), 90.0 / 200.0);
        near(backward.compute_seconds, 180e-9);
        near(backward.ceiling(), 0.5);
        assert!(crossings(&step[..3]).is_empty(), "no phase has ended");
    }
}
