//! Bubbles, live activations and messages of every schedule against their formulas, and that no order deadlocks.

use std::collections::HashSet;

use super::*;
use crate::parallel::schedule::pipeline::Schedule;
use crate::parallel::schedule::{Carries, Message};

fn shape(ranks: usize, chunks: usize, micro_batches: usize) -> Shape {
    Shape { ranks, chunks, micro_batches }
}

fn order(schedule: Schedule, shape: Shape) -> Order {
    schedule.order(shape, "").unwrap_or_else(|wrong| panic!("{schedule:?} {shape:?}: {wrong}"))
}

/// Every schedule in many sizes.
fn orders() -> impl Iterator<Item = (Schedule, Order)> {
    let plain = [Schedule::Gpipe, Schedule::OneFOneB, Schedule::Pipedream];
    let sizes = |ranks: usize| [1, 2, 3, 4, 7, 8, 16].map(|micro_batches| (ranks, micro_batches));
    let sizes: Vec<_> = (1..=8).flat_map(sizes).collect();
    let of_plain = move |(ranks, micro_batches): (usize, usize)| {
        plain.map(|schedule| (schedule, order(schedule, shape(ranks, 1, micro_batches))))
    };
    let of_chunks = |(ranks, times): (usize, usize)| {
        let of = move |chunks| shape(ranks, chunks, ranks * times);
        [2, 3, 4].map(|chunks| (Schedule::Interleaved, order(Schedule::Interleaved, of(chunks))))
    };
    sizes.clone().into_iter().flat_map(of_plain).chain(sizes.into_iter().flat_map(of_chunks))
}

fn share(order: &Order) -> f64 {
    simulate(order, &Times::equal(order.shape)).expect("checked").bubble()
}

/// (p − 1) / (m + p − 1) of the step for GPipe and 1F1B; interleaved as if there were v m micro-batches.
#[test]
fn bubbles_equal_their_formulas() {
    for (schedule, order) in orders() {
        let Shape { ranks, chunks, micro_batches } = order.shape;
        let (p, all) = (ranks as f64, (chunks * micro_batches) as f64);
        let expected = (p - 1.0) / (all + p - 1.0);
        assert!((share(&order) - expected).abs() < 1e-9, "{schedule:?} {:?}: {}", order.shape, share(&order));
    }
    assert_eq!((share(&order(Schedule::Gpipe, shape(4, 1, 8))) * 1e4).round(), 2727.0);
    assert_eq!((share(&order(Schedule::Interleaved, shape(4, 2, 8))) * 1e4).round(), 1579.0);
}

#[test]
fn live_activations_equal_their_formulas() {
    for (schedule, order) in orders() {
        let Shape { ranks, micro_batches, .. } = order.shape;
        for rank in 0..ranks {
            match schedule {
                Schedule::Gpipe => assert_eq!(order.live(rank), micro_batches),
                Schedule::OneFOneB | Schedule::Pipedream => {
                    assert_eq!(order.live(rank), micro_batches.min(ranks - rank));
                }
                _ => {}
            }
        }
    }
    // Of 1000 micro-batches as of 16.
    let live =
        |schedule, m| (0..4).map(|rank| order(schedule, shape(4, 1, m)).live(rank)).collect::<Vec<_>>();
    assert_eq!(live(Schedule::OneFOneB, 1000), live(Schedule::OneFOneB, 16));
    assert_eq!(live(Schedule::OneFOneB, 1000), [4, 3, 2, 1]);
    // In halves of a rank's blocks: 5.5, 4.5, 3.5 and 2.5 of them.
    let interleaved = order(Schedule::Interleaved, shape(4, 2, 8));
    assert_eq!([0, 1, 2, 3].map(|rank| interleaved.live(rank)), [11, 9, 7, 5]);
}

/// Until a rank's first backward is over no gradient waits; behind it there are no more graphs than forwards still follow.
#[test]
fn what_waits_before_and_behind_the_first_backward() {
    let waiting = |schedule, m, rank| {
        order(schedule, shape(4, 1, m)).waiting(rank).map(|waiting| (waiting.graphs, waiting.versions))
    };
    assert_eq!(waiting(Schedule::Gpipe, 6, 1), [(6, 1), (5, 1)]);
    assert_eq!(waiting(Schedule::OneFOneB, 4, 0), [(4, 1), (3, 1)]);
    assert_eq!(waiting(Schedule::OneFOneB, 16, 0), [(4, 1), (4, 1)]);
    // All of four forwards come before the first update.
    assert_eq!(waiting(Schedule::Pipedream, 4, 0), [(4, 1), (3, 2)]);
    assert_eq!(waiting(Schedule::Pipedream, 16, 0), [(4, 1), (4, 4)]);
    assert_eq!(waiting(Schedule::Pipedream, 16, 3), [(1, 1), (1, 1)]);
}

