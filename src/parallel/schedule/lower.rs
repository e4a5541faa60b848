//! The actions of a rank: its computations with the messages among them.
//!
//! All messages of a step have one order, by the simulated time at which each is produced. Every rank carries out its part
//! of that order message by message, so the first unfinished message never waits for a later one. Hence ranks cannot wait
//! for each other in a circle, even if a message ends only once both ranks have reached it, as with NCCL.

use std::collections::HashSet;

use super::order::{Order, Shape};
use super::simulate::{Times, simulate};
use super::{Action, Carries, Message};

/// A message with its sender.
struct Sent {
    produced: f64,
    from: usize,
    message: Message,
}

/// All messages of a step in their order. Each names its receiver as the peer.
fn messages(order: &Order) -> Vec<Sent> {
    let simulated = simulate(order, &Times::equal(order.shape)).expect("the order was checked");
    let of_rank = |(from, actions): (usize, &Vec<(Action, f64, f64)>)| {
        let sent = |(action, _, produced): &(Action, f64, f64)| {
            let (_, made) = around(order.shape, *action);
            Some(Sent { produced: *produced, from, message: made? })
        };
        actions.iter().filter_map(sent).collect::<Vec<_>>()
    };
    let mut all: Vec<Sent> = simulated.ranks.iter().enumerate().flat_map(of_rank).collect();
    all.sort_by(|a, b| a.produced.total_cmp(&b.produced).then_with(|| a.message.cmp(&b.message)));
    all
}

/// The message that brings the input of a computation, and the one that takes its output. There is none within a rank.
fn around(shape: Shape, action: Action) -> (Option<Message>, Option<Message>) {
    let last = shape.stages() - 1;
    let message = |carries, stage, micro_batch, peer| {
        let message = Message { carries, stage, micro_batch, peer: shape.rank_of(peer) };
        (shape.ranks > 1).then_some(message)
    };
    let (activation, gradient) = (Carries::Activation, Carries::Gradient);
    match action {
        Action::Forward { stage, micro_batch: i } => (
            stage.checked_sub(1).and_then(|before| message(activation, before, i, before)),
            (stage < last).then(|| message(activation, stage, i, stage + 1)).flatten(),
        ),
        Action::Backward { stage, micro_batch: i } => (
            (stage < last).then(|| message(gradient, stage + 1, i, stage + 1)).flatten(),
            stage.checked_sub(1).and_then(|before| message(gradient, stage, i, before)),
        ),
        _ => (None, None),
    }
}

impl Order {
    /// The number of messages of a step, over all ranks.
    pub fn messages(&self) -> usize {
        let sent = |action: &&Action| around(self.shape, **action).1.is_some();
        self.computations.iter().flatten().filter(sent).count()
    }

    /// The actions of a rank, including messages. A message comes as late as the order allows: right before the computation
    /// that needs it, or right after the one that makes it.
    ///
    /// # Panics
    /// When the order was not checked.
    pub fn of_rank(&self, rank: usize) -> Vec<Action> {
        let own = messages(self).into_iter().filter_map(|Sent { from, message, .. }| match message.peer {
            _ if from == rank => Some(Action::Send(message)),
            to if to == rank => Some(Action::Receive(Message { peer: from, ..message })),
            _ => None,
        });
        let mut own = own.collect::<Vec<_>>().into_iter();
        // Messages that came before their turn, since they precede another message.
        let mut early: HashSet<Action> = HashSet::new();
        let mut actions = Vec::new();
        for action in &self.computations[rank] {
            let (needed, made) = around(self.shape, *action);
            let mut up_to = |message: Option<Action>| {
                let Some(last) = message.filter(|message| !early.remove(message)) else { return Vec::new() };
                let mut part = Vec::new();
                while part.last() != Some(&last) {
                    part.push(own.next().expect("every result has its message"));
                }
                early.extend(part.iter().take(part.len() - 1));
                part
            };
            actions.extend(up_to(needed.map(Action::Receive)));
            actions.push(*action);
            actions.extend(up_to(made.map(Action::Send)));
        }
        actions
    }

    /// As [`of_rank`](Self::of_rank), but receives begin one computation earlier and go on while it runs. Messages keep their
    /// order, and the earlier computation does not wait for them: they have their own queue.
    ///
    /// # Panics
    /// As [`of_rank`](Self::of_rank).
    pub fn of_rank_ahead(&self, rank: usize) -> Vec<Action> {
        let mut actions = self.of_rank(rank);
        for i in 1..actions.len() {
            let computes = matches!(actions[i - 1], Action::Forward { .. } | Action::Backward { .. });
            if computes && matches!(actions[i], Action::Receive(_)) {
                actions.swap(i - 1, i);
            }
        }
        actions
    }
}
