//! Held-out loss over the seconds of training and over peak memory: what each method learns in the same time, and in the same
//! memory. Of several seeds the median.

use super::super::learning::{Learned, is_evaluated, trained};
use super::super::outcome::medians_of;
use super::super::page;
use super::prelude::*;
use crate::common::text::significant;
use crate::measure::median;

/// Fewer methods than this are read from a table.
const FEW_METHODS: usize = 3;
/// Losses are drawn up to so many times the distance from the lowest final one to that at three quarters of the methods: over
/// time with the way to them, over memory those of most methods.
const FAR: [f64; 2] = [10.0, 4.0];

/// A method, with the median over its cells of each evaluation.
struct Learner {
    /// Its colour and marker.
    sign: usize,
    name: String,
    seeds: usize,
    /// Seconds of training before each evaluation, and its loss.
    curve: Vec<(f64, f64)>,
    /// Bytes at the peak.
    memory: f64,
}

impl Learner {
    fn end(&self) -> (f64, f64) {
        *self.curve.last().expect("evaluated")
    }
}

/// Nothing where text that is held out says nothing of methods, where there are few, or where problems differ.
pub fn quality(comparison: &Comparison) -> Result<Vec<Chart>> {
    let groups = comparison.chosen();
    let memory = page::memory(comparison);
    let learners = groups.iter().enumerate();
    let learners =
        learners.filter_map(|(sign, group)| learner(comparison, (sign, group), memory.0)).collect_vec();
    let several = learners.len() >= FEW_METHODS && comparison.problems() == 1;
    if !several || !is_evaluated(comparison) {
        return Ok(Vec::new());
    }
    let [over_time, over_memory] = FAR.map(|far| range(&learners, far));
    let loss = |range| Axis::new("held-out loss in nats", range);
    let seconds = learners.iter().map(|of| of.end().0).fold(0.0, f64::max);
    let time = Axis::level("seconds of training", (0.0, seconds));
    let (_, most) = extent(&learners.iter().map(|of| of.memory).collect_vec());
    let (unit, size) = comparison.frame.unit(memory.0).of_axis(most);
    let bytes = Axis::level(format!("{} in {unit}", memory.1), (0.0, most / size));

    let mut legend = Legend::default();
    learners.iter().for_each(|of| legend.add(Sign::Marker(of.sign), &of.name));
    let plot = Plot::new("quality", "What is learned in the same time and memory", legend, 230)
        .panel(time, loss(over_time), |canvas, area| draw_over_time(canvas, area, &learners, over_time.1))
        .panel(bytes, loss(over_memory), |canvas, area| {
            let ends = learners.iter().map(|of| (of, of.memory / size));
            draw_ends(canvas, area, ends.collect(), over_memory.1, Taken::default())
        });
    let of_seeds =
        medians_of(learners.iter().map(|of| of.seeds)).map_or(String::new(), |of| format!(", {of}"));
    let mut caption = format!(
        "Held-out loss over the seconds of training, without evaluation, and after the last step over peak memory{of_seeds}; \
         left and below is better."
    );
    if learners.iter().any(|of| of.end().1 > over_memory.1) {
        caption += " A method that ends above a panel stands at its upper edge with its loss.";
    }
    Ok(vec![plot.chart(caption)?])
}

fn learner(comparison: &Comparison, (sign, group): (usize, &Group), memory: &str) -> Option<Learner> {
    let of_line = |&line: &usize| -> Option<Vec<(f64, f64)>> {
        let measured = trained(&comparison.lines[line])?;
        let (steps, whole) = (measured.loss.len(), Learned::of(&comparison.lines[line])?.seconds());
        let at = |step: usize| whole * step as f64 / steps as f64;
        let curve = measured.evaluations.iter().map(|of| (at(of.step), of.loss)).collect_vec();
        (curve.len() > 2).then_some(curve)
    };
    let curves = group.lines.iter().filter_map(of_line).collect_vec();
    let count = curves.iter().map(Vec::len).min()?;
    let point = |i: usize| {
        let (seconds, losses): (Vec<f64>, Vec<f64>) = curves.iter().map(|curve| curve[i]).unzip();
        (median(&seconds), median(&losses))
    };
    let curve = (0..count).map(point).collect();
    let memory = comparison.of_group(memory, group)?;
    let name = comparison.methods[group.method].clone();
    Some(Learner { sign, name, seeds: curves.len(), curve, memory })
}