/// A message of every result between two stages and direction, with one sender and one receiver.
#[test]
fn messages_pair_up() {
    for (_, order) in orders() {
        let Shape { ranks, micro_batches, .. } = order.shape;
        let stages = order.shape.stages();
        let expected = if ranks == 1 { 0 } else { 2 * (stages - 1) * micro_batches };
        assert_eq!(order.messages(), expected);
        let mut ends: Vec<(Carries, usize, usize, usize, usize)> = Vec::new();
        for rank in 0..ranks {
            for action in order.of_rank(rank) {
                let (Action::Send(m) | Action::Receive(m)) = action else { continue };
                let (from, to) =
                    if matches!(action, Action::Send(_)) { (rank, m.peer) } else { (m.peer, rank) };
                ends.push((m.carries, m.stage, m.micro_batch, from, to));
            }
        }
        ends.sort_unstable();
        assert_eq!(ends.len(), 2 * expected);
        assert!(ends.chunks(2).all(|pair| pair[0] == pair[1] && pair[0].3 != pair[0].4));
    }
}

/// Ranks whose messages are through only once both ends have come to them, one message at a time: none waits forever,
/// whatever the stages' speeds, since no speed stands in the order.
#[test]
fn no_order_deadlocks_without_buffers() {
    for (schedule, order) in orders() {
        let lists: Vec<Vec<Action>> = (0..order.shape.ranks).map(|rank| order.of_rank(rank)).collect();
        let mut at = vec![0; lists.len()];
        let mut done: Vec<Action> = Vec::new();
        let mut moved = true;
        while moved {
            moved = false;
            for rank in 0..lists.len() {
                let Some(action) = lists[rank].get(at[rank]).copied() else { continue };
                let other_end = |peer: usize| lists[peer].get(at[peer]).copied();
                let meets = match action {
                    Action::Send(m) => {
                        let end = Action::Receive(Message { peer: rank, ..m });
                        (other_end(m.peer) == Some(end)).then_some(m.peer)
                    }
                    Action::Receive(_) => continue,
                    _ => {
                        done.push(action);
                        None
                    }
                };
                if let Some(peer) = meets {
                    at[peer] += 1;
                } else if matches!(action, Action::Send(_)) {
                    continue;
                }
                at[rank] += 1;
                moved = true;
            }
        }
        let through = at.iter().zip(&lists).all(|(at, list)| *at == list.len());
        assert!(through, "{schedule:?} {:?}: {at:?}", order.shape);
        let computed = done.iter().filter(|action| **action != Action::Update).count();
        assert_eq!(computed, 2 * order.shape.stages() * order.shape.micro_batches);
    }
}

/// The messages of a rank's list.
fn queue(list: &[Action]) -> Vec<Action> {
    list.iter().copied().filter(is_message).collect()
}

fn is_message(action: &Action) -> bool {
    matches!(action, Action::Send(_) | Action::Receive(_))
}

/// Messages of a list before each of its places.
fn messages_before(list: &[Action]) -> Vec<usize> {
    let counted = list.iter().scan(0, |count, action| {
        *count += usize::from(is_message(action));
        Some(*count)
    });
    std::iter::once(0).chain(counted).collect()
}

/// What an action reads of another rank: what it carries, of which stage and micro-batch.
fn needed(action: Action, shape: Shape, rank: usize) -> Option<(Carries, usize, usize)> {
    let elsewhere = |stage: usize| shape.rank_of(stage) != rank;
    match action {
        Action::Forward { stage, micro_batch } if stage > 0 && elsewhere(stage - 1) => {
            Some((Carries::Activation, stage - 1, micro_batch))
        }
        Action::Backward { stage, micro_batch } if stage + 1 < shape.stages() && elsewhere(stage + 1) => {
            Some((Carries::Gradient, stage + 1, micro_batch))
        }
        _ => None,
    }
}

/// Each rank has a queue of messages, which are through one by one, and computes beside it: what it reads has arrived. A
/// message is in the queue once the rank has come to it.
#[test]
fn messages_that_are_received_ahead_come_through_in_a_queue_of_their_own() {
    for (schedule, order) in orders() {
        let lists: Vec<Vec<Action>> = (0..order.shape.ranks).map(|rank| order.of_rank_ahead(rank)).collect();
        let queues: Vec<Vec<Action>> = lists.iter().map(|list| queue(list)).collect();
        for (rank, own) in queues.iter().enumerate() {
            assert_eq!(*own, queue(&order.of_rank(rank)), "their order stays");
        }
        let issued: Vec<Vec<usize>> = lists.iter().map(|list| messages_before(list)).collect();
        // Where each rank stands in its list, how many of its messages are through, and what it has received.
        let (mut at, mut through) = (vec![0; lists.len()], vec![0; lists.len()]);
        let mut received = vec![HashSet::new(); lists.len()];
        let mut moved = true;
        while moved {
            moved = false;
            for rank in 0..lists.len() {
                let is_next = |rank: usize, message: Action| {
                    through[rank] < issued[rank][at[rank]] && queues[rank][through[rank]] == message
                };
                if let Some(Action::Send(m)) = queues[rank].get(through[rank]).copied()
                    && is_next(rank, Action::Send(m))
                    && is_next(m.peer, Action::Receive(Message { peer: rank, ..m }))
                {
                    received[m.peer].insert((m.carries, m.stage, m.micro_batch));
                    through[m.peer] += 1;
                    through[rank] += 1;
                    moved = true;
                }
                let Some(action) = lists[rank].get(at[rank]) else { continue };
                if needed(*action, order.shape, rank).is_none_or(|needed| received[rank].contains(&needed)) {
                    at[rank] += 1;
                    moved = true;
                }
            }
        }
        let done = at.iter().zip(&lists).all(|(at, list)| *at == list.len());
        assert!(done, "{schedule:?} {:?}: {at:?}", order.shape);
        assert!(through.iter().zip(&queues).all(|(through, queue)| *through == queue.len()));
    }
}

