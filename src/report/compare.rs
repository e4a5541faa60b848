//! `runner compare A B`: two result folders side by side, cell by cell.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use miette::miette;

use super::interval::builds;
use super::prelude::*;
use super::table::DEVICE_NAME;
use super::terminal::ruled;
use crate::common::text;
use crate::recipe::Recipe;
use crate::recipe::keys::{is_repetition, is_size};

/// What is compared.
const COLUMNS: [&str; 4] = ["forward_s_median", "backward_s_median", "step_s_median", "live_peak_bytes"];

/// One side: its name, what it holds, and the settings each cell was measured with.
struct Compared<'a> {
    name: &'a str,
    comparison: Comparison<'a>,
    settings: Vec<Settings>,
}

/// A table of the cells that both sides have, with both values and `b`'s over `a`'s, and the cells that only one side has.
/// Cells are the same when their settings are, except for keys that differ between every two cells of the sides, such as the
/// device.
///
/// # Errors
/// When the two have no cell in common.
pub fn compare(a: (&str, &Recipe, &[Row]), b: (&str, &Recipe, &[Row])) -> miette::Result<String> {
    let by_device = [a.1, b.1].iter().any(|recipe| !recipe.devices.is_empty());
    let (a, b) = (Compared::new(a, by_device), Compared::new(b, by_device));
    let ignored = ignored_keys(&a.settings, &b.settings);
    let mut only_b: HashMap<String, usize> = b.keyed(&ignored).into_iter().zip(0..).collect();
    // Each cell of a, and the same one of b.
    let lines: Vec<(usize, Option<usize>)> =
        a.keyed(&ignored).iter().map(|key| only_b.remove(key)).enumerate().collect();
    let both: Vec<(usize, usize)> = lines.iter().filter_map(|(i, j)| Some((*i, (*j)?))).collect();
    if both.is_empty() {
        return Err(miette!(
            help = "compare results of the same recipe, or of recipes with the same sizes",
            "no cell of {} has the settings of a cell of {}",
            a.name,
            b.name
        ));
    }
    let row = |&(i, j): &(usize, usize)| {
        let values = COLUMNS.map(|column| {
            let (left, right) = (a.comparison.frame.get(column, i), b.comparison.frame.get(column, j));
            let ratio = left.zip(right).filter(|(left, _)| *left > 0.0);
            let ratio = ratio.map_or_else(|| "–".into(), |(left, right)| text::ratio(right / left));
            format!("{}  {}  {ratio}", a.written(column, i), b.written(column, j))
        });
        [a.cell_name(i)].into_iter().chain(values).collect()
    };
    let headings = COLUMNS.map(|column| a.comparison.frame.heading(column).into());
    let header = ["cell".into()].into_iter().chain(headings).collect();
    let rows = both.iter().map(row).collect();
    let table = Table { caption: String::new(), header, rows, texts: 1, left_out: 0 };

    let mut out = format!("a: {}\nb: {}\n", a.describe(), b.describe());
    out.extend(ignored.iter().map(|key| format!("{key}: {} in a, {} in b\n", a.values(key), b.values(key))));
    out += &format!("each value: a, b, b/a\n{}\n", ruled(&table));
    out += &(losses(&a, &b, &both) + &caveat(&a, &b, &both));
    let only_a = lines.iter().filter(|(_, j)| j.is_none());
    out.extend(only_a.map(|(i, _)| format!("only in a: {}\n", a.cell_name(*i))));
    out.extend(only_b.into_values().sorted().map(|j| format!("only in b: {}\n", b.cell_name(j))));
    Ok(out)
}

/// Whether the cells that both sides measured had the same loss in every step, to the last digit.
fn losses<'a>(a: &Compared<'a>, b: &Compared<'a>, both: &[(usize, usize)]) -> String {
    let of_line = |side: &Compared<'a>, line: usize| {
        side.comparison.lines[line].measurements().map(|m| m.loss.as_slice()).collect_vec()
    };
    // The first step that differs in a process, and the largest difference as a share of the loss.
    let apart = |&(i, j): &(usize, usize)| {
        let pairs = of_line(a, i).into_iter().zip(of_line(b, j)).collect_vec();
        let first = |(x, y): &(&[f64], &[f64])| {
            let unlike = x.iter().zip(*y).position(|(x, y)| x.to_bits() != y.to_bits());
            unlike.or((x.len() != y.len()).then_some(x.len().min(y.len())))
        };
        let both = pairs.iter().flat_map(|(x, y)| x.iter().zip(*y)).filter(|(x, y)| x != y);
        let most = both.map(|(x, y)| (y - x).abs() / x.abs().max(y.abs())).fold(0.0, f64::max);
        (!pairs.is_empty()).then(|| (i, pairs.iter().filter_map(first).min(), most))
    };
    let all = both.iter().filter_map(apart).collect_vec();
    let unlike = all.iter().filter_map(|(i, step, most)| Some((*i, (*step)? + 1, *most))).collect_vec();
    let cells = text::counted(all.len(), "cell");
    let equal = "losses: equal to the last digit in";
    match unlike.iter().max_by(|x, y| x.2.total_cmp(&y.2)) {
        _ if all.is_empty() => String::new(),
        None => format!("{equal} {cells}\n"),
        Some((i, step, most)) => format!(
            "{equal} {} of {cells}; furthest apart, by {most:.1e} of itself and from step {step} on, in {}\n",
            all.len() - unlike.len(),
            a.cell_name(*i)
        ),
    }
}

