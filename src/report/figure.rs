//! The figure of page 1: each method of its table with bars for its rate and its memory, and the value at each bar.

use std::fmt::Write;

use super::document::Chart;
use super::interval::with_half_width;
use super::page;
use super::statistics::half_width;
use super::table::{Comparison, Group};
use crate::common::text::printable;

/// Pixels: of the picture, a row, the title above the rows, a letter of text, the longest bar, and between two columns.
const WIDTH: f64 = 900.0;
const ROW: f64 = 26.0;
const TOP: f64 = 34.0;
const LETTER: f64 = 7.0;
const VALUE: f64 = 120.0;
const GAP: f64 = 12.0;
/// The most that names take of the width.
const NAMES: f64 = 0.4;

/// A column of bars.
struct Bars {
    title: String,
    /// Value, half of its interval as a share, and text.
    values: Vec<Option<(f64, f64, String)>>,
}

/// `None` of fewer than two measured methods.
pub fn chart(comparison: &Comparison, groups: &[Group]) -> Option<Chart> {
    let (rate, heading) = page::rate(comparison);
    let driver = comparison.having("driver_peak_bytes").next().is_some();
    let (memory, what) = match driver {
        true => ("driver_peak_bytes", "memory, by the driver (less is better)"),
        false => ("live_peak_bytes", "peak memory (less is better)"),
    };
    let better = if rate == "tokens_per_second" { "more" } else { "less" };
    let columns = [
        bars(comparison, groups, rate, format!("{heading} ({better} is better)")),
        bars(comparison, groups, memory, what.into()),
    ];
    let measured = columns[0].values.iter().flatten().count();
    let names: Vec<String> = groups.iter().map(|group| page::name(comparison, groups, group)).collect();
    let is_base: Vec<bool> =
        groups.iter().map(|group| group.lines.iter().any(|&line| comparison.is_baseline(line))).collect();
    let mut caption = String::from("The methods of the table");
    if is_base.contains(&true) {
        caption += "; the baseline is grey";
    }
    if columns[0].values.iter().flatten().any(|(_, half, _)| *half > 0.0) {
        caption += "; a line at the end of a bar is its 95 % interval over processes";
    }
    (measured > 1).then(|| Chart {
        name: "methods".into(),
        caption: caption + ".",
        svg: svg(&names, &is_base, &columns),
    })
}

fn bars(comparison: &Comparison, groups: &[Group], column: &str, title: String) -> Bars {
    let value = |group: &Group| {
        let value = comparison.of_group(column, group)?;
        let half = half_width(&comparison.over_processes(column, &group.lines))
            .filter(|_| !column.ends_with("bytes"));
        Some((value, half.unwrap_or_default(), with_half_width(comparison.frame.unit(column), value, half)))
    };
    Bars { title, values: groups.iter().map(value).collect() }
}