#[test]
fn pipedream_updates_after_every_backward_and_the_others_once() {
    for (schedule, order) in orders() {
        let expected = if schedule == Schedule::Pipedream { order.shape.micro_batches } else { 1 };
        for actions in &order.computations {
            assert_eq!(actions.iter().filter(|action| **action == Action::Update).count(), expected);
            assert_eq!(actions.last(), Some(&Action::Update));
        }
    }
}

#[test]
fn stages_have_all_blocks_once_and_evenly() {
    for layers in 1..20 {
        for stages in 1..=layers {
            let shape = shape(stages, 1, 1);
            let all: Vec<_> = (0..stages).map(|stage| shape.blocks(stage, layers)).collect();
            assert_eq!(
                all.iter().flat_map(Clone::clone).collect::<Vec<_>>(),
                (0..layers).collect::<Vec<_>>()
            );
            assert!(
                all.iter().all(|blocks| blocks.len().abs_diff(layers / stages) <= 1 && !blocks.is_empty())
            );
        }
    }
}

#[test]
fn written_schedules_are_carried_out_or_refused_with_the_first_wrong_action() {
    let two = shape(2, 1, 2);
    let written = |text: &str| Schedule::Written.order(two, text);
    let f1b1 = written("0F0 0F1 0B0 0B1; 1F0 1B0 1F1 1B1").expect("1F1B");
    assert_eq!(f1b1.computations, order(Schedule::OneFOneB, two).computations);
    for (text, wrong) in [
        ("0F0 0F1 0B0 0B1", "it has 1 list, and there are 2 ranks"),
        ("0F0 0X1 0B0 0B1; 1F0 1B0", "`0X1` of rank 0 is no action"),
        ("0F0 0F2; 1F0", "`0F2` of rank 0 is of micro-batch 2, and the micro-batches are 0 to 1"),
        ("0F0 1F1; 1F0", "`1F1` of rank 0 is of stage 1, which rank 1 has"),
        ("0F0 0F1 2F0; 1F0", "`2F0` of rank 0 is of stage 2, and the stages are 0 to 1"),
        ("0F0 0F1 0F0 0B1; 1F0", "`0F0` of rank 0 stands twice"),
        ("0F0 0B1 0F1 0B0; 1F0", "`0B1` of rank 0 comes before its forward"),
        ("0F0 0F1 0B0 0B1; 1F0 1B0 1F1", "rank 1 misses `1B1`"),
        (
            "0F0 0B0 0F1 0B1; 1F0 1F1 1B0 1B1",
            "`0B0` of rank 0 waits for `1B0`, which never comes, and rank 1 is at `1F1`: the ranks wait for each other",
        ),
    ] {
        let message = written(text).expect_err(text);
        assert!(message.contains(wrong), "{text}: {message}");
    }
}

#[test]
fn slow_stages_and_messages_take_their_time() {
    let order = order(Schedule::Gpipe, shape(2, 1, 1));
    let times =
        Times { forward: vec![1.0, 3.0], backward: vec![2.0, 5.0], update: vec![0.5, 0.0], message: 0.25 };
    let step = simulate(&order, &times).expect("checked");
    // 1 + message + 3 + 5 + message + 2 + 0.5.
    assert_eq!(step.seconds(), 12.0);
    assert!((step.bubble() - (1.0 - 11.5 / 24.0)).abs() < 1e-12);
    let spans = step.spans();
    assert_eq!(spans[1][0], Span { action: "1F0".into(), start: 1.25, end: 4.25 });
}

#[test]
fn the_timeline_of_gpipe_in_text() {
    let step =
        simulate(&order(Schedule::Gpipe, shape(2, 1, 2)), &Times::equal(shape(2, 1, 2))).expect("checked");
    let (lines, whole) = super::super::timeline::text(&step);
    assert!(whole);
    assert_eq!(lines, ["F0 F1 .........B1----B0----", "...F0 F1 B1----B0----......"]);
}
