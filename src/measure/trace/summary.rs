//! [`Summary`]: a step's activities in numbers, such as the share of copying that ran behind computation.

use super::{Activity, ActivityKind};

/// The activities of one step in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Nanoseconds from the start of the first activity to the end of the last.
    pub span: u64,
    pub kernels: usize,
    /// Nanoseconds of the span during which a kernel ran that computes.
    pub busy: u64,
    pub to_device: Transfers,
    pub to_host: Transfers,
    /// [`hidden_transfer_share`]
    pub hidden_share: Option<f64>,
    /// The share of the time in which ranks exchanged something, or waited for it, during which a kernel ran too; `None`
    /// without exchanges.
    pub hidden_exchange: Option<f64>,
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
        let transfers = |kind: ActivityKind| Transfers {
            count: activities.iter().filter(|a| a.kind == kind).count(),
            bytes: activities.iter().filter(|a| a.kind == kind).map(|a| a.bytes).sum(),
            time: length(&spans(activities, |other| other == kind)),
        };
        let kernels = spans(activities, |kind| kind == ActivityKind::Kernel);
        Some(Self {
            span: end - start,
            kernels: activities.iter().filter(|a| a.kind == ActivityKind::Kernel).count(),
            busy: length(&kernels),
            to_device: transfers(ActivityKind::HostToDevice),
            to_host: transfers(ActivityKind::DeviceToHost),
            hidden_share: hidden_transfer_share(activities),
            hidden_exchange: hidden(activities, |kind| kind == ActivityKind::Exchange),
        })
    }

    /// The share of the span during which a kernel ran that computes.
    pub fn busy_share(&self) -> f64 {
        self.busy as f64 / self.span as f64
    }

    /// Seconds during which a kernel ran that computes.
    pub fn kernel_seconds(&self) -> f64 {
        self.busy as f64 / 1e9
    }
}

/// Start of the first activity and end of the last; `None` without any.
pub fn span(activities: &[Activity]) -> Option<(u64, u64)> {
    let work = || activities.iter().filter(|a| a.kind != ActivityKind::Mark);
    Some((work().map(|a| a.start).min()?, work().map(|a| a.end).max()?))
}

/// The share of the time in which data crossed the bus during which a kernel ran too; `None`
/// without such copies. Overlapping copies count once.
pub fn hidden_transfer_share(activities: &[Activity]) -> Option<f64> {
    hidden(activities, |kind| matches!(kind, ActivityKind::HostToDevice | ActivityKind::DeviceToHost))
}

/// The share of the time in which activities of these kinds ran during which a kernel ran too; `None` without any.
fn hidden(activities: &[Activity], kinds: impl Fn(ActivityKind) -> bool) -> Option<f64> {
    let those = spans(activities, kinds);
    let kernels = spans(activities, |kind| kind == ActivityKind::Kernel);
    let total = length(&those);
    (total > 0).then(|| common(&those, &kernels) as f64 / total as f64)
}

/// Nanoseconds that lie in both of two lists of sorted disjoint spans.
pub(super) fn common(a: &[(u64, u64)], b: &[(u64, u64)]) -> u64 {
    let (mut sum, mut first) = (0, 0);
    for &(start, end) in a {
        // Both lists are sorted: what ended before this span is over for all later.
        while first < b.len() && b[first].1 <= start {
            first += 1;
        }
        let within = b[first..].iter().take_while(|other| other.0 < end);
        sum += within.map(|other| end.min(other.1) - start.max(other.0)).sum::<u64>();
    }
    sum
}

/// The times during which an activity of a wanted kind ran, sorted and disjoint.
pub(super) fn spans(activities: &[Activity], wanted: impl Fn(ActivityKind) -> bool) -> Vec<(u64, u64)> {
    union(activities.iter().filter(|a| wanted(a.kind)).map(|a| (a.start, a.end)).collect())
}

pub(super) fn length(disjoint: &[(u64, u64)]) -> u64 {
    disjoint.iter().map(|(start, end)| end - start).sum()
}

/// Sorted disjoint spans that cover the same times.
pub(super) fn union(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
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
        Activity { stream, ..Activity::new(kind, "x", [start, end]) }
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

    /// A rank that waits is not busy.
    #[test]
    fn exchanges_are_no_computation() {
        use ActivityKind::*;
        let summary = Summary::new(&[
            activity(Kernel, 1, 0, 40),
            activity(Exchange, 2, 20, 60),
            activity(Kernel, 1, 80, 100),
        ])
        .unwrap();
        assert_eq!((summary.kernels, summary.busy_share(), summary.hidden_exchange), (2, 0.6, Some(0.5)));
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
            busy: 400,
            // Copies to the device run in 350..550: 3000 bytes in 200 ns are 15 GB/s.
            to_device: Transfers { count: 2, bytes: 3000, time: 200 },
            to_host: Transfers { count: 1, bytes: 500, time: 100 },
            // 350..400 and 500..550 of 350..550 and 1000..1100.
            hidden_share: Some(100.0 / 300.0),
            hidden_exchange: None,
        };
        assert_eq!((expected.busy_share(), expected.kernel_seconds()), (0.4, 400e-9));
        assert_eq!(summary, Some(expected));
        assert_eq!(Transfers { count: 2, bytes: 3000, time: 200 }.rate(), Some(15e9));
        assert_eq!(Transfers { count: 0, bytes: 0, time: 0 }.rate(), None);
        assert_eq!(Summary::new(&[]), None);
    }
}
