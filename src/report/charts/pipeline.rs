//! A step of a pipeline: the predicted timeline above the measured one, on one axis of time, with a lane for each rank.

use super::super::pipeline::{Pipelined, idle, seconds as length};
use super::lanes::{LANE, Lane, Section, lanes};
use super::prelude::*;
use crate::common::text::{percent, seconds};
use crate::measure::Span;

/// Lanes of a timeline, at most: more are too thin to be read.
const MOST: usize = 16;
/// Pixels from which on a computation is set apart from the next.
const SEPARATED: i32 = 4;

fn color(action: &str) -> RGBColor {
    if action.contains('F') { method_color(0) } else { method_color(1) }
}

/// A chart of the least idle pipeline that ran to its end, and of the most idle one.
pub fn pipelines(comparison: &Comparison) -> Result<Vec<Chart>> {
    let drawable = |step: &Pipelined| step.measured.len() <= MOST && length(&step.measured) > 0.0;
    let idle = comparison.rising("pipeline_measured_idle").into_iter();
    let steps = idle.filter_map(|i| Some((i, Pipelined::new(&comparison.lines[i]).filter(drawable)?)));
    let mut steps: Vec<(usize, Pipelined)> = steps.collect();
    if steps.len() > 2 {
        steps.drain(1..steps.len() - 1);
    }
    steps.iter().map(|(i, step)| chart(*i, &comparison.name(&comparison.lines[*i]), step)).collect()
}

fn chart(number: usize, cell: &str, step: &Pipelined) -> Result<Chart> {
    let parts = [("Predicted", &step.predicted), ("Measured", &step.measured)];
    let sections = parts.map(|(what, ranks)| {
        let start = ranks.iter().flatten().map(|span| span.start).fold(f64::INFINITY, f64::min);
        let heading = format!("{what}: {}, idle {}", seconds(length(ranks)), percent(idle(ranks)));
        let lanes = ranks.iter().enumerate().map(|(rank, spans)| Lane {
            name: format!("rank {rank}"),
            draw: Box::new(move |canvas, at, y| lane(canvas, spans, &|time| at(time - start), y)),
        });
        Section { heading, lanes: lanes.collect() }
    });
    let mut legend = Legend::default();
    for (place, name) in ["forward", "backward"].into_iter().enumerate() {
        legend.add(Sign::Fill(method_color(place)), name);
    }
    let title = format!("A step of the pipeline: {cell}");
    let longest = length(&step.predicted).max(length(&step.measured));
    let svg = lanes(&title, &legend, longest, &sections)?;
    let caption = format!(
        "{title}. Numbers are micro-batches. Predicted: the schedule with the time of each stage alone; measured: the last measured step."
    );
    Ok(Chart { name: format!("pipeline-{}", number + 1), caption, svg })
}

/// The computations of a rank, each with the number of its micro-batch where there is room.
fn lane(canvas: &Canvas, spans: &[Span], at: &dyn Fn(f64) -> i32, y: i32) -> Result {
    let (top, bottom, mut drawn) = (y + 2, y + LANE - 2, i32::MIN);
    for span in spans {
        // Thousands of spans make as many pixels at most.
        let (from, to) = (at(span.start).max(drawn), at(span.end));
        if to <= drawn {
            continue;
        }
        canvas.rect((from, top), (to.max(from + 1), bottom), color(&span.action))?;
        drawn = to;
        if to - from >= SEPARATED {
            canvas.line(&[(to, top), (to, bottom)], WHITE, 1)?;
        }
        let number = span.action.rsplit(['F', 'B']).next().unwrap_or_default();
        if text_width(number, SMALL) + 4 <= to - from {
            canvas.text(number, ((from + to) / 2, y + LANE / 2), SMALL, WHITE, Anchor::Center)?;
        }
        let text = format!("{}: {}", span.action, seconds(span.end - span.start));
        canvas.hover((from, top), (to, bottom), &text);
    }
    Ok(())
}
