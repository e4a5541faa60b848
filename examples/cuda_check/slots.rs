//! Slots that are refilled on the copy stream while kernels on the compute stream read them.

use std::collections::VecDeque;
use std::time::Instant;

use burn::tensor::{DType, Shape, Tensor};
use rayon::prelude::*;
use runner::device::cuda::{
    CopyStream, Fp32Math, Gpu, Operand, Output, PinnedArena, PinnedSlice, Slot, StreamPath, Transfer, matmul,
};

use crate::Checks;
use crate::reference::{host, primitive, tensor};

const SLOTS: usize = 3;
/// Host blocks: enough that filling one does not wait for the copy of the one before.
const BLOCKS: usize = 4;
/// A slot is a matrix of fp32 with this many rows and columns: 32 MiB, half a millisecond of copying.
const ROWS: usize = 4096;
const COLUMNS: usize = 2048;
const BYTES: usize = ROWS * COLUMNS * 4;
/// A refill is issued this many refills ahead of its reader: just after the last reader of its slot.
const AHEAD: usize = SLOTS - 1;

/// Every element of a row in a refill: small integers, so that sums of a row are exact in any order.
fn value(refill: usize, row: usize) -> f32 {
    ((((refill * ROWS + row) * 0x9E37_79B9) >> 12) % 1024) as f32
}

fn fill(block: &mut PinnedSlice, refill: usize) {
    let elements: &mut [f32] = bytemuck::cast_slice_mut(block.bytes_mut());
    elements
        .par_chunks_mut(COLUMNS)
        .enumerate()
        .for_each(|(row, elements)| elements.fill(value(refill, row)));
}

/// Refills with every order in place, and, as the control, without the copies waiting for the kernels
/// that still read: the same sums must then be wrong, or the first check could not fail.
pub fn refills_beside_kernels(gpu: &'static Gpu, checks: &mut Checks) {
    let start = Instant::now();
    match refill_and_read(gpu, 1000, true) {
        Err(reason) => return checks.verdict("slots", false, &reason),
        Ok(Outcome { wrong, last_as_uploaded }) => {
            let figures = format!("{wrong} wrong, {:.1} s", start.elapsed().as_secs_f64());
            checks.verdict("1000 refills of three slots are read whole", wrong == 0, &figures);
            checks.verdict(
                "a download holds what was uploaded",
                last_as_uploaded,
                &format!("{} MiB", BYTES >> 20),
            );
        }
    }
    if let StreamPath::HostSynchronised(reason) = gpu.stream_path() {
        println!("skipped: without a missing event, since the host waits between all streams ({reason})");
        return;
    }
    match refill_and_read(gpu, 100, false) {
        Err(reason) => checks.verdict("slots without an event", false, &reason),
        Ok(Outcome { wrong, .. }) => {
            checks.verdict(
                "the missing event is noticed",
                wrong > 0,
                &format!("{wrong} of 100 refills wrong"),
            );
        }
    }
}

struct Outcome {
    /// Refills whose reader saw anything else than that refill.
    wrong: usize,
    /// The last slot, copied back, is the last refill.
    last_as_uploaded: bool,
}

/// Reads each refill by the sums of its rows, a few milliseconds of products after it was filled. With
/// `wait_for_readers` off, copies do not wait for the kernels issued before them.
fn refill_and_read(gpu: &'static Gpu, refills: usize, wait_for_readers: bool) -> Result<Outcome, String> {
    let copies = CopyStream::new(gpu)?;
    let slots = (0..SLOTS).map(|_| Slot::new(gpu, BYTES)).collect::<Result<Vec<_>, _>>()?;
    let mut arena = PinnedArena::new(gpu, BLOCKS * BYTES)?;
    let mut free: Vec<_> = (0..BLOCKS).map_while(|_| arena.take(BYTES)).collect();
    let mut transfers = VecDeque::new();

    // Slower than a copy, so that copies which do not wait overtake the readers.
    let factor = primitive(Tensor::<2>::ones([4096, 4096], &gpu.burn()));
    let busy = || {
        let side = || Operand { tensor: factor.clone(), transposed: false };
        (0..2).for_each(|_| drop(matmul(side(), side(), Output::New(DType::F32), Fp32Math::Exact)));
    };
    let row_sums = |slot: &Slot| tensor(slot.tensor(Shape::from([ROWS, COLUMNS]), DType::F32)).sum_dim(1);
    // Everything is compiled and tuned before the order matters.
    busy();
    drop(row_sums(&slots[0]));
    gpu.synchronize();

    let mut sums = Vec::with_capacity(refills);
    for step in 0..refills + AHEAD {
        // The copies before the one that this step issues: the reader below needs no later one.
        copies.before_compute();
        if step < refills {
            let mut block = match free.pop() {
                Some(block) => block,
                None => transfers.pop_front().map(Transfer::wait).expect("under way"),
            };
            fill(&mut block, step);
            if wait_for_readers {
                copies.after_compute();
            }
            transfers.push_back(copies.upload(block, &slots[step % SLOTS]));
        }
        if let Some(refill) = step.checked_sub(AHEAD) {
            busy();
            sums.push(row_sums(&slots[refill % SLOTS]));
        }
    }
    let is_wrong = |(refill, sums): (usize, Tensor<2>)| {
        let sums = host(sums);
        sums.len() != ROWS
            || sums
                .iter()
                .enumerate()
                .any(|(row, sum)| *sum != COLUMNS as f64 * f64::from(value(refill, row)))
    };
    let wrong = sums.into_iter().enumerate().map(is_wrong).filter(|wrong| *wrong).count();

    let last = refills - 1;
    let mut block = transfers.pop_front().expect("the last copies are kept").wait();
    fill(&mut block, refills);
    let block = copies.download(&slots[last % SLOTS], block).wait();
    let elements: &[f32] = bytemuck::cast_slice(block.bytes());
    let is_row = |(row, elements): (usize, &[f32])| elements.iter().all(|x| *x == value(last, row));
    Ok(Outcome { wrong, last_as_uploaded: elements.chunks(COLUMNS).enumerate().all(is_row) })
}
