//! Learning curves over the steps taken: training loss, and loss and accuracy on held-out text. Each cell has its
//! colour.

mod panel;

use super::super::alike::{groups, within};
use super::super::learning::{Learned, trained};
use super::prelude::*;
use crate::common::text::{counted, few, percent, sentence, significant};
use crate::measure::Measurement;
use panel::{Curve, Shown, far, panel};

/// More curves than this look alike in one chart.
const MOST: usize = 6;
/// More charts than this are left to the table.
const CHARTS: usize = 6;
/// Curves that are nowhere more than this share of the first loss apart cover each other.
const SAME: f64 = 0.002;
/// Losses above so many times the largest first one would hide all others.
const BLOWN_UP: f64 = 1.5;

/// One chart of all cells that trained; one for each of the sizes where they are more than [`MOST`].
pub fn curves(comparison: &Comparison) -> Result<Vec<Chart>> {
    let trains = |&i: &usize| {
        let line = &comparison.lines[i];
        trained(line).is_some_and(changes) && !comparison.tried.left_out.contains(&line.method)
    };
    let all: Vec<usize> = (0..comparison.lines.len()).filter(trains).collect();
    let of_shape =
        |shape: usize| all.iter().copied().filter(|&i| comparison.lines[i].shape == shape).collect_vec();
    // Runs that differ in the seed alone look alike: the first stands for them.
    let mut shapes = all.iter().map(|&i| comparison.lines[i].shape).sorted().collect_vec();
    shapes.dedup_by_key(|shape| comparison.shapes[*shape].problem);
    if all.len() <= MOST || shapes.len() < 2 || comparison.methods.len() == 1 {
        // Of runs with several seeds those of the first.
        let first = shapes.first().copied().filter(|_| shapes.len() == 1 && comparison.shapes.len() > 1);
        let drawn = first.map_or(all.clone(), of_shape);
        return if drawn.is_empty() { Ok(Vec::new()) } else { Ok(vec![chart(comparison, drawn, first)?]) };
    }
    // Where all methods lie on one another, a table says the same.
    let apart =
        shapes.iter().copied().filter(|&shape| cover(comparison, of_shape(shape)).len() > 1).collect_vec();
    let drawn = if apart.is_empty() { &shapes[..1] } else { &apart[..apart.len().min(CHARTS)] };
    let chart = |&shape: &usize| chart(comparison, of_shape(shape), Some(shape));
    let mut charts: Vec<Chart> = drawn.iter().map(chart).collect::<Result<_>>()?;
    if let (Some(last), more @ 1..) = (charts.last_mut(), shapes.len() - drawn.len()) {
        let sizes = counted(more, "more size");
        last.caption += &format!(" Not drawn: {sizes}, which the table has.");
    }
    Ok(charts)
}

/// Whether some loss is not as the first one was.
fn changes(measured: &Measurement) -> bool {
    let losses = measured.loss.iter().chain(measured.evaluations.iter().map(|e| &e.loss));
    let first = measured.loss.first().copied().unwrap_or_default();
    losses.copied().any(|loss| !within(SAME * first, &[loss], &[first]))
}

/// The lines in groups whose curves cover each other; a baseline is the first of its group.
fn cover(comparison: &Comparison, mut lines: Vec<usize>) -> Vec<Vec<usize>> {
    let held_out = |m: &Measurement| m.evaluations.iter().map(|e| e.loss).collect_vec();
    let seen = |m: &Measurement| m.loading.as_ref().map(|loading| loading.step_tokens.clone());
    let same = |a: &usize, b: &usize| {
        let [Some(a), Some(b)] = [a, b].map(|i| trained(&comparison.lines[*i])) else { return false };
        let tolerance = SAME * a.loss.first().copied().unwrap_or_default();
        // What held-out losses are above the baseline's is drawn larger.
        within(tolerance, &a.loss, &b.loss)
            && within(tolerance / 20.0, &held_out(a), &held_out(b))
            && seen(a) == seen(b)
    };
    lines.sort_by_key(|&i| !comparison.is_baseline(i));
    let mut groups = groups(lines, same);
    groups.sort_unstable();
    groups
}

/// The groups of the baseline and of the lines that ended farthest from it, in their order; and the others.
fn choose(comparison: &Comparison, covering: Vec<Vec<usize>>) -> [Vec<Vec<usize>>; 2] {
    let end = |i: usize| {
        let learned = Learned::of(&comparison.lines[i])?;
        Some(learned.end().map_or(learned.train_last, |end| end.loss))
    };
    let is_base = |group: &&Vec<usize>| comparison.is_baseline(group[0]);
    let base = covering.iter().find(is_base).and_then(|group| end(group[0]));
    let far = |group: &Vec<usize>| match (end(group[0]), base) {
        _ if is_base(&group) => f64::INFINITY,
        (Some(end), Some(base)) => (end - base).abs(),
        // Without a baseline the lowest are the ones to see.
        (Some(end), None) => -end,
        (None, _) => f64::MAX,
    };
    let ranked = covering.iter().sorted_by(|a, b| far(b).total_cmp(&far(a))).take(MOST);
    let ranked: Vec<usize> = ranked.map(|group| group[0]).collect();
    let (drawn, left_out) = covering.into_iter().partition(|group| ranked.contains(&group[0]));
    [drawn, left_out]
}