/// What a ratio of times may also come from: other builds, and processes that differ.
fn caveat(a: &Compared, b: &Compared, both: &[(usize, usize)]) -> String {
    let (left, right): (Vec<usize>, Vec<usize>) = both.iter().copied().unzip();
    let sides = [(&a.comparison, left), (&b.comparison, right)];
    let [of_a, of_b] = sides.each_ref().map(|(comparison, lines)| builds(comparison, lines));
    let processes = sides.iter().flat_map(|(comparison, lines)| {
        lines.iter().map(move |&i| comparison.lines[i].measurements().count())
    });
    let unlike = of_a.union(&of_b).count() > 1;
    let [of_a, of_b] = [of_a, of_b].map(text::and);
    let builds = format!("builds: {of_a} in a, {of_b} in b; a ratio of times may be theirs\n");
    let times = match processes.filter(|count| *count > 0).min() {
        None | Some(1) => {
            "times of cells with one process may differ by chance; measure.repeats = 3 shows by how much\n"
                .into()
        }
        Some(fewest) => format!(
            "times are medians over processes, at least {fewest} of each cell; reports have their intervals\n"
        ),
    };
    if unlike { builds + &times } else { times }
}

impl<'a> Compared<'a> {
    /// `by_device`: whether one of the sides has results of several devices.
    fn new((name, recipe, rows): (&'a str, &'a Recipe, &'a [Row]), by_device: bool) -> Self {
        let comparison = Comparison::new(recipe, rows);
        // The recipe's `auto` means this machine's device; the rows know where they were measured.
        let device = comparison.lines.iter().find_map(|line| line.row?.settings().get("device").cloned());
        let device = device.filter(|_| !recipe.swept.iter().any(|key| key == "device"));
        let of_line = |line: &Line| {
            let mut settings = line.row.map_or_else(|| Settings::clone(&line.settings), Row::settings);
            match line.row {
                Some(row) if by_device => {
                    settings.insert(DEVICE_NAME.into(), row.environment.device.name.clone().into());
                }
                Some(_) => {}
                None => settings.extend(device.clone().map(|device| ("device".to_string(), device))),
            }
            settings
        };
        let settings = comparison.lines.iter().map(of_line).collect();
        Self { name, comparison, settings }
    }

    /// The folder and the devices it was measured on.
    fn describe(&self) -> String {
        let rows = self.comparison.lines.iter().filter_map(|line| line.row);
        let devices = rows.map(|row| &row.environment.device.name).sorted().dedup().join(", ");
        if devices.is_empty() { self.name.into() } else { format!("{} ({devices})", self.name) }
    }

    fn cell_name(&self, i: usize) -> String {
        let line = &self.comparison.lines[i];
        format!("{}: {}", self.comparison.shapes[line.shape].name, self.comparison.methods[line.method])
    }

    /// For each cell the settings that identify it, as one text. Of equal cells the first of one side goes with the first of
    /// the other.
    fn keyed(&self, ignored: &[String]) -> Vec<String> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let key = |settings: &Settings| {
            let kept = settings.iter().filter(|(key, _)| !ignored.contains(key));
            let text: String = kept.map(|(key, value)| format!("{key}={}\n", text::value(value))).collect();
            let equal = seen.entry(text.clone()).or_default();
            *equal += 1;
            format!("{text}{equal}")
        };
        self.settings.iter().map(key).collect()
    }

    /// A value, or how the cell ended. A graph's phases have no times.
    fn written(&self, column: &str, i: usize) -> String {
        let (line, written) = (&self.comparison.lines[i], self.comparison.frame.written(column, i));
        written.unwrap_or_else(|| if line.measured().is_some() { "–".into() } else { line.status() })
    }

    /// The values a key takes, in the order of the cells.
    fn values(&self, key: &str) -> String {
        let written = |settings: &Settings| settings.get(key).map_or_else(|| "none".into(), text::value);
        self.settings.iter().map(written).unique().join(" or ")
    }
}

