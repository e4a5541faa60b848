//! Messages among the computations of a rank.
//!
//! All messages of a step stand in one order, by the simulated time at which each is produced, and every rank carries out
//! its part of that order one by one: the first message that is not through yet waits for none behind it. So no rank waits
//! for another in a circle, also where a message is through only once both ends have come to it, as with NCCL.

use std::collections::HashSet;

use super::pipeline::{Order, Shape};
use super::simulate::{Times, simulate};
use super::{Action, Carries, Message};

/// A message with its ends.
struct Sent {
    produced: f64,
    from: usize,
    message: Message,
}

/// All messages of a step, in the order of all ranks. Each names the rank that it goes to.
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

/// The message that brings what a computation needs, and the one that takes what it makes; none within a rank.
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

/// Messages of a step over all ranks.
pub fn count(order: &Order) -> usize {
    let sent = |action: &&Action| around(order.shape, **action).1.is_some();
    order.computations.iter().flatten().filter(sent).count()
}

/// The actions of a rank. A message comes as late as its place in the order allows: before the computation that needs it,
/// or behind the one that makes it.
pub fn with_messages(order: &Order, rank: usize) -> Vec<Action> {
    let own = messages(order).into_iter().filter_map(|Sent { from, message, .. }| match message.peer {
        _ if from == rank => Some(Action::Send(message)),
        to if to == rank => Some(Action::Receive(Message { peer: from, ..message })),
        _ => None,
    });
    let mut own = own.collect::<Vec<_>>().into_iter();
    // What came before its turn, since it stands before another message.
    let mut early: HashSet<Action> = HashSet::new();
    let mut actions = Vec::new();
    for action in &order.computations[rank] {
        let (needed, made) = around(order.shape, *action);
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

/// Actions whose messages to this rank are begun a computation earlier. None of them passes another message, and no
/// computation before its own waits for it: messages have a queue of their own.
pub fn received_ahead(mut actions: Vec<Action>) -> Vec<Action> {
    for i in 1..actions.len() {
        let computes = matches!(actions[i - 1], Action::Forward { .. } | Action::Backward { .. });
        if computes && matches!(actions[i], Action::Receive(_)) {
            actions.swap(i - 1, i);
        }
    }
    actions
}
