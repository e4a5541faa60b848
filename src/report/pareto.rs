//! The Pareto front of step time and peak memory.

use super::table::{Comparison, Quantity};
use crate::words::text::and;

/// The methods that no other one at the same shape beats in step time and peak memory at once.
pub fn front(comparison: &Comparison, shape: usize) -> Vec<usize> {
    let mut points: Vec<(f64, f64, usize)> = comparison
        .lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.shape == shape)
        .filter_map(|(i, line)| {
            let m = line.measured()?;
            Some((Quantity::Step.of(m), Quantity::Peak.of(m), i))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut least = f64::INFINITY;
    points.retain(|point| {
        let better = point.1 < least;
        least = least.min(point.1);
        better
    });
    points.into_iter().map(|(_, _, i)| i).collect()
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
        let ran = comparison.lines.iter().filter(|l| l.shape == shape && l.measured().is_some()).count();
        if ran < 2 {
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
