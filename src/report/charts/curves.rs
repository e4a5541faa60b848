//! Learning curves over the steps taken: training loss, and loss and accuracy on held-out text. Each cell has its
//! colour.

mod panel;

use itertools::Itertools;

use super::super::alike::{groups, within};
use super::super::learning::{Learned, trained};
use super::super::line::Line;
use super::super::table::Comparison;
use super::Chart;
use super::canvas::Result;
use super::legend::{FEW, Legend, Sign};
use super::plot::Plot;
use crate::common::text::{few, percent, sentence, significant};
use crate::measure::Measurement;
use crate::row::Status;
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
    let of = |shape: Option<usize>| -> Vec<usize> {
        let belongs =
            |line: &Line| shape.is_none_or(|shape| line.shape == shape) && trained(line).is_some_and(changes);
        (0..comparison.lines.len()).filter(|&i| belongs(&comparison.lines[i])).collect()
    };
    let all = of(None);
    // Runs that differ in the seed alone look alike: the first stands for them.
    let mut shapes: Vec<usize> = (0..comparison.shapes.len()).filter(|&s| !of(Some(s)).is_empty()).collect();
    shapes.dedup_by_key(|shape| comparison.problem(*shape));
    if all.len() <= MOST || shapes.len() == 1 || comparison.methods.len() == 1 {
        // Of runs with several seeds those of the first.
        let first = shapes.first().copied().filter(|_| shapes.len() == 1 && comparison.shapes.len() > 1);
        let drawn = if first.is_some() { of(first) } else { all };
        return if drawn.is_empty() { Ok(Vec::new()) } else { Ok(vec![chart(comparison, drawn, first)?]) };
    }
    // A chart of one line says the same as a sentence.
    let apart = |&shape: &usize| cover(comparison, of(Some(shape))).len() > 1;
    let (mut apart, mut alike): (Vec<usize>, Vec<usize>) = shapes.into_iter().partition(apart);
    if apart.is_empty() {
        apart.push(alike.remove(0));
    }
    // One curve is like no other.
    alike.retain(|&shape| of(Some(shape)).len() > 1);
    let chart = |&shape: &usize| chart(comparison, of(Some(shape)), Some(shape));
    let mut charts: Vec<Chart> = apart.iter().take(CHARTS).map(chart).collect::<Result<_>>()?;
    let last = &mut charts.last_mut().expect("a size is drawn").caption;
    if !alike.is_empty() {
        let names = few(alike.iter().map(|&shape| &comparison.shapes[shape].name), FEW);
        last.push_str(&format!(" At {names} the curves of all methods that trained lie on one another."));
    }
    let more = apart.len().saturating_sub(CHARTS);
    if more > 0 {
        last.push_str(&format!(" Not drawn: {more} more sizes, which the table has."));
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
    let of = |i: usize| trained(&comparison.lines[i]);
    let held_out = |m: &Measurement| m.evaluations.iter().map(|e| e.loss).collect::<Vec<_>>();
    let seen = |m: &Measurement| m.loading.as_ref().map(|loading| loading.step_tokens.clone());
    let same = |a: &usize, b: &usize| {
        of(*a).zip(of(*b)).is_some_and(|(a, b)| {
            let tolerance = SAME * a.loss.first().copied().unwrap_or_default();
            // What held-out losses are above the baseline's is drawn larger.
            within(tolerance, &a.loss, &b.loss)
                && within(tolerance / 20.0, &held_out(a), &held_out(b))
                && seen(a) == seen(b)
        })
    };
    lines.sort_by_key(|&i| !comparison.is_baseline(i));
    let mut groups = groups(lines, same);
    groups.sort_unstable();
    groups
}

/// The baseline and the lines that ended farthest from it, in their order; and the others.
fn choose(comparison: &Comparison, lines: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
    let end = |i: usize| {
        let learned = Learned::of(&comparison.lines[i])?;
        Some(learned.end().map_or(learned.train_last, |end| end.loss))
    };
    let base = lines.iter().find(|&&i| comparison.is_baseline(i)).and_then(|&i| end(i));
    let far = |i: usize| match (end(i), base) {
        _ if comparison.is_baseline(i) => f64::INFINITY,
        (Some(end), Some(base)) => (end - base).abs(),
        // Without a baseline the lowest are the ones to see.
        (Some(end), None) => -end,
        (None, _) => f64::MAX,
    };
    let ranked = lines.iter().copied().sorted_by(|a, b| far(*b).total_cmp(&far(*a)));
    let ranked: Vec<usize> = ranked.take(MOST).collect();
    lines.into_iter().partition(|i| ranked.contains(i))
}

