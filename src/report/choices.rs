//! [`choices`]: which methods of a front a reader chooses among by the free memory.

use itertools::Itertools;

/// Methods to choose among.
const MOST: usize = 4;
/// What saves less than this share of the memory is no choice: nobody has just that much.
pub const SAVED: f64 = 0.01;

/// The points of a front, logarithms of time and memory by rising time, that a reader chooses among. Of those that save
/// enough of the one before: the first, the last, and those between with which the time is the least in the mean over the
/// memories that may be free.
pub fn choices(points: &[[f64; 2]]) -> Vec<usize> {
    let mut clear: Vec<usize> = Vec::new();
    for (i, [_, memory]) in points.iter().enumerate() {
        if clear.last().is_none_or(|before| memory - points[*before][1] <= (1.0 - SAVED).ln()) {
            clear.push(i);
        }
    }
    let last = clear.len() - 1;
    if clear.len() <= MOST {
        return clear;
    }
    let with = |between: Vec<usize>| -> Vec<usize> {
        [vec![0], between, vec![last]].concat().into_iter().map(|i| clear[i]).collect()
    };
    // With less memory than one point needs, and as much as the next one does, that one is taken.
    let time = |chosen: &Vec<usize>| -> f64 {
        let steps = chosen.windows(2).map(|pair| (points[pair[0]], points[pair[1]]));
        steps.map(|([_, memory], [time, next])| (memory - next) * time).sum()
    };
    let all = (1..last).combinations(MOST - 2).map(with);
    all.min_by(|a, b| time(a).total_cmp(&time(b))).expect("points between the first and the last")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times 1 to 32 and memories 32 to 1: of the four between, the two after the largest steps of memory.
    #[test]
    fn a_front_of_many_is_told_by_four() {
        let front = [[1.0, 32.0], [2.0, 30.0], [3.0, 8.0], [4.0, 7.5], [5.0, 2.0], [32.0, 1.0]];
        assert_eq!(choices(&front.map(|point| point.map(f64::ln))), [0, 2, 4, 5]);
        assert_eq!(choices(&[[0.0, 1.0], [1.0, 0.0]]), [0, 1]);
        // Half a percent less, and then one in all.
        let hardly = [[1.0, 1.65], [2.0, 1.642], [3.0, 1.633], [4.0, 1.63]];
        assert_eq!(choices(&hardly.map(|point| point.map(f64::ln))), [0, 2]);
    }
}