/// The losses that are drawn.
fn range(learners: &[Learner], far: f64) -> (f64, f64) {
    let ends = learners.iter().map(|of| of.end().1).sorted_by(f64::total_cmp).collect_vec();
    let (least, upper) = (ends[0], ends[(ends.len() - 1) * 3 / 4]);
    let most = learners.iter().flat_map(|of| &of.curve).map(|of| of.1).fold(least, f64::max);
    let far = (far * (upper - least)).max(0.02 * least).min(1.06 * (most - least)).max(1e-3);
    (least - 0.06 * far, least + far)
}

fn draw_over_time(canvas: &Canvas, area: &Area, learners: &[Learner], limit: f64) -> Result {
    let mut taken = Taken::default();
    for Learner { sign, curve, .. } in learners {
        let points = within(area, curve, limit);
        canvas.curve(*sign, &points, 1)?;
        taken.line(&points);
    }
    draw_ends(canvas, area, learners.iter().map(|of| (of, of.end().0)).collect(), limit, taken)
}

/// A marker at the end of each method with its x, and its loss where that is above the limit.
fn draw_ends(
    canvas: &Canvas,
    area: &Area,
    ends: Vec<(&Learner, f64)>,
    limit: f64,
    mut taken: Taken,
) -> Result {
    let ends = ends.into_iter().map(|(of, x)| (of, area.at(x, of.end().1.min(limit)))).collect_vec();
    ends.iter().for_each(|(_, at)| taken.marker(*at));
    for (of, at) in ends {
        canvas.marker(of.sign, at, 5)?;
        let (after, loss) = of.end();
        let text = significant(loss);
        canvas.hover_at(at, &format!("{}: {text} after {} s", of.name, significant(after)));
        if loss > limit {
            taken.name(canvas, area, &text, (of.sign, at))?;
        }
    }
    Ok(())
}

/// The part of a curve below the limit, from the point where it comes under it.
fn within(area: &Area, curve: &[(f64, f64)], limit: f64) -> Vec<(i32, i32)> {
    let Some(first) = curve.iter().position(|of| of.1 <= limit) else { return Vec::new() };
    let enters = first.checked_sub(1).map(|before| {
        let ((x, y), (next_x, next_y)) = (curve[before], curve[first]);
        (x + (next_x - x) * (y - limit) / (y - next_y), limit)
    });
    enters.into_iter().chain(curve[first..].iter().copied()).map(|(x, y)| area.at(x, y.min(limit))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{language_recipe, learned_row};
    use super::*;

    const GRID: &str = "[grid]\n\"tuning.method\" = [\"full\", \"bitfit\", \"adapter\", \"prefix\"]\n";

    /// Three methods end at 1.0, 1.1 and 1.2, one far above, which stands at the upper edge and hides none of the others.
    #[test]
    fn what_methods_learn_is_drawn_and_what_is_far_above_stands_at_the_edge() {
        let recipe = language_recipe(GRID);
        let rows: Vec<_> = recipe
            .cells
            .iter()
            .zip([1.0, 1.1, 1.2, 9.0])
            .map(|(cell, end)| {
                learned_row(cell, vec![9.0; 30], &[(0, 9.5, 0.0), (15, 2.0, 0.1), (30, end, 0.2)])
            })
            .collect();
        let draw = |rows: &[Row]| quality(&Comparison::new(&recipe, rows)).expect("a chart");
        let [chart] = &draw(&rows)[..] else { panic!("one chart") };
        assert_eq!(chart.name, "quality");
        assert!(chart.caption.contains("stands at its upper edge"), "{}", chart.caption);
        assert_eq!(
            chart.svg.matches(">\n9.00\n<").count(),
            2,
            "its loss stands beside it in both panels: {}",
            chart.svg
        );
        assert!(draw(&rows[..2]).is_empty(), "two are read from the table");
        let comparison = Comparison::new(&recipe, &rows);
        let groups = comparison.chosen();
        let learners = groups.iter().enumerate();
        let learners = learners
            .filter_map(|(sign, group)| learner(&comparison, (sign, group), "live_peak_bytes"))
            .collect_vec();
        // 1.2, of the third, is 0.2 above the lowest.
        let (low, high) = range(&learners, 2.0);
        assert!(low < 1.0 && (1.39..1.41).contains(&high), "{low} {high}");
    }
}
