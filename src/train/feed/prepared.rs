//! [`Prepared`]: a collated batch with all that a device needs of it, made on the host.

use crate::data::{Collated, Finish};
use crate::device::Staging;
use crate::measure::Counts;
use crate::model::language::{LmBatch, Tokens};
use crate::ops::attention::{Bucket, Buckets, Grain, Mask, Packing};
use crate::ops::embedding::{Ids, ScatterPlan};
use crate::ops::virtual_tokens::VirtualRows;
use crate::words::DeviceId;

pub(super) struct Prepared {
    /// [`Ids`] of the tokens and of their positions, four each; labels; and of packed samples where the sample of
    /// each token begins, and the buckets' tokens; last those of [`VirtualRows`].
    arrays: Vec<Vec<i32>>,
    /// What the ids of tokens and of positions are below.
    bounds: [usize; 2],
    rows: usize,
    width: usize,
    buckets: Option<Vec<Bucket>>,
    /// Of each sample; 0: none.
    virtual_tokens: usize,
    /// Labels that count, of all shares.
    counted: usize,
    pub counts: Counts,
}

/// How a batch becomes what a device needs of it.
pub(super) fn finish(device: DeviceId) -> Finish<Prepared> {
    match device {
        DeviceId::Cpu => |batch| Prepared::new(batch, Grain::CPU, Ids::arrays),
        DeviceId::Cuda(_) => |batch| Prepared::new(batch, Grain::CUDA, Ids::arrays_of_one_length),
    }
}

/// A batch outside of a feed.
pub fn on_device(batch: Collated, device: DeviceId) -> LmBatch {
    finish(device)(batch).upload(&mut Staging::plain(&device.burn()))
}

impl Prepared {
    /// `arrays_of`: of ids and the plan of their gradients.
    fn new(batch: Collated, grain: Grain, arrays_of: fn(Vec<i32>, ScatterPlan) -> [Vec<i32>; 4]) -> Self {
        // Of the whole batch: the losses of all shares add up to its loss.
        let counted = batch.counted();
        let batch = batch.shared();
        let seen = batch.seen();
        // No gradient comes back to what no prediction has seen.
        let plan = |ids: &[i32]| ScatterPlan::of(ids, |token| seen[token]);
        let (ids, positions) = (plan(&batch.ids), plan(&batch.positions));
        let bounds = [&batch.ids, &batch.positions].map(|ids| Ids::bound(ids));
        let Collated { rows, width, counts, virtual_tokens, .. } = batch;
        let mut arrays = arrays_of(batch.ids, ids).to_vec();
        arrays.extend(arrays_of(batch.positions, positions));
        arrays.push(batch.labels);
        let buckets = batch.segments.map(|segments| {
            let Buckets { buckets, tokens } = Buckets::of(&segments.lengths, grain);
            arrays.extend([segments.starts, tokens]);
            buckets
        });
        if virtual_tokens > 0 {
            let marks = VirtualRows::marks(&batch.virtual_rows, rows * width);
            arrays.extend([batch.virtual_rows, marks]);
        }
        Self { arrays, bounds, rows, width, buckets, virtual_tokens, counted, counts }
    }

    pub fn upload(self, staging: &mut Staging) -> LmBatch {
        let Self { arrays, bounds, rows, width, buckets, virtual_tokens, counted, .. } = self;
        let mut tensors = staging.upload(arrays).into_iter();
        let mut next = || tensors.next().expect("one for each array");
        let [ids, positions] = bounds.map(|below| Ids::from_tensors([next(), next(), next(), next()], below));
        let labels = next();
        let mask = buckets.map_or_else(Mask::default, |buckets| Mask {
            starts: Some(next().reshape([rows, width])),
            packing: Some(Packing::new(buckets, next())),
        });
        let virtual_rows =
            (virtual_tokens > 0).then(|| VirtualRows::from_tensors([next(), next()], virtual_tokens));
        let tokens = Tokens { ids, positions, batch: rows, sequence: width, mask, virtual_rows };
        LmBatch { tokens, labels, total: counted as f64 }
    }
}

#[cfg(test)]
#[path = "prepared_tests.rs"]
mod tests;
