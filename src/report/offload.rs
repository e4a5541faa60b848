//! Offload in the report: what crossed the bus in each phase and how much of it was hidden behind computation, each cell against
//! the floor of its copies, where a strategy does not help, and the time of updates on the host.

use itertools::Itertools;

use super::columns::CROSSINGS;
use super::differences::is_slower;
use super::document::{Element, Table};
use super::line::Line;
use super::table::{Comparison, Group};
use crate::device::Ceilings;
use crate::measure::{Crossing, Phase};
use crate::recipe::Cell;
use crate::residence::{Offload, Strategy};
use crate::words::text::{names, percent, ratio, sentence, verb};

/// A hidden share above this part of its ceiling is at it.
const AT_CEILING: f64 = 0.9;
/// One below this part of it has another cause than pauses between kernels.
const NEAR_CEILING: f64 = 0.7;
/// A step of less than so many times the floor of its copies is at it.
const AT_FLOOR: f64 = 1.25;

/// The elements of every document, and the details; empty for recipes whose blocks stay where they are.
pub fn elements(comparison: &Comparison) -> (Vec<Element>, Vec<Element>) {
    let mut out = Element::section("What copies cost", [comparison.table("floor")]);
    out.extend(hidden(comparison).map(Element::paragraph));
    out.extend(without_gain(comparison).map(Element::paragraph));
    out.extend(Element::section("Updates on the host", [comparison.table("host_updates")]));
    (out, Element::section("What crossed the bus", [crossed(comparison)]))
}

/// Of the time of a cell's copies.
struct Hidden {
    line: usize,
    /// The share during which a kernel also ran, and the most that could be.
    share: f64,
    ceiling: f64,
    /// Time of kernels over that of copies.
    compute: f64,
    /// Whether most of what is not hidden is in the update.
    by_update: bool,
}

