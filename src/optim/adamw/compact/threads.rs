//! Steps of AdamW with moments of few bits on all threads of the current rayon pool: in the memory of tensors, or in a
//! buffer on the host with its master weights.

use burn::tensor::DType;
use cpu_kernels::adamw::AdamWStep;
use cpu_kernels::dynamic_map::BLOCK;
use cpu_kernels::moments::{Coded, Draws, update_8bit, update_bf16};
use rayon::prelude::*;

use crate::device::elements::{round, widen};

/// Elements of a thread at a time: their fp32 copies stay in its second-level cache. Whole blocks of codes.
const CHUNK: usize = 32 * BLOCK;

/// Where parameters are, and their gradients.
pub enum Target<'a> {
    /// Parameters of a type and gradients of one.
    Tensors { p: (DType, &'a mut [u8]), g: (DType, &'a [u8]) },
    /// Gradients of a type, in whose place the new weights go, and fp32 master weights.
    Buffer { dtype: DType, buffer: &'a mut [u8], master: &'a mut [f32] },
}

/// So many fp32 numbers hold a moment in 8 bits: the largest of each block, and then the codes.
pub fn coded_length(elements: usize) -> usize {
    elements.div_ceil(BLOCK) + elements.div_ceil(4)
}

/// A step whose moments are as [`coded_length`] says.
pub fn step_8bit(target: Target<'_>, [m, v]: [&mut [f32]; 2], step: AdamWStep, clip: f32) {
    let chunks = target.chunks();
    let elements: usize = chunks.iter().map(Chunk::elements).sum();
    let moments = coded(m, elements).zip(coded(v, elements));
    let all = chunks.into_par_iter().zip(moments);
    all.for_each(|(chunk, (m, v))| chunk.run(|g, p| update_8bit(g, p, m, v, step, clip)));
}

/// A step whose moments are in bf16. `draws`: of the first element.
pub fn step_bf16(target: Target<'_>, [m, v]: [&mut [u16]; 2], step: AdamWStep, clip: f32, draws: Draws) {
    let moments = m.par_chunks_mut(CHUNK).zip(v.par_chunks_mut(CHUNK)).enumerate();
    target.chunks().into_par_iter().zip(moments).for_each(|(chunk, (i, (m, v)))| {
        let draws = Draws { first: draws.first + i * CHUNK, ..draws };
        chunk.run(|g, p| update_bf16(g, p, m, v, step, clip, draws));
    });
}

/// The parts of a moment in 8 bits that chunks have.
fn coded(moment: &mut [f32], elements: usize) -> impl IndexedParallelIterator<Item = Coded<'_>> {
    let (largest, codes) = moment.split_at_mut(elements.div_ceil(BLOCK));
    let codes = &mut bytemuck::cast_slice_mut(codes)[..elements];
    let parts = codes.par_chunks_mut(CHUNK).zip(largest.par_chunks_mut(CHUNK / BLOCK));
    parts.map(|(codes, largest)| Coded { codes, largest })
}

/// One thread's part.
struct Chunk<'a>(Target<'a>);

impl<'a> Target<'a> {
    fn chunks(self) -> Vec<Chunk<'a>> {
        match self {
            Self::Tensors { p: (p_type, p), g: (g_type, g) } => {
                let g = g.chunks(CHUNK * g_type.size()).map(|g| (g_type, g));
                let p = p.chunks_mut(CHUNK * p_type.size()).map(|p| (p_type, p));
                p.zip(g).map(|(p, g)| Chunk(Target::Tensors { p, g })).collect()
            }
            Self::Buffer { dtype, buffer, master } => {
                let parts = buffer.chunks_mut(CHUNK * dtype.size()).zip(master.chunks_mut(CHUNK));
                parts.map(|(buffer, master)| Chunk(Target::Buffer { dtype, buffer, master })).collect()
            }
        }
    }
}

impl Chunk<'_> {
    fn elements(&self) -> usize {
        match &self.0 {
            Target::Tensors { p: (dtype, p), .. } => p.len() / dtype.size(),
            Target::Buffer { master, .. } => master.len(),
        }
    }

    /// Updates fp32 parameters by fp32 gradients.
    ///
    /// Never inlined: its 64 KiB would be in each frame of rayon's recursion, and a thread that waits for a part runs other parts
    /// on top of it, so that 2 MiB of stack are not enough.
    #[inline(never)]
    fn run(self, update: impl FnOnce(&[f32], &mut [f32])) {
        let (mut g_wide, mut p_wide) = ([0.0f32; CHUNK], [0.0f32; CHUNK]);
        let elements = self.elements();
        let (g_wide, p_wide) = (&mut g_wide[..elements], &mut p_wide[..elements]);
        match self.0 {
            Target::Tensors { p: (p_type, p), g: (g_type, g) } => {
                widen(g_type, g, g_wide);
                widen(p_type, p, p_wide);
                update(g_wide, p_wide);
                round(p_type, p_wide, p);
            }
            Target::Buffer { dtype, buffer, master } => {
                widen(dtype, buffer, g_wide);
                update(g_wide, master);
                round(dtype, master, buffer);
            }
        }
    }
}
