//! Peak memory against step time: a panel for each problem with its Pareto front, where there is a trade. Problems differ by
//! more than methods do, and one method can replace another only at the same sizes.

use super::super::pareto;
use super::prelude::*;

/// More panels than this are left to the table.
const MOST: usize = 6;
/// More names than this crowd a panel.
const NAMED: usize = 6;
const FRONT: RGBColor = RGBColor(150, 150, 150);
const OTHER: RGBColor = RGBColor(190, 190, 190);
/// The columns of the level and the upright axis.
const COLUMNS: [&str; 2] = ["step_s_median", "live_peak_bytes"];

/// Nothing where no problem has a front of two methods, or where steps do unequal work.
pub fn scatter(comparison: &Comparison) -> Result<Vec<Chart>> {
    let mut groups = comparison.groups();
    groups.retain(|group| COLUMNS.iter().all(|column| comparison.of_group(column, group).is_some()));
    let problems = groups.chunk_by(|a, b| a.problem == b.problem);
    let mut problems = problems.filter(|of| pareto::front(comparison, *of).len() > 1).collect_vec();
    if problems.is_empty() || comparison.with_samplers() {
        return Ok(Vec::new());
    }
    let all = problems.len();
    problems.sort_by_key(|of| std::cmp::Reverse(of.len()));
    problems.truncate(MOST);
    problems.sort_by_key(|of| of[0].problem);

    let height = if problems.len() == 1 { 380 } else { 230 };
    let mut plot = Plot::new("pareto", "Peak memory against step time", Legend::default(), height);
    for of_problem in problems {
        let label = comparison.problem_label(of_problem[0].problem);
        let named = comparison.problems() > 1 && !label.is_empty();
        let at = if named { format!("{label}: ") } else { String::new() };
        let titles = ["step time".to_string(), format!("{at}peak memory")];
        let axis = |i: usize| {
            let values = of_problem.iter().filter_map(|group| comparison.of_group(COLUMNS[i], group));
            let (low, high) = padded(&values.collect_vec(), true);
            let (unit, size) = comparison.frame.unit(COLUMNS[i]).of_axis(high);
            let axis = Axis::new(format!("{} in {unit}", titles[i]), (low / size, high / size));
            (Axis { log: true, room: (10, 10), ..axis }, size)
        };
        let [(x, second), (y, byte)] = [0, 1].map(axis);
        plot =
            plot.panel(x, y, move |canvas, area| draw(canvas, area, comparison, of_problem, [second, byte]));
    }
    let mut caption = String::from(
        "Peak memory of tensors against step time; left and below is better. The line is the Pareto front: no method beats one on it in both. Grey: other methods.",
    );
    if all > MOST {
        caption += &format!(" Shown are {MOST} of {all} sizes; the tables have all.");
    }
    Ok(vec![plot.chart(caption)?])
}

/// Draws the groups of a problem on axes in these units.
fn draw(canvas: &Canvas, area: &Area, comparison: &Comparison, groups: &[Group], units: [f64; 2]) -> Result {
    let value =
        |i: usize, group: &Group| comparison.of_group(COLUMNS[i], group).unwrap_or_default() / units[i];
    let place = |group: &Group| area.at(value(0, group), value(1, group));
    let front = pareto::front(comparison, groups);
    let steps = staircase(&front.iter().map(|group| place(group)).collect_vec());
    canvas.line(&steps, FRONT, 2)?;
    // The ends of the front first: they are what it costs and what it saves.
    let ends = [front.first(), front.last()].into_iter().flatten().copied();
    let bases = groups.iter().filter(|group| comparison.is_baseline(group.lines[0]));
    let named = ends.chain(bases).chain(front.iter().copied());
    let named = named.unique_by(|group| group.method).take(NAMED).collect_vec();
    let mut taken = Taken::default();
    taken.line(&steps);
    for group in groups {
        let (at, method) = (place(group), group.method);
        match front.iter().chain(&named).any(|of| of.method == method) {
            true => canvas.marker(method, at, 5)?,
            false => canvas.rect((at.0 - 3, at.1 - 3), (at.0 + 3, at.1 + 3), OTHER)?,
        }
        taken.marker(at);
        let values =
            COLUMNS.iter().filter_map(|column| comparison.written_of_group(column, group)).join(", ");
        canvas.hover_at(at, &format!("{}: {values}", comparison.methods[method]));
    }
    named.into_iter().try_for_each(|group| {
        taken.name(canvas, area, &comparison.methods[group.method], (group.method, place(group)))
    })
}

/// The front as steps: what it dominates lies above and to the right.
fn staircase(front: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let mut path = Vec::new();
    for pair in front.windows(2) {
        path.extend([pair[0], (pair[1].0, pair[0].1)]);
    }
    path.extend(front.last());
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_is_drawn_as_steps() {
        assert_eq!(staircase(&[(0, 0), (4, 9)]), [(0, 0), (4, 0), (4, 9)]);
        assert!(staircase(&[]).is_empty());
    }
}