fn svg(names: &[String], is_base: &[bool], columns: &[Bars; 2]) -> String {
    let height = TOP + ROW * names.len() as f64 + 6.0;
    let most = (WIDTH * NAMES / LETTER) as usize;
    let letters = names.iter().map(|name| name.chars().count()).max().unwrap_or_default().min(most);
    let left = letters as f64 * LETTER + GAP;
    let width = (WIDTH - left) / columns.len() as f64 - GAP;
    let mut out = format!(
        "<svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\" \
         font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\" fill=\"#1E1E1E\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n"
    );
    for (i, name) in names.iter().enumerate() {
        let middle = TOP + ROW * (i as f64 + 0.5);
        match in_two(name, most) {
            (name, None) => text(&mut out, left - GAP, middle, "end", name),
            (first, Some(second)) => {
                out += "<g font-size=\"10\">";
                for (line, y) in [(first, middle - ROW / 4.5), (second, middle + ROW / 4.5)] {
                    text(&mut out, left - GAP, y, "end", &shortened(line, most * 6 / 5));
                }
                out += "</g>\n";
            }
        }
    }
    for (place, column) in columns.iter().enumerate() {
        let x = left + (width + GAP) * place as f64;
        text(&mut out, x, TOP / 2.0, "start", &column.title);
        let highest =
            column.values.iter().flatten().map(|(value, half, _)| value * (1.0 + half)).fold(0.0, f64::max);
        let scale = (width - VALUE) / highest;
        for (i, (value, half, label)) in
            column.values.iter().enumerate().filter_map(|(i, of)| Some((i, of.as_ref()?)))
        {
            let y = TOP + ROW * i as f64;
            let color = if is_base[i] { "#8C8C8C" } else { "#0072B2" };
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{color}\"/>",
                y + 4.0,
                value * scale,
                ROW - 8.0
            );
            if *half > 0.0 {
                let [from, to] = [1.0 - half, 1.0 + half].map(|of| x + value * scale * of);
                let middle = y + ROW / 2.0;
                let _ = writeln!(
                    out,
                    "<path d=\"M{from:.1} {middle:.1}H{to:.1}\" stroke=\"#1E1E1E\" stroke-width=\"2\"/>"
                );
            }
            text(&mut out, x + value * scale * (1.0 + half) + 5.0, y + ROW / 2.0, "start", label);
        }
    }
    out + "</svg>\n"
}

/// A name of more than so many letters in two lines, at the space that is nearest to its middle.
fn in_two(name: &str, most: usize) -> (&str, Option<&str>) {
    if name.chars().count() <= most {
        return (name, None);
    }
    let spaces = name.match_indices(' ').map(|(place, _)| place);
    match spaces.min_by_key(|place| place.abs_diff(name.len() / 2)) {
        Some(place) => (&name[..place], Some(&name[place + 1..])),
        None => (name, None),
    }
}

/// A line of at most so many letters.
fn shortened(line: &str, most: usize) -> String {
    match line.chars().count() > most {
        true => line.chars().take(most - 1).chain(['…']).collect(),
        false => line.into(),
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = printable(text).replace('&', "&amp;").replace('<', "&lt;");
    let _ =
        writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" dy=\"0.35em\" text-anchor=\"{anchor}\">{text}</text>");
}

/// The first chart that a page has of learning, else of the methods, else any.
pub fn first(charts: &mut Vec<Chart>, learns: bool) -> Option<Chart> {
    let order = if learns { ["curves", "methods"] } else { ["methods", "curves"] };
    let place = order.iter().find_map(|name| charts.iter().position(|chart| chart.name.starts_with(name)));
    let charts = (!charts.is_empty()).then_some(charts)?;
    Some(charts.remove(place.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ok_row, recipe};
    use super::*;

    /// 31 and 62 ms: one bar is twice as long as the other, and each has its value.
    #[test]
    fn bars_are_as_long_as_their_values() {
        let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 1]\n");
        let rows =
            [ok_row(&recipe.cells[0], 0.01, 0.02, 2 << 20), ok_row(&recipe.cells[1], 0.02, 0.04, 1 << 20)];
        let comparison = Comparison::new(&recipe, &rows);
        let svg = chart(&comparison, &comparison.groups()).expect("two methods").svg;
        let width = |color: &str| -> Vec<f64> {
            let bars = svg.lines().filter(|line| line.contains(color));
            bars.map(|line| {
                line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
            })
            .collect()
        };
        let (base, other) = (width("#8C8C8C"), width("#0072B2"));
        assert!(
            (other[0] - 2.0 * base[0]).abs() < 0.2 && (base[1] - 2.0 * other[1]).abs() < 0.2,
            "{base:?} {other:?}"
        );
        for label in ["level 0", "level 1", "31.0 ms", "62.0 ms", "2.00 MiB", "1.00 MiB"] {
            assert!(svg.contains(label), "{label}");
        }
        let one = Comparison::new(&recipe, &rows[..1]);
        assert!(chart(&one, &one.groups()).is_none(), "one bar says nothing");
    }
}
