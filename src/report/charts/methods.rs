//! The figure of page 1: each method of its table with bars for its rate and its memory.

use super::super::interval::with_half_width;
use super::super::page;
use super::super::statistics::half_width;
use super::bar::{Bar, PITCH, room};
use super::prelude::*;

const TOP: i32 = 34;
const BASE: RGBColor = RGBColor(140, 140, 140);

/// Nothing of fewer than two measured methods.
pub fn methods(comparison: &Comparison) -> Result<Vec<Chart>> {
    let groups = page::shown(comparison);
    let (rate, heading) = page::rate(comparison);
    let better = if rate == "tokens_per_second" { "more" } else { "less" };
    let (memory, what) = page::memory(comparison);
    let columns = [
        (format!("{heading} ({better} is better)"), bars(comparison, &groups, rate)),
        (format!("{what} (less is better)"), bars(comparison, &groups, memory)),
    ];
    let rates = &columns[0].1;
    if rates.iter().filter_map(Bar::length).count() < 2 {
        return Ok(Vec::new());
    }
    let left = MARGIN + room(rates).0;
    let width = (WIDTH - MARGIN - left) / columns.len() as i32;
    let svg = svg("", TOP + PITCH * groups.len() as i32 + 6, |canvas| {
        for ((title, bars), from) in columns.iter().zip((left..).step_by(width as usize)) {
            canvas.text(title, (from, TOP / 2), TEXT, INK, Anchor::Left)?;
            let (_, high) = from_zero(bars.iter().filter_map(Bar::reach));
            for (bar, y) in bars.iter().zip((TOP..).step_by(PITCH as usize)) {
                bar.draw(canvas, y, (from, from + width - room(bars).1), high)?;
            }
        }
        let mut names = rates.iter().zip((TOP..).step_by(PITCH as usize));
        names.try_for_each(|(bar, y)| bar.draw_name(canvas, y, left))
    })?;
    let mut caption = String::from("The methods of the table");
    if groups.iter().any(|group| comparison.is_base(group)) {
        caption += "; the baseline is grey";
    }
    if rates.iter().any(|bar| bar.spread.is_some()) {
        caption += "; a line at the end of a bar is its 95 % interval over processes";
    }
    Ok(vec![Chart { name: "methods".into(), caption: caption + ".", svg }])
}

fn bars(comparison: &Comparison, groups: &[Group], column: &str) -> Vec<Bar> {
    let bar = |group: &Group| {
        let value = comparison.of_group(column, group);
        let half = half_width(&comparison.over_processes(column, &group.lines));
        let half = half.filter(|half| *half > 0.0 && !column.ends_with("bytes"));
        let color = if comparison.is_base(group) { BASE } else { method_color(0) };
        let written = |value| with_half_width(comparison.frame.unit(column), value, half);
        Bar {
            name: page::name(comparison, groups, group),
            parts: value.map(|value| (value, color)).into_iter().collect(),
            spread: value.zip(half).map(|(value, half)| (value * (1.0 - half), value * (1.0 + half))),
            estimate: None,
            text: value.map_or_else(|| comparison.lines[group.lines[0]].status(), written),
        }
    };
    groups.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{ok_row, recipe};
    use super::*;

    /// 31 and 62 ms: one bar is twice as long as the other, and each has its value.
    #[test]
    fn bars_are_as_long_as_their_values() {
        let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 1]\n");
        let rows = [(0, 0.01, 2 << 20), (1, 0.02, 1 << 20)]
            .map(|(i, time, peak)| ok_row(&recipe.cells[i], time, 2.0 * time, peak));
        let svg = methods(&Comparison::new(&recipe, &rows)).expect("a chart").remove(0).svg;
        let width = |color: &str| -> Vec<f64> {
            let bars = svg.lines().filter(|line| line.contains(color));
            let width = bars.map(|line| line.split(" width=\"").nth(1).unwrap().split('"').next().unwrap());
            width.map(|width| width.parse().unwrap()).collect()
        };
        let (base, other) = (width("#8C8C8C"), width("#0072B2"));
        assert!(
            (other[0] - 2.0 * base[0]).abs() < 2.0 && (base[1] - 2.0 * other[1]).abs() < 2.0,
            "{base:?} {other:?}"
        );
        for label in ["level 0", "level 1", "31.0 ms", "62.0 ms", "2.00 MiB", "1.00 MiB"] {
            assert!(svg.contains(label), "{label}");
        }
        let one = Comparison::new(&recipe, &rows[..1]);
        assert!(methods(&one).expect("no chart").is_empty(), "one bar says nothing");
    }
}
