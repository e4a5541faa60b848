//! Operations between ranks, by direct exchange between every two of them. Sums are in fp32 and in the order of ranks, so
//! that every rank gets the same bits in every run. In an all-reduce a rank sends 2 (N-1)/N of its values, as in a ring
//! (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms").

use std::ops::Range;
use std::time::Duration;

use super::failure::Failure;
use super::links::Links;

/// The ranks that take part in an operation, in rising order.
pub type Ranks = [usize];

/// An operation of [`super::Group`]. Each frame carries its text, by which ranks notice that they disagree.
pub struct Call<'c> {
    pub ranks: &'c Ranks,
    pub operation: &'static str,
    pub name: &'c str,
    /// Elements or bytes of all parts together; `None` if not all ranks know it.
    pub count: Option<usize>,
}

impl Call<'_> {
    /// Each kind of operation has its own number. Messages up and down are two kinds: two ranks may send to each other in
    /// any order.
    fn text(&self, links: &mut Links) -> String {
        let Self { operation, name, .. } = self;
        let ranks = self.ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let number = links.number(format!("{operation} {ranks}"));
        let count = self.count.map_or(String::new(), |count| format!(" of {count} elements"));
        format!("operation {number} of ranks {ranks}, {operation} of \"{name}\"{count}")
    }
}

/// The part of `count` elements that belongs to the rank at `place`, of `ranks`.
pub fn part(count: usize, place: usize, ranks: usize) -> Range<usize> {
    place * count / ranks..(place + 1) * count / ranks
}

fn place(ranks: &Ranks, rank: usize) -> usize {
    ranks.binary_search(&rank).expect("this rank takes part")
}

/// Sums this rank's part over all ranks.
pub fn reduce_scatter(links: &mut Links, call: &Call, values: &[f32]) -> Result<Vec<f32>, Failure> {
    let text = call.text(links);
    sum_part(links, call.ranks, &text, values)
}

/// Sums over all ranks, on every rank.
pub fn all_reduce(links: &mut Links, call: &Call, mut values: Vec<f32>) -> Result<Vec<f32>, Failure> {
    let text = call.text(links);
    let own = sum_part(links, call.ranks, &text, &values)?;
    exchange(links, call.ranks, &text, &own, &mut values)?;
    Ok(values)
}

/// All elements, of which each rank gives its [`part`].
pub fn all_gather(links: &mut Links, call: &Call, own: &[f32]) -> Result<Vec<f32>, Failure> {
    let text = call.text(links);
    let mut all = vec![0.0; call.count.expect("all parts together")];
    exchange(links, call.ranks, &text, own, &mut all)?;
    Ok(all)
}

/// Sums over all ranks, on `root` only.
pub fn reduce(links: &mut Links, call: &Call, root: usize, values: Vec<f32>) -> Result<Vec<f32>, Failure> {
    let text = call.text(links);
    if links.rank != root {
        links.send(root, &text, bytemuck::cast_slice(&values))?;
        return Ok(Vec::new());
    }
    sum(links, call.ranks, &text, &values)
}

/// The bytes of `root`, for which the others wait up to `limit`, on every rank.
pub fn broadcast(
    links: &mut Links,
    call: &Call,
    (root, limit): (usize, Duration),
    own: Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    let text = call.text(links);
    if links.rank != root {
        return links.receive_within(limit, root, &text);
    }
    others(call.ranks, root).try_for_each(|peer| links.send(peer, &text, &own))?;
    Ok(own)
}

/// The bytes of each rank, of any length, in the order of ranks.
pub fn collect(links: &mut Links, call: &Call, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Failure> {
    let text = call.text(links);
    let rank = links.rank;
    others(call.ranks, rank).try_for_each(|peer| links.send(peer, &text, &own))?;
    let mut own = Some(own);
    let of = |peer: &usize| match *peer == rank {
        true => Ok(own.take().expect("once")),
        false => links.receive(*peer, &text),
    };
    call.ranks.iter().map(of).collect()
}

/// Sends bytes to another rank; only the two take part.
pub fn send(links: &mut Links, call: &Call, to: usize, bytes: &[u8]) -> Result<(), Failure> {
    let text = call.text(links);
    links.send(to, &text, bytes)
}

/// Receives what the other rank [sends](send).
pub fn receive(links: &mut Links, call: &Call, from: usize) -> Result<Vec<u8>, Failure> {
    let text = call.text(links);
    links.receive(from, &text)
}

fn others(ranks: &Ranks, rank: usize) -> impl Iterator<Item = usize> {
    ranks.iter().copied().filter(move |peer| *peer != rank)
}

/// Sends every rank its part, and sums this rank's part.
fn sum_part(links: &mut Links, ranks: &Ranks, text: &str, values: &[f32]) -> Result<Vec<f32>, Failure> {
    let of = |peer| part(values.len(), place(ranks, peer), ranks.len());
    for peer in others(ranks, links.rank) {
        links.send(peer, text, bytemuck::cast_slice(&values[of(peer)]))?;
    }
    let own = of(links.rank);
    sum(links, ranks, text, &values[own])
}

/// Adds this rank's values and those that the others send, in the order of ranks.
fn sum(links: &mut Links, ranks: &Ranks, text: &str, own: &[f32]) -> Result<Vec<f32>, Failure> {
    let mut sum = vec![0.0; own.len()];
    for peer in ranks {
        if *peer == links.rank {
            sum.iter_mut().zip(own).for_each(|(sum, value)| *sum += value);
        } else {
            let theirs = links.receive(*peer, text)?;
            let values = theirs.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    Ok(sum)
}

/// Sends this rank's part to every other rank, and puts their parts into `all`.
fn exchange(
    links: &mut Links,
    ranks: &Ranks,
    text: &str,
    own: &[f32],
    all: &mut [f32],
) -> Result<(), Failure> {
    let count = all.len();
    let of = |peer| part(count, place(ranks, peer), ranks.len());
    others(ranks, links.rank).try_for_each(|peer| links.send(peer, text, bytemuck::cast_slice(own)))?;
    all[of(links.rank)].copy_from_slice(own);
    for peer in others(ranks, links.rank) {
        let theirs = links.receive(peer, text)?;
        let place = bytemuck::cast_slice_mut(&mut all[of(peer)]);
        if place.len() != theirs.len() {
            let reason =
                format!("rank {peer} came to {text} with {} bytes, not {}", theirs.len(), place.len());
            return Err(Failure::Disagreement { reason });
        }
        place.copy_from_slice(&theirs);
    }
    Ok(())
}
