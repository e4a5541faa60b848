//! [`Prepared`]: a collated batch in the arrays that the device needs, made on the host.

use crate::common::DeviceId;
use crate::data::{Collated, Finish};
use crate::device::Staging;
use crate::measure::Counts;
use crate::model::language::{LmBatch, SourceTokens, Tokens};
use crate::ops::attention::{Bucket, Buckets, Grain, Mask, Packing};
use crate::ops::embedding::{Ids, ScatterPlan};
use crate::ops::virtual_tokens::VirtualRows;

pub(super) struct Prepared {
    /// The four arrays of [`Ids`] of the tokens, and four of their positions; labels; which tokens of sources are
    /// padding; for packed samples the first token of each token's sample, and the tokens of the buckets; last those of [`VirtualRows`].
    arrays: Vec<Vec<i32>>,
    /// Upper bounds of the ids of tokens and of positions.
    bounds: [usize; 2],
    /// Tokens of a source, and whether some are padding.
    source: Option<(usize, bool)>,
    rows: usize,
    width: usize,
    buckets: Option<Vec<Bucket>>,
    /// Virtual tokens of each sample.
    virtual_tokens: usize,
    /// Labels that count, in all shares.
    counted: usize,
    pub counts: Counts,
}

/// How a batch is prepared for a device.
pub(super) fn finish(device: DeviceId) -> Finish<Prepared> {
    match device {
        DeviceId::Cpu => |batch| Prepared::new(batch, Grain::CPU, Ids::arrays),
        DeviceId::Cuda(_) => |batch| Prepared::new(batch, Grain::CUDA, Ids::arrays_of_one_length),
    }
}

/// Copies a batch to the device, outside of a feed.
pub fn on_device(batch: Collated, device: DeviceId) -> LmBatch {
    finish(device)(batch).upload(&mut Staging::plain(&device.burn()))
}

impl Prepared {
    /// `arrays_of`: makes the arrays of ids from them and the plan of their gradients.
    fn new(batch: Collated, grain: Grain, arrays_of: fn(Vec<i32>, ScatterPlan) -> [Vec<i32>; 4]) -> Self {
        // In the whole batch, so that the losses of all shares add up to its loss.
        let counted = batch.counted();
        let batch = batch.shared();
        let (ids, positions, seen) = batch.all_tokens();
        // A token that no prediction has seen gets no gradient.
        let plan = |ids: &[i32]| ScatterPlan::of(ids, |token| seen[token]);
        let plans = [&ids, &positions].map(|ids| plan(ids));
        let bounds = [&ids, &positions].map(|ids| Ids::bound(ids));
        let Collated { rows, width, counts, virtual_tokens, .. } = batch;
        let mut arrays: Vec<Vec<i32>> =
            [ids, positions].into_iter().zip(plans).flat_map(|(ids, plan)| arrays_of(ids, plan)).collect();
        arrays.push(batch.labels);
        let source = batch.sources.map(|sources| {
            let padding = sources.padding().map(|padding| padding.into_iter().map(i32::from).collect());
            let pads = padding.is_some();
            arrays.extend(padding);
            (sources.width, pads)
        });
        let buckets = batch.segments.map(|segments| {
            let Buckets { buckets, tokens } = Buckets::of(&segments.lengths, grain);
            arrays.extend([segments.starts, tokens]);
            buckets
        });
        if virtual_tokens > 0 {
            let marks = VirtualRows::marks(&batch.virtual_rows, rows * width);
            arrays.extend([batch.virtual_rows, marks]);
        }
        Self { arrays, bounds, source, rows, width, buckets, virtual_tokens, counted, counts }
    }

    pub fn upload(self, staging: &mut Staging) -> LmBatch {
        let Self { arrays, bounds, source, rows, width, buckets, virtual_tokens, counted, .. } = self;
        let mut tensors = staging.upload(arrays).into_iter();
        let mut next = || tensors.next().expect("one for each array");
        let [ids, positions] = bounds.map(|below| Ids::from_tensors([next(), next(), next(), next()], below));
        let labels = next();
        let source = source.map(|(sequence, pads)| {
            let padding = pads.then(|| next().reshape([rows, sequence]).equal_elem(1));
            SourceTokens { sequence, padding }
        });
        let mask = buckets.map_or_else(Mask::default, |buckets| Mask {
            starts: Some(next().reshape([rows, width])),
            packing: Some(Packing::new(buckets, next())),
        });
        let virtual_rows =
            (virtual_tokens > 0).then(|| VirtualRows::from_tensors([next(), next()], virtual_tokens));
        let tokens = Tokens { ids, positions, source, batch: rows, sequence: width, mask, virtual_rows };
        LmBatch { tokens, labels, total: counted as f64 }
    }
}

#[cfg(test)]
#[path = "pairs_tests.rs"]
mod pairs_tests;
#[cfg(test)]
#[path = "prepared_tests.rs"]
mod tests;
