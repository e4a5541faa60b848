//! The Pareto front of step time and peak memory.

use super::table::Comparison;
use crate::words::text::and;

/// The lines of a shape that no other one beats in step time and peak memory at once, by rising time.
pub fn front(comparison: &Comparison, shape: usize) -> Vec<usize> {
    let value = |name, i| comparison.value(name, i);
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
    let mut on_front = vec![0; comparison.methods.len()];
    let mut compared = 0;
    for shape in 0..comparison.shapes.len() {
        if comparison.of_shape(shape).filter(|&i| comparison.lines[i].measured().is_some()).count() < 2 {
            continue;
        }
        compared += 1;
        for line in front(comparison, shape) {
            on_front[comparison.lines[line].method] += 1;
        }
    }
    if compared == 0 {
        return None;
    }
    let names: Vec<String> = comparison
        .methods
        .iter()
        .zip(&on_front)
        .filter(|(_, n)| **n > 0)
        .map(|(name, n)| match compared {
            1 => name.clone(),
            _ => format!("{name} ({n} of {compared} {}s)", comparison.repeated()),
        })
        .collect();
    Some(format!("On the Pareto front of step time and peak memory: {}.", and(&names)))
}
