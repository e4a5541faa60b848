//! Which of several algorithms is the fastest, measured on the device.

use cudarc::driver::sys::CUstream;

use crate::device::cuda::events::Event;

/// Algorithms that are tried.
pub const CANDIDATES: usize = 8;
/// Problems of at least this many operations are measured: they take some microseconds on tensor cores.
pub const MIN_FLOPS: f64 = 2e9;
/// Seconds of device time for one problem, not counting the two launches that each of two algorithms gets
/// in any case.
const BUDGET: f64 = 0.1;
const ROUNDS: usize = 5;
/// Seconds between two events, where the budget allows: far longer than recording an event takes.
const SPAN: f64 = 1e-3;
/// An algorithm must be this much faster than cuBLASLt's own choice: a smaller difference may be noise.
const GAIN: f64 = 0.98;

/// What was found.
pub struct Fastest {
    pub candidate: usize,
    /// Seconds of one launch of it.
    pub seconds: f64,
    /// Seconds of one launch of cuBLASLt's own choice, the first candidate.
    pub own: f64,
}

/// The candidate below `count` whose launches end soonest; `None` when none can be launched. `launch`
/// enqueues one product on `stream` and says whether it could. The device's context must be current.
pub fn fastest(count: usize, stream: CUstream, launch: &dyn Fn(usize) -> bool) -> Option<Fastest> {
    let time = |algorithm, launches: usize| {
        let start = Event::record_on(stream);
        let launched = (0..launches).all(|_| launch(algorithm));
        let seconds = Event::record_on(stream).seconds_since(&start) / launches as f64;
        launched.then_some(seconds)
    };
    let mut spent = 0.0;
    let mut first: Vec<(usize, f64)> = Vec::new();
    for algorithm in 0..count {
        if first.len() >= 2 && spent > BUDGET / 2.0 {
            break;
        }
        // The first launch loads the kernel.
        if launch(algorithm)
            && let Some(seconds) = time(algorithm, 1)
        {
            spent += 2.0 * seconds;
            first.push((algorithm, seconds));
        }
    }
    // In turns, so that a change of the device's clock rate affects all of them.
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); first.len()];
    for _ in 0..ROUNDS {
        if spent > BUDGET {
            break;
        }
        for ((algorithm, seconds), times) in first.iter().zip(&mut rounds) {
            let launches = (SPAN / *seconds).ceil().clamp(1.0, 100.0);
            if let Some(again) = time(*algorithm, launches as usize) {
                spent += again * launches;
                times.push(again);
            }
        }
    }
    let times: Vec<(usize, f64)> = first
        .iter()
        .zip(rounds)
        .map(|(&(algorithm, once), times)| (algorithm, middle(times).unwrap_or(once)))
        .collect();
    let &(own, own_seconds) = times.first()?;
    let &(best, seconds) = times.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(match seconds < GAIN * own_seconds {
        true => Fastest { candidate: best, seconds, own: own_seconds },
        false => Fastest { candidate: own, seconds: own_seconds, own: own_seconds },
    })
}

/// The median, of two the lower one.
fn middle(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len().saturating_sub(1) / 2).copied()
}
