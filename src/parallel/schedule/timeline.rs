//! [`text`]: the timeline of a step in characters, one line for each rank.

use super::Action;
use super::simulate::Simulated;

/// Most columns of a line.
const WIDTH: usize = 128;
/// Columns of the shortest forward, if the whole step then fits.
const WIDE: usize = 3;

/// Draws forwards as `F3` and backwards as `B3` followed by `-`; without room for that as `f` and `b`. A dot is time in which
/// the rank computes nothing. A longer step is cut off; the second result says whether it is whole.
pub fn text(step: &Simulated) -> (Vec<String>, bool) {
    let length = |(_, start, end): &(Action, f64, f64)| end - start;
    let unit = step.ranks.iter().flatten().map(length).filter(|l| *l > 0.0).fold(f64::INFINITY, f64::min);
    let all = step.seconds() / unit;
    let wide = all * WIDE as f64 <= WIDTH as f64;
    let columns = if wide { WIDE as f64 } else { 1.0 } / unit;
    let last = (step.seconds() * columns).round() as usize;
    let line = |actions: &Vec<(Action, f64, f64)>| {
        let mut line = vec!['.'; last.min(WIDTH)];
        for (action, start, end) in actions {
            let range =
                (start * columns).round() as usize..((end * columns).round() as usize).min(line.len());
            if range.start >= range.end {
                continue;
            }
            for (cell, c) in line[range.clone()].iter_mut().zip(label(*action, range.len(), wide)) {
                *cell = c;
            }
        }
        line.into_iter().collect()
    };
    (step.ranks.iter().map(line).collect(), last <= WIDTH)
}

/// As many characters as there is room for.
fn label(action: Action, room: usize, wide: bool) -> Vec<char> {
    let (letter, micro_batch, fill) = match action {
        Action::Backward { micro_batch, .. } => ('B', micro_batch, '-'),
        Action::Forward { micro_batch, .. } | Action::Infer { micro_batch, .. } => ('F', micro_batch, ' '),
        Action::Update => ('U', 0, ' '),
        Action::Send(_) | Action::Receive(_) => return Vec::new(),
    };
    let number = if action == Action::Update { String::new() } else { micro_batch.to_string() };
    if !wide || room < WIDE.max(1 + number.len()) {
        return vec![letter.to_ascii_lowercase(); room];
    }
    let text: Vec<char> = std::iter::once(letter).chain(number.chars()).collect();
    let rest = room - text.len();
    text.into_iter().chain(std::iter::repeat_n(fill, rest)).collect()
}
