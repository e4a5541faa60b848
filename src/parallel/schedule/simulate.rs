//! [`simulate`]: when each rank does what, from the order and the times of the stages. The time of a step, its bubble and its
//! messages follow before anything runs.

use super::Action;
use super::order::{Order, Shape};
use crate::measure::Span;

/// Seconds, or any other unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Forward and backward of each stage for one micro-batch.
    pub forward: Vec<f64>,
    pub backward: Vec<f64>,
    /// Update of each rank.
    pub update: Vec<f64>,
    /// From the end of a computation until its result is on another rank.
    pub message: f64,
}

impl Times {
    /// A rank's forward takes 1, its backward 2; updates and messages take no time.
    pub fn equal(shape: Shape) -> Self {
        let stage = 1.0 / shape.chunks as f64;
        Self {
            forward: vec![stage; shape.stages()],
            backward: vec![2.0 * stage; shape.stages()],
            update: vec![0.0; shape.ranks],
            message: 0.0,
        }
    }

    fn of(&self, rank: usize, action: Action) -> f64 {
        match action {
            Action::Forward { stage, .. } | Action::Infer { stage, .. } => self.forward[stage],
            Action::Backward { stage, .. } => self.backward[stage],
            Action::Update => self.update[rank],
            Action::Send(_) | Action::Receive(_) => 0.0,
        }
    }
}

/// A simulated step: of each rank the actions with start and end.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    pub ranks: Vec<Vec<(Action, f64, f64)>>,
}

impl Simulated {
    /// From the first start to the last end.
    pub fn seconds(&self) -> f64 {
        self.ranks.iter().flatten().map(|(_, _, end)| *end).fold(0.0, f64::max)
    }

    /// The share of the step in which a rank computes nothing, as the mean over ranks.
    pub fn bubble(&self) -> f64 {
        let busy: f64 = self.ranks.iter().flatten().map(|(_, start, end)| end - start).sum();
        1.0 - busy / (self.seconds() * self.ranks.len() as f64)
    }

    /// The step as spans for a chart.
    pub fn spans(&self) -> Vec<Vec<Span>> {
        let span = |(action, start, end): &(Action, f64, f64)| Span {
            action: action.to_string(),
            start: *start,
            end: *end,
        };
        self.ranks.iter().map(|rank| rank.iter().map(span).collect()).collect()
    }
}

/// The end of each stage's forward and backward of each micro-batch; NaN until it is known.
struct Ends {
    shape: Shape,
    of: [Vec<f64>; 2],
}

impl Ends {
    fn place(&self, stage: usize, micro_batch: usize) -> usize {
        stage * self.shape.micro_batches + micro_batch
    }

    /// The computations that an action waits for, their ends, and whether they are on another rank.
    fn needs(&self, action: Action) -> [Option<(Action, f64, bool)>; 2] {
        let forward = |stage: usize, micro_batch: usize| {
            let end = self.of[0][self.place(stage, micro_batch)];
            (Action::Forward { stage, micro_batch }, end)
        };
        let far = |(action, end)| (action, end, self.shape.ranks > 1);
        match action {
            Action::Forward { stage, micro_batch } => {
                [stage.checked_sub(1).map(|before| far(forward(before, micro_batch))), None]
            }
            Action::Backward { stage, micro_batch } => {
                let (own, end) = forward(stage, micro_batch);
                let next = (stage + 1 < self.shape.stages()).then(|| {
                    let end = self.of[1][self.place(stage + 1, micro_batch)];
                    far((Action::Backward { stage: stage + 1, micro_batch }, end))
                });
                [Some((own, end, false)), next]
            }
            _ => [None, None],
        }
    }

    fn note(&mut self, action: Action, end: f64) {
        let (which, stage, micro_batch) = match action {
            Action::Forward { stage, micro_batch } => (0, stage, micro_batch),
            Action::Backward { stage, micro_batch } => (1, stage, micro_batch),
            _ => return,
        };
        let place = self.place(stage, micro_batch);
        self.of[which][place] = end;
    }
}

/// Each rank carries out its actions in order, each as soon as what it needs is there.
///
/// # Errors
/// Names the first action that never begins, on the lowest rank that has one.
pub fn simulate(order: &Order, times: &Times) -> Result<Simulated, String> {
    let shape = order.shape;
    let all = vec![f64::NAN; shape.stages() * shape.micro_batches];
    let mut ends = Ends { shape, of: [all.clone(), all] };
    let mut ranks: Vec<Vec<(Action, f64, f64)>> = vec![Vec::new(); shape.ranks];
    loop {
        let mut moved = false;
        for (rank, actions) in order.computations.iter().enumerate() {
            while let Some(action) = actions.get(ranks[rank].len()).copied() {
                let mut start = ranks[rank].last().map_or(0.0, |(_, _, end)| *end);
                let needs = ends.needs(action);
                for (_, end, far) in needs.into_iter().flatten() {
                    let there = end + if far { times.message } else { 0.0 };
                    // A computation that has not ended is NaN, and so is what waits for it.
                    start = if there.is_nan() { f64::NAN } else { start.max(there) };
                    if start.is_nan() {
                        break;
                    }
                }
                if start.is_nan() {
                    break;
                }
                let end = start + times.of(rank, action);
                ends.note(action, end);
                ranks[rank].push((action, start, end));
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let stuck = |rank: usize| order.computations[rank].get(ranks[rank].len()).map(|action| (rank, *action));
    match (0..shape.ranks).find_map(stuck) {
        None => Ok(Simulated { ranks }),
        Some((rank, action)) => {
            Err(deadlock(&ends, rank, action, |rank| stuck(rank).map(|(_, action)| action)))
        }
    }
}

/// Says why an action never begins.
fn deadlock(ends: &Ends, rank: usize, action: Action, at: impl Fn(usize) -> Option<Action>) -> String {
    let missing = ends.needs(action).into_iter().flatten().find(|(_, end, _)| end.is_nan());
    let (needed, _, _) = missing.expect("it waits for something");
    let (Action::Forward { stage, .. } | Action::Backward { stage, .. }) = needed else {
        unreachable!("results are those of stages")
    };
    let owner = ends.shape.rank_of(stage);
    let there = at(owner).map_or(String::new(), |other| format!(", and rank {owner} is at `{other}`"));
    format!(
        "`{action}` of rank {rank} waits for `{needed}`, which never comes{there}: the ranks wait for each other"
    )
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