/// How much of the copies ran behind computation, how much could have, and what bounds it.
fn hidden(comparison: &Comparison) -> Option<String> {
    let of_line = |i: usize| {
        let crossings = &comparison.lines[i].measured()?.crossings;
        let sum = |of: fn(&Crossing) -> f64| crossings.iter().map(of).sum::<f64>();
        let copies = sum(|c| c.copy_seconds);
        let hidden = sum(|c| c.hidden_seconds) / copies;
        let ceiling = sum(|c| c.ceiling() * c.copy_seconds) / copies;
        // Both directions of a phase run at once, and during the same computation.
        let phases = crossings.iter().into_group_map_by(|c| c.phase.to_string());
        let longest = |of: fn(&Crossing) -> f64| -> f64 {
            phases.values().map(|all| all.iter().map(|c| of(c)).fold(0.0, f64::max)).sum()
        };
        let compute = longest(|c| c.compute_seconds) / longest(|c| c.copy_seconds);
        let bare = |c: &&Crossing| c.phase == Phase::Optimizer;
        let of_update: f64 = crossings.iter().filter(bare).map(|c| c.copy_seconds - c.hidden_seconds).sum();
        let by_update = of_update > (1.0 - hidden) * copies / 2.0;
        (copies > 0.0).then_some(Hidden { line: i, share: hidden, ceiling, compute, by_update })
    };
    // With the others, and with one slot, a block computes when its copy has ended.
    let overlapping = |i: &usize| {
        let offload = comparison.lines[*i].cell.offload;
        matches!(offload.strategy, Strategy::Overlap(_)) && offload.buffers() > 1
    };
    let all: Vec<_> = moved(comparison).filter(overlapping).filter_map(of_line).collect();
    let (best, worst) = (
        all.iter().max_by(|a, b| a.share.total_cmp(&b.share))?,
        all.iter().max_by(|a, b| (a.ceiling - a.share).total_cmp(&(b.ceiling - b.share)))?,
    );
    let plain = |i: usize| comparison.name(&comparison.lines[i]);
    let name = |i: usize| sentence(&plain(i));
    let of_cell = |of: &Hidden| {
        let its = verb(&plain(of.line), "its", "their");
        let bound = match of.compute < 1.0 {
            _ if of.by_update => format!("; most of the rest are copies of {its} update"),
            true if of.share > AT_CEILING * of.ceiling && is_at_floor(&comparison.lines[of.line]) => {
                format!("; {its} copies take longer than {its} computation, so the bus is the limit")
            }
            true => format!("; {its} copies take longer than {its} computation"),
            false if of.share > NEAR_CEILING * of.ceiling => format!(
                "; {its} computation takes longer than {its} copies, so what is not hidden is the first copy, the last one, \
                 and the pauses between kernels while a copy runs"
            ),
            // Kernels do not run either: they wait for their host, or for a copy.
            false => format!("; in the rest of the time of {its} copies no kernel runs"),
        };
        format!("{} of at most {}{bound}", percent(of.share), percent(of.ceiling))
    };
    let largest = if all.len() == 1 { "this" } else { "the largest" };
    let first = format!(
        "{} {} {largest} share of the time of {} copies behind computation, each direction by itself: {}.",
        name(best.line),
        verb(&name(best.line), "hides", "hide"),
        verb(&name(best.line), "its", "their"),
        of_cell(best)
    );
    let far = worst.line != best.line && worst.share < AT_CEILING * worst.ceiling;
    let is = verb(&name(worst.line), "is farthest from its", "are farthest from their");
    let among = if moved(comparison).all(|i| overlapping(&i)) { "" } else { "Of those that overlap, " };
    let second = far.then(|| {
        format!(" {}.", sentence(&format!("{among}{} {is} ceiling: {}", plain(worst.line), of_cell(worst))))
    });
    Some(format!("{first}{} This is of one recorded step of each cell.", second.unwrap_or_default()))
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

/// The fewest bytes that cross the bus in a step.
struct Fewest {
    forward: f64,
    /// In backward, both ways at once and in one direction by itself.
    both: f64,
    alone: f64,
    alone_to_device: bool,
}

impl Fewest {
    /// `None` where no block moves.
    fn of(line: &Line) -> Option<Self> {
        let measured = line.measured().and_then(|measured| measured.resident_blocks);
        let cell = line.cell.with_resident_blocks(measured);
        let shape = cell.model.decoder().filter(|_| cell.offload.moves())?;
        let (operators, workload) = (cell.operators(), cell.workload());
        let [block, gradient] = operators.crossing(&workload).map(|bytes| bytes as f64);
        if !cell.train.mode.trains() {
            let copies = cell.offload.fewest_copies_of_a_forward(shape.layers);
            return Some(Self {
                forward: copies as f64 * block,
                both: 0.0,
                alone: 0.0,
                alone_to_device: true,
            });
        }
        let copies = operators.fewest_copies(&workload);
        let to_device =
            copies.backward_to_device as f64 * block + copies.gradients_to_device as f64 * gradient;
        let to_host = copies.gradients_to_host as f64 * gradient;
        Some(Self {
            forward: copies.forward_to_device as f64 * block,
            both: to_device.min(to_host),
            alone: (to_device - to_host).abs(),
            alone_to_device: to_device > to_host,
        })
    }

    /// Seconds in backward of what has one direction to itself, such as frozen weights.
    fn alone(&self, rates: &Ceilings) -> Option<f64> {
        let rate = if self.alone_to_device { rates.host_to_device } else { rates.device_to_host };
        Some(self.alone / rate.or(rates.both_ways)?)
    }
}

/// Seconds that the fewest possible bytes take at the measured rates, in forward and in backward, 0 without a
/// backward; `None` where no block moves.
pub fn floor(line: &Line) -> Option<[f64; 2]> {
    let (fewest, rates) = (Fewest::of(line)?, line.row.map(|_| line.ceilings)?);
    let forward = fewest.forward / rates.host_to_device?;
    let copies_back = fewest.both + fewest.alone > 0.0;
    Some([forward, if copies_back { fewest.both / rates.both_ways? + fewest.alone(&rates)? } else { 0.0 }])
}

/// Whether a step takes about as long as its copies must.
fn is_at_floor(line: &Line) -> bool {
    let step = line.measured().map_or(f64::INFINITY, |measured| measured.step.median);
    floor(line).is_some_and(|[forward, backward]| step < AT_FLOOR * (forward + backward))
}

/// `In forward and backward overlap takes 1.03x to 1.11x the floor of its copies, …` Where computation is not what takes the time.
pub fn against_floor(comparison: &Comparison) -> Option<String> {
    let overlaps = |i: &usize| matches!(comparison.lines[*i].cell.offload.strategy, Strategy::Overlap(_));
    let times = moved(comparison).filter(overlaps).filter_map(|i| comparison.frame.get("both_over_floor", i));
    let (least, most) = times.minmax_by(f64::total_cmp).into_option()?;
    let [low, high] = [least, most].map(ratio);
    let range = if low == high { high } else { format!("{low} to {high}") };
    (most < AT_FLOOR).then(|| {
        format!(
            "In forward and backward overlap takes {range} the floor of its copies, the fewest bytes at the highest rates that \
             were reached."
        )
    })
}

/// Bytes per second each way that a line's backward proves: it moved at least the fewest bytes. No more than one way alone has,
/// since some of them may cross before.
pub fn proven(line: &Line) -> Option<f64> {
    let (fewest, rates) = (Fewest::of(line)?, line.ceilings);
    let seconds = line.measured()?.backward.as_ref()?.median - fewest.alone(&rates)?;
    let most = rates.host_to_device?.min(rates.device_to_host?);
    (fewest.both > 0.0 && seconds > 0.0).then(|| (fewest.both / seconds).min(most))
}

/// The cell's settings but for its strategy.
pub fn others(line: &Line) -> Cell {
    let offload = Offload { strategy: Offload::default().strategy, ..line.cell.offload };
    Cell { offload, ..line.cell.clone() }
}

/// How much of the updates on the host backward hides, where all of them are there.
pub fn hidden_updates(comparison: &Comparison) -> Option<String> {
    let measured = comparison.lines.iter().filter(|line| line.measured().is_some());
    let all: Vec<(f64, f64)> = measured.map(Line::hidden_update).collect::<Option<_>>()?;
    let of = |(hidden, most): &(f64, f64)| format!("{} (of at most {})", percent(*hidden), percent(*most));
    let (least, most) = all.iter().minmax_by(|a, b| a.0.total_cmp(&b.0)).into_option()?;
    if all.iter().all(|(_, ceiling)| *ceiling == 0.0) {
        return Some("No update on the host begins before backward has ended, since gradients are clipped by their own norm.".into());
    }
    let range = if least == most { of(least) } else { format!("{} to {}", of(least), of(most)) };
    Some(format!("Backward hides {range} of the time of the update on the host."))
}

/// How much less time a step takes whose copies run during computation, than one that copies before it, all other settings
/// being the same: of each naive cell against the fastest of its overlapping ones.
pub fn gain(comparison: &Comparison) -> Option<String> {
    let groups = comparison.groups();
    let of = |group: &Group| &comparison.lines[group.lines[0]];
    let step = |group: &&Group| comparison.of_group("step_s_median", group);
    let mut several = false;
    let less = |naive: &Group| {
        let twin = |other: &&Group| {
            matches!(of(other).cell.offload.strategy, Strategy::Overlap(_))
                && others(of(other)) == others(of(naive))
        };
        let timed = groups.iter().filter(twin).filter_map(|group| Some((step(&group)?, group)));
        several |= timed.clone().nth(1).is_some();
        let (behind, overlap) = timed.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((1.0 - behind / step(&naive)?, is_slower(comparison, naive, overlap)))
    };
    let naive = groups.iter().filter(|group| matches!(of(group).cell.offload.strategy, Strategy::Naive(_)));
    let all: Vec<(f64, bool)> = naive.filter_map(less).collect();
    let clear = all.iter().filter(|(_, clear)| *clear).map(|(share, _)| *share);
    let (low, high) = clear.clone().minmax_by(|a, b| a.total_cmp(b)).into_option()?;
    let range = match (percent(low), percent(high)) {
        (low, high) if low == high => high,
        (low, high) => format!("{} to {high}", low.trim_end_matches(" %")),
    };
    let at = match (clear.count(), all.len()) {
        (n, of) if n == of => String::new(),
        (n, of) => format!(" in {n} of {of} comparisons"),
    };
    let overlap = if several { "The fastest overlap" } else { "Overlap" };
    Some(format!("{overlap} takes {range} less time than naive offload with the same other settings{at}."))
}

/// The cells of other strategies that are clearly slower than naive offload with the same other settings, and those of which it
/// is not known whether they gain.
fn without_gain(comparison: &Comparison) -> Option<String> {
    let groups = comparison.groups();
    let cell = |group: &Group| comparison.lines[group.lines[0]].cell;
    let settings = |group: &Group| others(&comparison.lines[group.lines[0]]);
    let is_naive = |group: &Group| matches!(cell(group).offload.strategy, Strategy::Naive(_));
    let against_naive = |group: &Group| {
        let naive = groups.iter().find(|naive| is_naive(naive) && settings(naive) == settings(group))?;
        let step = |group: &Group| comparison.of_group("step_s_median", group);
        let name = format!("{} ({})", comparison.name_of_group(group), ratio(step(group)? / step(naive)?));
        Some((name, is_slower(comparison, group, naive), is_slower(comparison, naive, group)))
    };
    let moved = groups.iter().filter(|group| cell(group).offload.moves() && !is_naive(group));
    let rest = moved.filter_map(against_naive).filter(|(.., gains)| !gains);
    let (slower, unknown): (Vec<_>, Vec<_>) = rest.partition(|(_, is_slower, _)| *is_slower);
    let told = |what: &str, of: Vec<(String, bool, bool)>| {
        (!of.is_empty()).then(|| format!("{what}: {}.", names(of.into_iter().map(|(name, ..)| name))))
    };
    let parts = [
        told(
            "Clearly slower than naive offload with the same other settings (with the ratio of step times)",
            slower,
        ),
        told(
            "Neither clearly faster nor clearly slower than naive offload with the same other settings, so whether copying \
             otherwise gains is not known (with the ratio of step times)",
            unknown,
        ),
    ];
    let parts = parts.into_iter().flatten().join(" ");
    (!parts.is_empty()).then_some(parts)
}

#[cfg(test)]
#[path = "offload_tests.rs"]
mod tests;