/// The curves of groups. A cell that is a method has the colour of the other charts, any other cell one that they do not use.
fn of_groups<'a>(comparison: &Comparison<'a>, drawn: &[Vec<usize>], one_shape: bool) -> Vec<Curve<'a>> {
    let measured = |i: usize| trained(&comparison.lines[i]);
    // Steps of samplers see unequal numbers of tokens.
    let by_tokens = drawn.iter().all(|group| measured(group[0]).is_some_and(|m| m.loading.is_some()));
    let curve = |(place, group): (usize, &Vec<usize>)| {
        let (line, own) = (&comparison.lines[group[0]], measured(group[0])?);
        let tokens = own.loading.as_ref().filter(|_| by_tokens).map(|loading| {
            let seen = loading.step_tokens.iter().scan(0.0, |seen, tokens| {
                *seen += *tokens as f64;
                Some(*seen)
            });
            [0.0].into_iter().chain(seen).collect()
        });
        let sign = if one_shape { line.method } else { comparison.methods.len() + place };
        let base = line.baseline.filter(|&base| base != group[0]).and_then(measured);
        Some(Curve { sign, measured: own, base, tokens })
    };
    drawn.iter().enumerate().filter_map(curve).collect()
}

/// The chart of some lines; where a shape is given, they are all of it.
fn chart(comparison: &Comparison, lines: Vec<usize>, shape: Option<usize>) -> Result<Chart> {
    let [drawn, left_out] = choose(comparison, cover(comparison, lines));
    let name = |&i: &usize| match shape {
        Some(_) => comparison.methods[comparison.lines[i].method].clone(),
        None => comparison.name(&comparison.lines[i]),
    };
    let curves = of_groups(comparison, &drawn, shape.is_some() || comparison.shapes.len() == 1);
    let mut legend = Legend::default();
    for (curve, group) in curves.iter().zip(&drawn) {
        legend.add_few(Sign::Marker(curve.sign), group.iter().map(name));
    }
    let at = shape.map_or(String::new(), |shape| format!(" at {}", comparison.shapes[shape].name));
    let file = shape.map_or("curves".into(), |shape| format!("curves-{}", shape + 1));
    let first = curves.iter().filter_map(|curve| curve.measured.loss.first()).copied().fold(0.0, f64::max);
    let limit = first * BLOWN_UP;
    // Two evaluations are a line in the table.
    let often = curves.iter().any(|curve| curve.measured.evaluations.len() > 2);
    let compared = curves.iter().any(|curve| curve.differences().len() > 2);
    let shown = match (often, compared) {
        (_, true) => &[Shown::Loss, Shown::Difference][..],
        (true, false) => &[Shown::Loss, Shown::Accuracy],
        (false, false) => &[Shown::Loss],
    };
    let plot = Plot::new(&file, &format!("Learning curves{at}"), legend, 300);
    let plot = shown.iter().fold(plot, |plot, values| panel(plot, &curves, *values, limit));
    let mut caption = caption(&curves, &at, shown, limit);
    if drawn.iter().any(|group| group.len() > 1) {
        let most = percent(SAME);
        caption += &format!(
            " Names with the same sign: their curves differ nowhere by more than {most} of the first loss."
        );
    }
    if !left_out.is_empty() {
        let why = match drawn.iter().any(|group| comparison.is_baseline(group[0])) {
            true => "nearer to the baseline at the end",
            false => "with higher losses at the end",
        };
        caption += &format!(" Not drawn, {why}: {}.", few(left_out.iter().flatten().map(name), FEW));
    }
    // The names of several shapes have their sizes in them.
    let note = comparison.size_note().filter(|_| shape.is_none() && comparison.shapes.len() > 1);
    caption.extend(note.map(|note| format!(" {}.", sentence(&note))));
    plot.chart(caption)
}

fn caption(curves: &[Curve], at: &str, shown: &[Shown], limit: f64) -> String {
    let mean = match curves.iter().any(|curve| curve.window() > 1) {
        true => " (thin; thick: its mean over 2 % of the steps, at least 11)",
        false => "",
    };
    let held_out = match shown {
        _ if curves.iter().all(|curve| curve.measured.evaluations.is_empty()) => "",
        [_, Shown::Difference] => {
            " and held-out loss (marks), and what the held-out loss is above the baseline's,"
        }
        [_] => " and held-out loss (marks)",
        _ => " and held-out loss (marks), and held-out accuracy,",
    };
    let by_tokens = curves.iter().any(|curve| curve.tokens.is_some());
    let over = if by_tokens { "the real tokens seen" } else { "the steps taken" };
    let mut caption = format!("Training loss{mean}{held_out} over {over}{at}.");
    let all = curves.iter().flat_map(|curve| {
        curve.measured.loss.iter().copied().chain(curve.measured.evaluations.iter().map(|e| e.loss))
    });
    if all.into_iter().any(|loss| loss > limit) {
        caption += &format!(" Losses above {} are drawn at the upper edge.", significant(limit));
    }
    let beyond = |curve: &Curve| curve.differences().iter().any(|(_, by)| by.abs() > far(curves));
    if shown.contains(&Shown::Difference) && curves.iter().any(beyond) {
        caption += " Differences beyond an edge are drawn at it, as arrows.";
    }
    caption
}

#[cfg(test)]
mod tests;