/// Keys whose value in any cell of `a` is in no cell of `b`. Sizes are never left out: cells of
/// other sizes are other problems.
fn ignored_keys(a: &[Settings], b: &[Settings]) -> Vec<String> {
    let keys: BTreeSet<&String> = a.iter().chain(b).flat_map(Settings::keys).collect();
    let differs = |key: &str| a.iter().all(|a| b.iter().all(|b| a.get(key) != b.get(key)));
    keys.into_iter().filter(|key| (!is_size(key) || is_repetition(key)) && differs(key)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bad_row, ok_row, recipe};
    use super::*;
    use crate::row::Status;

    #[test]
    fn cells_are_matched_by_settings_without_the_device() {
        let a = recipe("[grid]\n\"checkpoint.level\" = [0, 1]\n");
        let b = recipe("[grid]\n\"checkpoint.level\" = [0.5, 1, 0]\n");
        let rows_a =
            [ok_row(&a.cells[0], 0.010, 0.020, 100 << 20), ok_row(&a.cells[1], 0.010, 0.030, 80 << 20)];
        let mut rows_b =
            vec![bad_row(&b.cells[1], Status::Oom, "full"), ok_row(&b.cells[2], 0.005, 0.008, 90 << 20)];
        for row in &mut rows_b {
            row.cell["device"] = "cuda:0".into();
            row.environment.device.name = "A GPU".into();
        }
        let text = compare(("old", &a, &rows_a), ("new", &b, &rows_b)).expect("cells in common");
        let line = |needle: &str| {
            text.lines().find(|l| l.contains(needle)).unwrap_or_else(|| panic!("{needle}: {text}"))
        };
        assert!(line(": level 0 ").contains("10.0 ms  5.00 ms  0.50x"), "{text}");
        assert!(line(": level 0 ").contains("20.0 ms  8.00 ms  0.40x"), "{text}");
        assert!(line(": level 0 ").contains("100 MiB  90.0 MiB  0.90x"), "{text}");
        assert!(line(": level 1 ").contains("30.0 ms  oom  –"), "{text}");
        assert!(text.contains("b: new (A GPU)"), "{text}");
        line("only in b: 16×128, hidden size 512: level 0.5");
    }

    #[test]
    fn losses_are_equal_to_the_last_digit_or_how_far_apart() {
        let recipe = recipe("[grid]\n\"checkpoint.level\" = [0, 1]\n");
        let with = |losses: [&[f64]; 2]| -> Vec<Row> {
            let rows = recipe.cells.iter().zip(losses).map(|(cell, losses)| {
                let mut row = ok_row(cell, 0.01, 0.02, 1 << 20);
                row.measurement.as_mut().expect("a measurement").loss = losses.to_vec();
                row
            });
            rows.collect()
        };
        let (a, b) = (with([&[4.0, 3.0, 2.0], &[4.0, 3.5]]), with([&[4.0, 3.0, 2.0], &[4.0, 3.5]]));
        let text = |b: &[Row]| compare(("a", &recipe, &a), ("b", &recipe, b)).expect("cells in common");
        assert!(text(&b).contains("losses: equal to the last digit in 2 cells\n"));
        let text = text(&with([&[4.0, 3.0, 2.0002], &[4.0, 3.5]]));
        let says = "losses: equal to the last digit in 1 of 2 cells; furthest apart, by 1.0e-4 of itself and from step 3 on, in";
        assert!(text.contains(says), "{text}");
    }

    /// Every process counts, and a loss of 0 is apart from another by all of that.
    #[test]
    fn losses_of_every_process_are_compared() {
        let recipe = recipe("");
        let rows = |losses: [f64; 2]| -> Vec<Row> {
            let row = |(n, loss): (usize, f64)| {
                let mut row = Row { repeat: n + 1, ..ok_row(&recipe.cells[0], 0.01, 0.02, 1 << 20) };
                row.measurement.as_mut().expect("a measurement").loss = vec![loss];
                row
            };
            losses.into_iter().enumerate().map(row).collect()
        };
        let (a, b) = (rows([2.0, 0.0]), rows([2.0, 3.0]));
        let text = compare(("a", &recipe, &a), ("b", &recipe, &b)).expect("cells in common");
        assert!(
            text.contains("in 0 of 1 cell; furthest apart, by 1.0e0 of itself and from step 1 on"),
            "{text}"
        );
    }

    #[test]
    fn other_sizes_are_no_match() {
        let a = recipe("");
        let b = recipe("[grid]\n\"model.hidden_size\" = 256\n");
        assert!(compare(("a", &a, &[]), ("b", &b, &[])).is_err());
    }
}
