//! Offload in the report: what crossed the bus in each phase and how much of it was hidden behind computation, each cell against
//! the floor of its copies, and the time of updates on the host.

use super::columns::CROSSINGS;
use super::document::{Element, Table};
use super::line::Line;
use super::table::Comparison;
use crate::measure::Crossing;
use crate::row::{Ceilings, LeastCrossing};

/// The elements of every document, and the details; empty for recipes whose blocks stay where they are.
pub fn elements(comparison: &Comparison) -> (Vec<Element>, Vec<Element>) {
    let mut out = Element::section("What copies cost", [comparison.table("floor")]);
    out.extend(Element::section("Updates on the host", [comparison.table("host_updates")]));
    (out, Element::section("What crossed the bus", [crossed(comparison)]))
}

/// The lines whose blocks move over the bus.
fn moved(comparison: &Comparison) -> impl Iterator<Item = usize> {
    (0..comparison.lines.len()).filter(|&i| comparison.lines[i].cell.offload.moves())
}

/// A row a cell, phase and direction.
fn crossed(comparison: &Comparison) -> Option<Table> {
    let of_line = |i: usize| {
        let measured = comparison.lines[i].measured();
        measured.map_or(&[][..], |m| &m.crossings).iter().map(move |crossing| (i, crossing))
    };
    let crossings = moved(comparison).flat_map(of_line).map(|(i, crossing): (usize, &Crossing)| {
        let copies = format!("{} {}", crossing.copies, crossing.direction);
        (i, vec![("phase", crossing.phase.to_string()), ("copies", copies)], *crossing)
    });
    let caption = "One recorded step of each cell, after the measured ones, by the device's own clock. GB/s: bytes \
                   over the time in which copies in this direction ran; compute: the time of kernels in the turns \
                   of blocks, or in the optimizer; hidden: the share of copy time during which a kernel also ran; \
                   ceiling: the most that can be, min((n-1)/n, compute/copy time) for n copies.";
    comparison.table_of(caption, CROSSINGS, crossings)
}

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
