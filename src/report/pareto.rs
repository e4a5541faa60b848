//! The Pareto front of step time and peak memory.

use super::table::Comparison;
use crate::words::text::and;

/// The lines of a shape that no other one beats in step time and peak memory at once, by rising time.
pub fn front(comparison: &Comparison, shape: usize) -> Vec<usize> {
    let value = |name, i| comparison.frame.get(name, i);
    let point = |i| Some((value("step_s_median", i)?, value("live_peak_bytes", i)?, i));
    let mut points: Vec<(f64, f64, usize)> = comparison.of_shape(shape).filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut least = f64::INFINITY;
    let better = |(_, memory, i)| {
        let better = memory < least;
        least = least.min(memory);
        better.then_some(i)
    };
    points.into_iter().filter_map(better).collect()
}

/// `On the Pareto front of step time and peak memory: level 0 and level 1 (2 of 5 shapes).`
pub fn sentence(comparison: &Comparison) -> Option<String> {
    // Steps of samplers do unequal work.
    if comparison.with_samplers() {
        return None;
    }
    let ran = |shape: usize| {
        comparison.of_shape(shape).filter(|&i| comparison.lines[i].measured().is_some()).count()
    };
    let compared: Vec<usize> = (0..comparison.shapes.len()).filter(|&shape| ran(shape) > 1).collect();
    let fronts: Vec<usize> = compared.iter().flat_map(|&shape| front(comparison, shape)).collect();
    let name = |method: usize| {
        let n = fronts.iter().filter(|&&line| comparison.lines[line].method == method).count();
        let name = &comparison.methods[method];
        let at = format!(" ({n} of {} {}s)", compared.len(), comparison.repeated());
        (n > 0).then(|| format!("{name}{}", if compared.len() > 1 { at } else { String::new() }))
    };
    let names = and((0..comparison.methods.len()).filter_map(name));
    (!names.is_empty()).then(|| format!("On the Pareto front of step time and peak memory: {names}."))
}
