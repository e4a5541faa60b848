//! The device's work during one step: a lane for each stream, with kernels and copies in the colours of their families; and the
//! steps of several cells above one another, on one axis of time.

use super::Chart;
use super::canvas::{Anchor, INK, MUTED, Result, SMALL, TEXT, WIDTH, fit, svg, text_width};
use super::lanes::{Lane, lanes, legend};
use super::plot::{Axis, BELOW, MARGIN, Ticks};
use crate::device::trace::{Activity, ActivityKind, Mark, Summary, span};
use crate::measure::Phase;
use crate::words::text::{percent, seconds, time_unit};

const LEGEND: i32 = 62;
/// Height of all lanes together, as long as each has room for its name.
const MOST: i32 = 640;
/// Of each lane, and the room for what stands above a cell's, in a chart of several cells.
const LANE: i32 = 26;
const NAME: i32 = 24;
/// Blocks that are drawn larger.
const ZOOMED: usize = 3;

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
    let lanes = lanes(&activities);
    let legend = legend(&activities, true);
    let pitch = (MOST / lanes.len() as i32).clamp(15, 44);
    let phases: Vec<(&str, u64)> = phases(&marks, origin);
    let names = if phases.is_empty() { 0 } else { 16 };
    let top = LEGEND + legend.height() + 10 + names;
    let bottom = top + pitch * lanes.len() as i32;
    let (left, right) = (left_of(&lanes), WIDTH - MARGIN - 10);

    let title = format!("Timeline of one step: {cell}");
    let seconds = summary.span as f64 * 1e-9;
    let (unit, size) = time_unit(seconds);
    let time = Axis { ticks: Ticks::About(8), ..Axis::new(format!("time in {unit}"), (0.0, seconds / size)) };
    let svg = svg(&title, bottom + BELOW, |canvas| {
        canvas.text(&facts(&summary), (MARGIN, 48), TEXT, MUTED, Anchor::Left)?;
        legend.draw(canvas, LEGEND)?;
        time.draw_below(canvas, (left, right), (top, bottom))?;
        for (lane, y) in lanes.iter().zip((top..).step_by(pitch as usize)) {
            canvas.text(&lane.name, (left - 10, y + pitch / 2), TEXT, INK, Anchor::Right)?;
            lane.draw(canvas, (origin, origin + summary.span), (left, right), (y, pitch))?;
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

/// One of the cells that [`compared`] draws.
struct Step<'t> {
    name: &'t str,
    lanes: Vec<Lane<'t>>,
    summary: Summary,
    whole: (u64, u64),
    blocks: Option<(u64, u64)>,
}

/// Several cells' steps above one another on one axis of time, and below them three blocks of each, larger. `None` of fewer
/// than two.
///
/// # Errors
/// When Plotters cannot draw.
pub fn compared(name: &str, title: &str, cells: &[(String, &[Activity])]) -> Result<Option<Chart>> {
    let mut found = Vec::new();
    for (name, activities) in cells {
        if let (Some(summary), Some(whole)) = (Summary::new(activities), span(activities)) {
            found.push((name, *activities, summary, whole));
        }
    }
    let work: Vec<Vec<&Activity>> = found
        .iter()
        .map(|(_, activities, ..)| activities.iter().filter(|a| a.kind != ActivityKind::Mark).collect())
        .collect();
    let steps: Vec<Step> = found
        .iter()
        .zip(&work)
        .map(|((name, activities, summary, whole), work)| Step {
            name,
            lanes: lanes(work),
            summary: summary.clone(),
            whole: *whole,
            blocks: blocks(activities),
        })
        .collect();
    if steps.len() < 2 {
        return Ok(None);
    }
    let legend = legend(&work.concat(), false);
    let of_all = |window: fn(&Step) -> Option<(u64, u64)>| {
        steps.iter().filter_map(window).map(|(from, to)| to - from).max().unwrap_or(0)
    };
    let parts = [
        ("One step", (|step| Some(step.whole)) as fn(&Step) -> Option<(u64, u64)>),
        ("Three blocks of it, larger", |step| step.blocks),
    ];
    let parts: Vec<_> = parts
        .into_iter()
        .map(|(what, window)| (what, window, of_all(window)))
        .filter(|(.., length)| *length > 0)
        .collect();
    let height: i32 = steps.iter().map(|step| NAME + LANE * step.lanes.len() as i32).sum();
    let top = LEGEND - 14 + legend.height() + 12;
    let left = steps.iter().map(|step| left_of(&step.lanes)).max().unwrap_or(0);
    let right = WIDTH - MARGIN - 10;
    let part_height = NAME + height + BELOW;
    let svg = svg(title, top + part_height * parts.len() as i32, |canvas| {
        legend.draw(canvas, LEGEND - 14)?;
        for ((what, window, length), top) in parts.iter().zip((top..).step_by(part_height as usize)) {
            canvas.text(what, (MARGIN, top + NAME / 2), TEXT, INK, Anchor::Left)?;
            let (unit, size) = time_unit(*length as f64 * 1e-9);
            let range = (0.0, *length as f64 * 1e-9 / size);
            let time = Axis { ticks: Ticks::About(8), ..Axis::new(format!("time in {unit}"), range) };
            let (from, to) = (top + NAME, top + NAME + height);
            time.draw_below(canvas, (left, right), (from, to))?;
            let mut y = from;
            for step in &steps {
                let text = fit(&format!("{}: {}", step.name, facts(&step.summary)), SMALL, right - left);
                canvas.text(&text, (left + 2, y + NAME / 2), SMALL, MUTED, Anchor::Left)?;
                y += NAME;
                for lane in &step.lanes {
                    canvas.text(&lane.name, (left - 10, y + LANE / 2), TEXT, INK, Anchor::Right)?;
                    if let Some((start, end)) = window(step) {
                        let pixels = ((end - start) as f64 / *length as f64 * f64::from(right - left)) as i32;
                        lane.draw(canvas, (start, end), (left, left + pixels.max(1)), (y, LANE))?;
                    }
                    y += LANE;
                }
            }
            canvas.line(&[(left, from), (left, to)], MUTED, 1)?;
        }
        Ok(())
    })?;
    let below = match parts.len() {
        1 => String::new(),
        _ => format!(" Below, {ZOOMED} blocks of it, larger, from the end of the block before them."),
    };
    let caption = format!("{title}, on one axis of time.{below}");
    Ok(Some(Chart { name: name.into(), caption, svg }))
}

/// From the end of the block before the middle ones of backward to the end of the last of them; of forward where backward
/// has too few.
fn blocks(activities: &[Activity]) -> Option<(u64, u64)> {
    let marks: Vec<(u64, Mark)> = activities.iter().filter_map(|a| Some((a.start, Mark::of(a)?))).collect();
    let end = |of: Phase| marks.iter().find(|(_, mark)| *mark == Mark::End(of)).map(|(time, _)| *time);
    let turns = |from: u64, to: u64| -> Vec<u64> {
        let within = |(time, mark): &&(u64, Mark)| *mark == Mark::TurnEnds && (from..=to).contains(time);
        marks.iter().filter(within).map(|(time, _)| *time).collect()
    };
    let forward = end(Phase::Forward)?;
    let backward = turns(forward, end(Phase::Backward)?);
    let ends = if backward.len() > ZOOMED { backward } else { turns(0, forward) };
    let first = ends.len().checked_sub(ZOOMED + 1)? / 2;
    Some((ends[first], ends[first + ZOOMED]))
}

/// The left end of the lanes, to the right of their names.
fn left_of(lanes: &[Lane]) -> i32 {
    MARGIN + 10 + lanes.iter().map(|lane| text_width(&lane.name, TEXT)).max().unwrap_or(0)
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
    let hidden = match (summary.hidden_share, summary.hidden_exchange) {
        (Some(share), _) => format!("{} of copy time hidden under kernels", percent(share)),
        (None, Some(share)) => format!("{} of the exchange between ranks under kernels", percent(share)),
        (None, None) => "no copies over the bus".into(),
    };
    let facts = [
        format!("step {}", seconds(summary.span as f64 * 1e-9)),
        format!("{} kernels", summary.kernels),
        format!("device busy {}", percent(summary.busy_share())),
        hidden,
    ];
    facts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, start: u64, end: u64) -> Activity {
        let (kind, name) = (ActivityKind::Kernel, name.into());
        Activity { kind, name, operator: None, stream: 7, start, end, bytes: 0 }
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

    #[test]
    fn the_middle_blocks_of_backward_are_larger() {
        let mark = |mark: Mark, start| {
            let name = mark.name().into();
            Activity { kind: ActivityKind::Mark, name, ..kernel("", start, start) }
        };
        // Forward ends at 10; eight blocks of backward end at 20, 30, …, 90.
        let mut all = vec![kernel("gemm", 0, 100), mark(Mark::End(Phase::Forward), 10)];
        all.extend((2..10).map(|i| mark(Mark::TurnEnds, i * 10)));
        all.push(mark(Mark::End(Phase::Backward), 95));
        assert_eq!(blocks(&all), Some((40, 70)));
        assert_eq!(blocks(&all[..4]), None);
        let cells = [("naive".to_string(), &all[..]), ("overlap".to_string(), &all[..])];
        let chart = compared("overlap", "Naive and overlap", &cells).expect("a chart").expect("two steps");
        assert!(chart.svg.contains("One step") && chart.svg.contains("Three blocks"));
        assert!(compared("overlap", "Naive alone", &cells[..1]).expect("no chart").is_none());
    }
}
