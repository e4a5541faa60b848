//! The conclusion in plain words: what each method changes against the baseline, with the numbers.

use super::table::{Comparison, Quantity};
use super::{ladder, loading, pareto, quality};
use crate::measure::{Measurement, Samples};
use crate::row::Status;
use crate::words::text::{and, percent, ratio, sentence};

/// Ten times as much is told in times, not in percent more.
const MANY: f64 = 9.0;
/// Less than this is nobody's reason to choose a method.
const NEGLIGIBLE: f64 = 0.002;

/// Sentences, the most important first.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let measured = comparison.lines.iter().filter(|line| line.measured().is_some()).count();
    let mut out = Vec::new();
    if measured == 0 {
        out.push("No cell ran to its end, so there is nothing to compare.".to_string());
    }
    out.extend(ladder::sentence(comparison));
    for method in 0..comparison.methods.len() {
        out.extend(against_baseline(comparison, method));
    }
    out.extend(loading::sentences(comparison));
    out.extend(quality::sentences(comparison));
    out.extend(fits(comparison));
    if comparison.methods.len() > 1 {
        out.extend(pareto::sentence(comparison));
    }
    out.extend(estimates(comparison));
    out.extend(incomplete(comparison));
    out
}

/// A method's change of one quantity over the shapes where both it and its baseline ran.
struct Change {
    /// Relative changes, sorted.
    shares: Vec<f64>,
    /// Whether the change is larger than the samples' spread at most shapes.
    measurable: bool,
    /// What the changes are over, see [`Comparison::repeated`].
    repeated: &'static str,
}

impl Change {
    fn new(pairs: &[(&Measurement, &Measurement)], quantity: Quantity, repeated: &'static str) -> Self {
        let mut shares: Vec<f64> = pairs.iter().map(|(own, base)| quantity.ratio(own, base) - 1.0).collect();
        shares.sort_by(f64::total_cmp);
        let clear = pairs.iter().filter(|(own, base)| differs(own, base, quantity)).count();
        Self { shares, measurable: 2 * clear > pairs.len(), repeated }
    }

    fn median(&self) -> f64 {
        let n = self.shares.len();
        (self.shares[(n - 1) / 2] + self.shares[n / 2]) / 2.0
    }

    /// `(15 to 30 % over 5 shapes)`; `times` is false where the number of shapes was just said.
    fn range(&self, times: bool) -> String {
        let (n, low, high) = (self.shares.len(), self.shares[0], self.shares[self.shares.len() - 1]);
        if n == 1 {
            return String::new();
        }
        let number = |share: f64| percent(share).trim_end_matches(" %").to_string();
        let range = match (low < 0.0, high < 0.0) {
            _ if self.median() >= MANY => format!("{:.0} to {:.0} times", 1.0 + low, 1.0 + high),
            (true, false) => format!("{} less to {} more", percent(low), percent(high)),
            // A saving is told from its smallest to its largest.
            (true, true) => from_to(number(high), percent(low)),
            _ => from_to(number(low), percent(high)),
        };
        let same = range == percent(self.median());
        match (same, times) {
            (true, true) => format!(" (at each of {n} {}s)", self.repeated),
            (true, false) => String::new(),
            (false, true) => format!(" ({range} over {n} {}s)", self.repeated),
            (false, false) => format!(" ({range})"),
        }
    }
}

/// `15 to 30 %`; `31 %` when both ends read the same.
fn from_to(from: String, to: String) -> String {
    if to == format!("{from} %") { to } else { format!("{from} to {to}") }
}

/// Whether two medians differ by more than the samples spread. The spread is the wider of the two
/// interquartile ranges: one step that the operating system held up says nothing about a method.
/// Memory is counted, so any difference that matters is real.
fn differs(own: &Measurement, base: &Measurement, quantity: Quantity) -> bool {
    let ratio = quantity.ratio(own, base);
    let (Some(ours), Some(theirs)) = (quantity.samples(own), quantity.samples(base)) else {
        return (ratio - 1.0).abs() > NEGLIGIBLE;
    };
    let relative = |samples: &Samples, m: &Measurement| match &m.loading {
        None => quartile_range(&samples.seconds) / samples.median,
        Some(loading) => {
            let each = samples.seconds.iter().zip(&loading.step_tokens);
            let per_token: Vec<f64> = each.map(|(seconds, tokens)| seconds / *tokens as f64).collect();
            let mean = samples.seconds.iter().sum::<f64>() / loading.tokens() as f64;
            // A mean of many steps spreads less than they do.
            quartile_range(&per_token) / mean / (per_token.len() as f64).sqrt()
        }
    };
    (ratio - 1.0).abs() > (relative(ours, own) * ratio).max(relative(theirs, base))
}

fn quartile_range(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quantile = |q: f64| {
        let at = q * (sorted.len() - 1) as f64;
        let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
        low + (high - low) * at.fract()
    };
    quantile(0.75) - quantile(0.25)
}

