//! The floor of a cell's copies: the time of the fewest bytes that must cross the bus.

use super::line::Line;
use crate::row::{Ceilings, LeastCrossing};

/// Seconds in backward of what has one direction to itself, such as frozen weights.
fn alone(crossing: &LeastCrossing, rates: &Ceilings) -> Option<f64> {
    let rate = if crossing.alone_to_device { rates.host_to_device } else { rates.device_to_host };
    Some(crossing.alone / rate.or(rates.both_ways)?)
}

/// The fewest bytes that cross the bus; `None` of a cell whose blocks stay, or that did not run to its end.
fn least(line: &Line) -> Option<LeastCrossing> {
    line.measured().and(line.derived()?.crossing)
}

/// Seconds that the fewest possible bytes take at the measured rates, in forward and in backward, 0 without a
/// backward; `None` where no block moves.
pub fn floor(line: &Line) -> Option<[f64; 2]> {
    let (least, rates) = (least(line)?, line.ceilings);
    let forward = least.forward / rates.host_to_device?;
    let copies_back = least.both + least.alone > 0.0;
    Some([forward, if copies_back { least.both / rates.both_ways? + alone(&least, &rates)? } else { 0.0 }])
}

/// Bytes per second each way that a line's backward proves: it moved at least the fewest bytes. No more than one way alone has,
/// since some of them may cross before.
pub fn proven(line: &Line) -> Option<f64> {
    let (least, rates) = (least(line)?, line.ceilings);
    let seconds = line.measured()?.backward.as_ref()?.median - alone(&least, &rates)?;
    let most = rates.host_to_device?.min(rates.device_to_host?);
    (least.both > 0.0 && seconds > 0.0).then(|| (least.both / seconds).min(most))
}

#[cfg(test)]
#[path = "offload_tests.rs"]
mod tests;
