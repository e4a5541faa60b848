//! Groups of things that are alike: equal findings, curves that would cover each other.

/// The items in groups, each of those like the group's first, in the order of the first ones.
pub fn groups<T>(items: impl IntoIterator<Item = T>, alike: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for item in items {
        match groups.iter_mut().find(|group| alike(&group[0], &item)) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups
}

/// Whether two series are nowhere farther apart than the tolerance.
pub fn within(tolerance: f64, a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance || a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keep_their_order() {
        let of = groups([4, 1, 14, 2, 11], |a, b| a % 10 == b % 10);
        assert_eq!(of, [vec![4, 14], vec![1, 11], vec![2]]);
    }

    #[test]
    fn series_within_a_tolerance() {
        assert!(within(0.1, &[1.0, 2.0], &[1.05, 1.95]) && !within(0.1, &[1.0, 2.0], &[1.05, 1.8]));
        assert!(!within(0.1, &[1.0], &[1.0, 1.0]));
        assert!(within(0.1, &[f64::INFINITY], &[f64::INFINITY]) && !within(0.1, &[f64::NAN], &[f64::NAN]));
    }
}