/// What a method saves and costs against the baseline.
fn against_baseline(comparison: &Comparison, method: usize) -> Vec<String> {
    let of_method = |i: &usize| comparison.lines[*i].method == method && !comparison.is_baseline(*i);
    let lines: Vec<usize> = (0..comparison.lines.len()).filter(of_method).collect();
    let pairs: Vec<_> = lines.iter().filter_map(|&i| comparison.with_baseline(i)).collect();
    let name = sentence(&comparison.methods[method]);
    if pairs.is_empty() {
        let ran = lines.iter().any(|&i| comparison.lines[i].measured().is_some());
        return ran
            .then(|| format!("{name} has no baseline measurement to be compared with."))
            .into_iter()
            .collect();
    }
    let bases: std::collections::BTreeSet<usize> = lines
        .iter()
        .filter_map(|&i| comparison.lines[i].baseline)
        .map(|i| comparison.lines[i].method)
        .collect();
    let bases: Vec<String> = bases.iter().map(|&m| comparison.methods[m].clone()).collect();
    let against = if bases == [comparison.methods[method].clone()] {
        String::new()
    } else {
        format!(" against {}", and(&bases))
    };

    let [memory, backward, forward, step] =
        [Quantity::Peak, Quantity::Backward, Quantity::Forward, Quantity::Step]
            .map(|quantity| Change::new(&pairs, quantity, comparison.repeated()));
    let (m, b) = (memory.median(), backward.median());
    let first = match (memory.measurable, m < 0.0) {
        (false, _) => format!("{name} needs about the same peak memory{against}"),
        (true, true) => {
            format!("{name} saves {} of peak memory{against}{}", percent(m), memory.range(true))
        }
        (true, false) => {
            format!("{name} needs {}{against}{}", more(m, "peak memory"), memory.range(true))
        }
    };
    let gives = memory.measurable && m < 0.0;
    let second = match (backward.measurable, b > 0.0) {
        (false, _) => ", with no measurable difference in backward time".to_string(),
        (true, true) => {
            let joint = if gives { "for" } else { "and takes" };
            format!(" {joint} {}{}", more(b, "backward time"), backward.range(!memory.measurable))
        }
        (true, false) => {
            let joint = if gives || !memory.measurable { "and takes" } else { "but takes" };
            format!(" {joint} {} less backward time{}", percent(b), backward.range(!memory.measurable))
        }
    };
    let rest = if forward.measurable || step.measurable {
        format!("{}; {}", time_change("forward", &forward), time_change("the whole step", &step))
    } else {
        "forward and the whole step show no measurable difference".into()
    };
    vec![format!("{first}{second}. {}.", sentence(&rest))]
}

/// `20 % more time`; `171 times the time` where a percentage would be hard to read.
fn more(share: f64, what: &str) -> String {
    if share < MANY {
        format!("{} more {what}", percent(share))
    } else {
        format!("{:.0} times the {what}", 1.0 + share)
    }
}

/// `the whole step takes 20 % more time (16 to 23 %)`
fn time_change(what: &str, change: &Change) -> String {
    let (share, range) = (percent(change.median()), change.range(false));
    match (change.measurable, change.median() > 0.0) {
        (false, _) => format!("{what} shows no measurable difference"),
        (true, true) => format!("{what} takes {}{range}", more(change.median(), "time")),
        (true, false) => format!("{what} takes {share} less time{range}"),
    }
}

/// `Level 0 does not fit at 3 of 5 shapes; level 1 fits at all.`
fn fits(comparison: &Comparison) -> Option<String> {
    let count = |method: usize, test: &dyn Fn(Option<Status>) -> bool| {
        let of_method = comparison.lines.iter().filter(|line| line.method == method);
        of_method.filter(|line| test(line.row.map(|row| row.status))).count()
    };
    let methods = 0..comparison.methods.len();
    let repeated = comparison.repeated();
    let at = |n: usize, of: usize| match (n == of, of) {
        (true, 1) => String::new(),
        (true, _) => format!(" at any of {of} {repeated}s"),
        (false, _) => format!(" at {n} of {of} {repeated}s"),
    };
    let name = |method: usize| comparison.methods[method].clone();
    let mut parts = Vec::new();
    for method in methods.clone() {
        let (oom, all) = (count(method, &|s| s == Some(Status::Oom)), count(method, &|_| true));
        if oom > 0 {
            parts.push(format!("{} does not fit{}", name(method), at(oom, all)));
        }
    }
    if parts.is_empty() {
        return None;
    }
    let fitting: Vec<usize> =
        methods.filter(|&m| count(m, &|s| s == Some(Status::Ok)) == count(m, &|_| true)).collect();
    if !fitting.is_empty() {
        let names: Vec<String> = fitting.iter().map(|&m| name(m)).collect();
        let verb = if names.len() == 1 { "fits" } else { "fit" };
        let all = if comparison.shapes.len() > 1 { " at all" } else { "" };
        parts.push(format!("{} {verb}{all}", and(&names)));
    }
    Some(format!("{}.", sentence(&parts.join("; "))))
}

fn estimates(comparison: &Comparison) -> Option<String> {
    let mut ratios: Vec<f64> =
        comparison.lines.iter().filter_map(|line| line.estimate_over_measured()).collect();
    ratios.sort_by(f64::total_cmp);
    let (low, high) = (*ratios.first()?, *ratios.last()?);
    let cells =
        if ratios.len() == 1 { "the one measured cell".into() } else { format!("{} cells", ratios.len()) };
    if ratio(low) == ratio(high) {
        return Some(format!("The memory estimate was {} the measured peak at {cells}.", ratio(low)));
    }
    Some(format!("The memory estimate was {} to {} the measured peak over {cells}.", ratio(low), ratio(high)))
}

fn incomplete(comparison: &Comparison) -> Option<String> {
    let count = |status: Option<Status>| {
        comparison.lines.iter().filter(|line| line.row.map(|row| row.status) == status).count()
    };
    let parts: Vec<String> = [
        (count(Some(Status::Oom)), "ran out of memory"),
        (count(Some(Status::Failed)), "failed"),
        (count(Some(Status::Diverged)), "diverged"),
        (count(None), "did not run"),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!("{n} {what}"))
    .collect();
    (!parts.is_empty()).then(|| format!("Of {} cells {}.", comparison.lines.len(), and(&parts)))
}

#[cfg(test)]
#[path = "conclusion_tests.rs"]
mod tests;
