//! Operations between ranks, by direct exchange between every two of them. Sums are in fp32 and in the order of ranks, so
//! that every rank gets the same bits in every run. In an all-reduce a rank sends 2 (N-1)/N of its values, as in a ring
//! (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms").

use std::ops::Range;
use std::time::Duration;

use itertools::Itertools;

use super::failure::Failure;
use super::links::Links;

/// An operation of [`super::ProcessGroup`].
pub struct Call<'c> {
    /// Those that take part, in rising order.
    ranks: &'c [usize],
    /// Each frame carries it: by it ranks notice that they disagree.
    pub text: String,
}

impl<'c> Call<'c> {
    /// The next call. Each kind of operation has its own number. Messages up and down are two kinds: two ranks may send to
    /// each other in any order. `count`: elements or bytes of all parts together; `None` if not all ranks know it.
    pub fn next(
        links: &mut Links,
        ranks: &'c [usize],
        (operation, name): (&str, &str),
        count: Option<usize>,
    ) -> Self {
        let all = ranks.iter().join(", ");
        let number = links.number(format!("{operation} {all}"));
        let count = count.map_or(String::new(), |count| format!(" of {count} elements"));
        Self { ranks, text: format!("operation {number} of ranks {all}, {operation} of \"{name}\"{count}") }
    }

    /// The elements of `count` that belong to a rank.
    fn part(&self, count: usize, rank: usize) -> Range<usize> {
        let place = self.ranks.binary_search(&rank).expect("this rank takes part");
        part(count, place, self.ranks.len())
    }

    fn others(&self, rank: usize) -> impl Iterator<Item = usize> {
        self.ranks.iter().copied().filter(move |peer| *peer != rank)
    }
}

/// The part of `count` elements that belongs to the rank at `place`, of `ranks`.
pub fn part(count: usize, place: usize, ranks: usize) -> Range<usize> {
    place * count / ranks..(place + 1) * count / ranks
}

/// Sends every rank its part, and sums this rank's part over all ranks.
pub fn reduce_scatter(links: &mut Links, call: &Call, values: &[f32]) -> Result<Vec<f32>, Failure> {
    for peer in call.others(links.rank) {
        links.send(peer, &call.text, bytemuck::cast_slice(&values[call.part(values.len(), peer)]))?;
    }
    let own = call.part(values.len(), links.rank);
    sum(links, call, &values[own])
}

/// Sums over all ranks, on every rank.
pub fn all_reduce(links: &mut Links, call: &Call, mut values: Vec<f32>) -> Result<Vec<f32>, Failure> {
    let own = reduce_scatter(links, call, &values)?;
    exchange(links, call, &own, &mut values)?;
    Ok(values)
}

/// All `count` elements, of which each rank gives its [`part`].
pub fn all_gather(links: &mut Links, call: &Call, own: &[f32], count: usize) -> Result<Vec<f32>, Failure> {
    let mut all = vec![0.0; count];
    exchange(links, call, own, &mut all)?;
    Ok(all)
}

/// Sums over all ranks, on `root` only.
pub fn reduce(links: &mut Links, call: &Call, root: usize, values: Vec<f32>) -> Result<Vec<f32>, Failure> {
    if links.rank != root {
        links.send(root, &call.text, bytemuck::cast_slice(&values))?;
        return Ok(Vec::new());
    }
    sum(links, call, &values)
}

/// The bytes of `root`, for which the others wait up to `limit`, on every rank.
pub fn broadcast(
    links: &mut Links,
    call: &Call,
    (root, limit): (usize, Duration),
    own: Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    if links.rank != root {
        return links.receive_any(limit, root, &call.text);
    }
    call.others(root).try_for_each(|peer| links.send(peer, &call.text, &own))?;
    Ok(own)
}

/// The bytes of each rank, of any length, in the order of ranks.
pub fn collect(links: &mut Links, call: &Call, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Failure> {
    let rank = links.rank;
    call.others(rank).try_for_each(|peer| links.send(peer, &call.text, &own))?;
    let mut own = Some(own);
    let of = |peer: &usize| match *peer == rank {
        true => Ok(own.take().expect("once")),
        false => links.receive_any(links.limit, *peer, &call.text),
    };
    call.ranks.iter().map(of).collect()
}

/// Adds this rank's values and those that the others send, in the order of ranks.
fn sum(links: &mut Links, call: &Call, own: &[f32]) -> Result<Vec<f32>, Failure> {
    let mut sum = vec![0.0; own.len()];
    for peer in call.ranks {
        if *peer == links.rank {
            sum.iter_mut().zip(own).for_each(|(sum, value)| *sum += value);
        } else {
            let theirs = links.receive(*peer, &call.text, size_of_val(own))?;
            let values = theirs.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    Ok(sum)
}

/// Sends this rank's part to every other rank, and puts their parts into `all`.
fn exchange(links: &mut Links, call: &Call, own: &[f32], all: &mut [f32]) -> Result<(), Failure> {
    let (rank, count, text) = (links.rank, all.len(), &call.text);
    call.others(rank).try_for_each(|peer| links.send(peer, text, bytemuck::cast_slice(own)))?;
    all[call.part(count, rank)].copy_from_slice(own);
    for peer in call.others(rank) {
        let place = bytemuck::cast_slice_mut(&mut all[call.part(count, peer)]);
        let theirs = links.receive(peer, text, place.len())?;
        place.copy_from_slice(&theirs);
    }
    Ok(())
}
