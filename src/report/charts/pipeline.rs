//! A step of a pipeline: the predicted timeline above the measured one, on one axis of time, with a lane for each rank.

use plotters::style::RGBColor;

use super::super::pipeline::{Pipelined, idle, seconds as length};
use super::super::table::Comparison;
use super::Chart;
use super::canvas::{Anchor, Canvas, GRID, INK, MUTED, Result, SMALL, TEXT, WIDTH, svg, text_width};
use super::legend::{Legend, Sign};
use super::look::{method_color, tint};
use super::plot::{Axis, BELOW, MARGIN, Ticks};
use crate::common::text::{percent, seconds, time_unit};
use crate::measure::Span;

const LEGEND: i32 = 48;
/// Of each lane, and the room for what stands above a timeline.
const LANE: i32 = 22;
const NAME: i32 = 26;
/// Lanes of a timeline, at most: more are too thin to be read.
const MOST: usize = 16;

fn color(action: &str) -> RGBColor {
    if action.contains('F') { method_color(0) } else { method_color(1) }
}

/// A chart of the least idle pipeline that ran to its end, and of the most idle one.
pub fn pipelines(comparison: &Comparison) -> Result<Vec<Chart>> {
    let drawable = |step: &Pipelined| step.measured.len() <= MOST && length(&step.measured) > 0.0;
    let steps = comparison.lines.iter().enumerate();
    let steps = steps.filter_map(|(i, line)| Some((i, Pipelined::new(line).filter(drawable)?)));
    let mut steps: Vec<(usize, Pipelined)> = steps.collect();
    steps.sort_by(|a, b| idle(&a.1.measured).total_cmp(&idle(&b.1.measured)));
    if steps.len() > 2 {
        steps.drain(1..steps.len() - 1);
    }
    steps.iter().map(|(i, step)| chart(*i, &comparison.name(&comparison.lines[*i]), step)).collect()
}

fn chart(number: usize, cell: &str, step: &Pipelined) -> Result<Chart> {
    let parts = [("Predicted", &step.predicted), ("Measured", &step.measured)];
    let longest = parts.iter().map(|(_, ranks)| length(ranks)).fold(0.0, f64::max);
    let mut legend = Legend::default();
    ["forward", "backward"]
        .into_iter()
        .zip(0..)
        .for_each(|(name, place)| legend.add(Sign::Fill(method_color(place)), name));
    let height = NAME + LANE * step.measured.len() as i32;
    let top = LEGEND + legend.height() + 4;
    let bottom = top + height * parts.len() as i32;
    let names: Vec<String> = (0..step.measured.len()).map(|rank| format!("rank {rank}")).collect();
    let left = MARGIN + 10 + names.iter().map(|name| text_width(name, TEXT)).max().unwrap_or(0);
    let right = WIDTH - MARGIN - 10;
    let (unit, size) = time_unit(longest);
    let time = Axis { ticks: Ticks::About(8), ..Axis::new(format!("time in {unit}"), (0.0, longest / size)) };
    let title = format!("A step of the pipeline: {cell}");
    let svg = svg(&title, bottom + BELOW, |canvas| {
        legend.draw(canvas, LEGEND)?;
        time.draw_below(canvas, (left, right), (top, bottom))?;
        for ((what, ranks), top) in parts.iter().zip((top..).step_by(height as usize)) {
            let facts = format!("{what}: {}, idle {}", seconds(length(ranks)), percent(idle(ranks)));
            canvas.text(&facts, (left + 2, top + NAME / 2), SMALL, MUTED, Anchor::Left)?;
            let start = ranks.iter().flatten().map(|span| span.start).fold(f64::INFINITY, f64::min);
            let at = |t: f64| left + ((t - start) / longest * f64::from(right - left)).round() as i32;
            for ((spans, name), y) in ranks.iter().zip(&names).zip((top + NAME..).step_by(LANE as usize)) {
                canvas.text(name, (left - 10, y + LANE / 2), TEXT, INK, Anchor::Right)?;
                canvas.rect((left, y + 2), (right, y + LANE - 2), tint(GRID, 0.4))?;
                lane(canvas, spans, &at, y)?;
            }
        }
        canvas.line(&[(left, top), (left, bottom)], MUTED, 1)
    })?;
    let caption = format!(
        "{title}. Numbers are those of micro-batches. Predicted: the schedule with the times that each stage takes by \
         itself; measured: the last measured step."
    );
    Ok(Chart { name: format!("pipeline-{}", number + 1), caption, svg })
}

/// Pixels from which on a computation is set apart from the next.
const SEPARATED: i32 = 4;

/// The computations of a rank, each with the number of its micro-batch where there is room.
fn lane(canvas: &Canvas, spans: &[Span], at: &dyn Fn(f64) -> i32, y: i32) -> Result {
    let mut drawn = i32::MIN;
    for span in spans {
        // Thousands of spans make as many pixels at most.
        let (from, to) = (at(span.start).max(drawn), at(span.end));
        if to <= drawn {
            continue;
        }
        canvas.rect((from, y + 2), (to.max(from + 1), y + LANE - 2), color(&span.action))?;
        drawn = to;
        let number = span.action.rsplit(['F', 'B']).next().unwrap_or_default();
        if to - from >= SEPARATED {
            canvas.line(&[(to, y + 2), (to, y + LANE - 2)], RGBColor(255, 255, 255), 1)?;
        }
        if text_width(number, SMALL) + 4 <= to - from {
            canvas.text(
                number,
                ((from + to) / 2, y + LANE / 2),
                SMALL,
                RGBColor(255, 255, 255),
                Anchor::Middle,
            )?;
        }
        canvas.hover(
            (from, y + 2),
            (to, y + LANE - 2),
            &format!("{}: {}", span.action, seconds(span.end - span.start)),
        );
    }
    Ok(())
}