/// The chart of some lines; where a shape is given, they are all of it.
fn chart(comparison: &Comparison, lines: Vec<usize>, shape: Option<usize>) -> Result<Chart> {
    let covering = cover(comparison, lines);
    let (drawn, left_out) = choose(comparison, covering.iter().map(|group| group[0]).collect());
    let name = |&i: &usize| match shape {
        Some(_) => comparison.methods[comparison.lines[i].method].clone(),
        None => comparison.name(&comparison.lines[i]),
    };
    let under = |line: usize| covering.iter().find(|group| group[0] == line).into_iter().flatten();
    // A cell that is a method has the colour of the other charts, any other cell one that they do not use.
    let one_shape = shape.is_some() || comparison.shapes.len() == 1;
    // Steps of samplers see unequal numbers of tokens.
    let loading = |i: usize| trained(&comparison.lines[i]).and_then(|m| m.loading.as_ref());
    let by_tokens = drawn.iter().all(|&i| loading(i).is_some());
    let tokens = |i: usize| {
        let mut seen = vec![0.0];
        for tokens in &loading(i).filter(|_| by_tokens)?.step_tokens {
            seen.push(seen[seen.len() - 1] + *tokens as f64);
        }
        Some(seen)
    };
    let curves: Vec<Curve> = drawn
        .iter()
        .enumerate()
        .filter_map(|(place, &i)| {
            let line = &comparison.lines[i];
            let sign = if one_shape { line.method } else { comparison.methods.len() + place };
            let base =
                line.baseline.filter(|base| *base != i).and_then(|base| trained(&comparison.lines[base]));
            Some(Curve { line: i, sign, measured: trained(line)?, base, tokens: tokens(i) })
        })
        .collect();
    let mut legend = Legend::default();
    for curve in &curves {
        legend.add_few(Sign::Marker(curve.sign), under(curve.line).map(name));
    }
    let at = shape.map_or(String::new(), |shape| format!(" at {}", comparison.shapes[shape].name));
    let evaluated = curves.iter().any(|curve| !curve.measured.evaluations.is_empty());
    let first = curves.iter().filter_map(|curve| curve.measured.loss.first()).copied().fold(0.0, f64::max);
    let limit = first * BLOWN_UP;
    let file = shape.map_or("curves".into(), |shape| format!("curves-{}", shape + 1));
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
    let mut caption = caption(&curves, &at, shown, evaluated, limit);
    let left_out: Vec<usize> = left_out.into_iter().flat_map(under).copied().collect();
    if drawn.iter().any(|&line| under(line).count() > 1) {
        caption.push_str(&format!(
            " Names with one sign: their curves are nowhere more than {} of the first loss apart.",
            percent(SAME)
        ));
    }
    if !left_out.is_empty() {
        let names = few(left_out.iter().map(name), FEW);
        let why = if drawn.iter().any(|&i| comparison.is_baseline(i)) {
            "nearer to the baseline at the end"
        } else {
            "with higher losses at the end"
        };
        caption.push_str(&format!(" Not drawn, {why}: {names}."));
    }
    let lost = |line: &&Line| {
        line.row.is_some_and(|row| row.status == Status::Diverged)
            && line.cell.model.decoder().is_some()
            && shape.is_none_or(|shape| line.shape == shape)
    };
    let lost: Vec<String> = comparison.lines.iter().filter(lost).map(|line| comparison.name(line)).collect();
    if !lost.is_empty() {
        caption.push_str(&format!(" Without a curve, since they diverged: {}.", few(lost, FEW)));
    }
    // The names of several shapes have their sizes in them.
    let note = comparison.size_note().filter(|_| shape.is_none() && comparison.shapes.len() > 1);
    caption.extend(note.map(|note| format!(" {}.", sentence(&note))));
    plot.chart(caption)
}

fn caption(curves: &[Curve], at: &str, shown: &[Shown], evaluated: bool, limit: f64) -> String {
    let (short, mut windows): (Vec<usize>, Vec<usize>) =
        curves.iter().map(Curve::window).partition(|window| *window < 2);
    windows.sort_unstable();
    let alone = if short.is_empty() { "" } else { ", of short curves each step" };
    let mean = match (windows.first(), windows.last()) {
        (Some(low), Some(high)) if low == high => {
            format!(" (thin; thick: its mean over {low} steps{alone})")
        }
        (Some(low), Some(high)) => {
            format!(" (thin; thick: its mean over 2 % of the steps, {low} to {high}{alone})")
        }
        _ => String::new(),
    };
    let held_out = match shown {
        _ if !evaluated => "",
        [_, Shown::Difference] => {
            " and held-out loss (marks), and what the held-out loss is above the baseline's,"
        }
        [_] => " and held-out loss (marks)",
        _ => " and held-out loss (marks), and held-out accuracy,",
    };
    let over = match curves.iter().any(|curve| curve.tokens.is_some()) {
        true => "the real tokens seen",
        false => "the steps taken",
    };
    let mut caption = format!("Training loss{mean}{held_out} over {over}{at}.");
    let losses = |curve: &Curve| {
        let held_out = curve.measured.evaluations.iter().map(|e| e.loss);
        curve.measured.loss.iter().copied().chain(held_out).any(|loss| loss > limit)
    };
    if curves.iter().any(losses) {
        caption.push_str(&format!(" Losses above {} are drawn at the upper edge.", significant(limit)));
    }
    let beyond =
        |curve: &Curve| curve.differences().iter().any(|(_, difference)| difference.abs() > far(curves));
    if shown.contains(&Shown::Difference) && curves.iter().any(beyond) {
        caption.push_str(" Differences beyond an edge are drawn at it, as arrows.");
    }
    caption
}

#[cfg(test)]
mod tests;
