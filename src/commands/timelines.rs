//! Pipelines in `runner plan`: the timeline of a step, its bubble, messages and live activations.

use crate::common::Bytes;
use crate::parallel::Pipeline;
use crate::parallel::schedule::simulate::{Times, simulate};
use crate::parallel::schedule::timeline;
use crate::recipe::Cell;

/// A paragraph for each cell with a pipeline; empty where there is none.
pub fn timelines(cells: &[Cell]) -> String {
    let of = |(i, cell): (usize, &Cell)| Some(of_cell(i + 1, cell, cell.parallel.pipeline.as_ref()?));
    let all: Vec<String> = cells.iter().enumerate().filter_map(of).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("\n{}\n{}", all.join("\n"), LEGEND),
    }
}

const LEGEND: &str = "F, B and U: forward and backward of a micro-batch, and update; dots: the bubble, the share of the step \
                      in which a rank computes nothing, the mean over ranks. A stage's time is its share of the \
                      operations; messages take none. Activations: micro-batches that wait for their backward.";

fn of_cell(number: usize, cell: &Cell, pipeline: &Pipeline) -> String {
    let order = pipeline.order();
    let simulate = |times: &Times| simulate(&order, times).expect("checked");
    let step = simulate(&cell.stage_times(pipeline));
    let equal = simulate(&Times::equal(order.shape));
    let layers = cell.model.decoder().map_or(0, |shape| shape.layers);
    let (lines, whole) = timeline::text(&step);
    let more = if whole { "" } else { " …" };
    let blocks = |rank: usize| {
        let stages =
            (0..pipeline.chunks()).map(|chunk| order.shape.blocks(chunk * pipeline.stages + rank, layers));
        let part = |blocks: std::ops::Range<usize>| match blocks.len() {
            1 => blocks.start.to_string(),
            _ => format!("{}-{}", blocks.start, blocks.end - 1),
        };
        format!("rank {rank}, blocks {}", stages.map(part).collect::<Vec<_>>().join(" and "))
    };
    let heads: Vec<String> = (0..lines.len()).map(blocks).collect();
    let width = heads.iter().map(String::len).max().unwrap_or(0);
    let drawn: Vec<String> =
        heads.iter().zip(lines).map(|(head, line)| format!("  {head:width$}  {line}{more}")).collect();
    let live = |rank: usize| {
        let micro_batches = order.live(rank) as f64 / pipeline.chunks() as f64;
        format!("{micro_batches:.2}").trim_end_matches('0').trim_end_matches('.').to_string()
    };
    let live: Vec<String> = (0..pipeline.stages).map(live).collect();
    let messages = order.messages();
    format!(
        "cell {number}: {}, micro-batches: {}\n{}\n  bubble {:.1} %, with stages of equal time {:.1} %; messages a step: {messages} of {}; activations by \
         rank: {}\n",
        pipeline.schedule.title(),
        pipeline.micro_batches,
        drawn.join("\n"),
        step.bubble() * 100.0,
        equal.bubble() * 100.0,
        Bytes(cell.message_bytes()),
        live.join(", "),
    )
}
