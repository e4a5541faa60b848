//! The cross-entropy of tokens whose logits exist whole, and its gradient at once.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;

use super::Logits;
#[cfg(test)]
use crate::device::Capability;
use crate::device::Feature;
use crate::device::cuda::launch::{Launch, Pointer, launch};
#[cfg(test)]
use crate::device::cuda::program::{NARROW, Variant};
use crate::device::cuda::program::{Source, type_name};
use crate::device::cuda::{Gpu, capability, shared_memory, sizes};

const KERNEL: &str = "lose";
const THREADS: u32 = 512;
/// Elements that a thread takes at once.
const WIDTH: usize = 4;
/// Bytes of a row that a block holds in shared memory: two or three blocks fit on a multiprocessor, so that one reads
/// while another writes. Longer rows take more where they must: all that a block may have but what the kernel itself needs.
const HELD: usize = 80 << 10;
const OWN: usize = 3 << 10;
/// Without blocks that exchange values: of the 48 KiB that every device has.
const HELD_ALONE: usize = (48 << 10) - OWN;
/// Blocks that can share a token.
const CLUSTERS: [usize; 4] = [1, 2, 4, 8];

/// The tokens of one call.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub tokens: usize,
    /// The first one, of all that have labels and losses.
    pub first_token: usize,
    /// Its row of the gradient.
    pub first_row: usize,
    /// What its gradient is multiplied by.
    pub gain: f32,
}

/// For each token of the part its loss log Σ exp(logits) − logits\[label\], and the loss's gradient by the products that
/// its logits of this `form` are made of, (softmax − onehot) · gain without one; both are 0 for a token whose label is negative.
///
/// Products `logits` [at least the part's tokens, row] f32, of which the first `vocab` columns count; labels [T] i32 →
/// losses [T] f32 and dlogits [R, row], 0 behind the vocabulary, in their memory. A row has a multiple of 4 columns.
///
/// # Panics
/// When sizes or types do not fit, or the kernel cannot be compiled.
pub fn losses_and_gradients(
    logits: &CubeTensor,
    labels: &CubeTensor,
    (losses, dlogits): (&CubeTensor, &CubeTensor),
    vocab: usize,
    form: Logits,
    part: Part,
) {
    let gpu = Gpu::of(logits).expect("a CUDA tensor");
    let [rows, row] = sizes(logits, "logits");
    let [places, columns] = sizes(dlogits, "the gradient of logits");
    let all = labels.meta.num_elements();
    let types = [logits, labels, losses].map(|tensor| tensor.dtype);
    assert_eq!(types, [DType::F32, DType::I32, DType::F32], "the types of logits, labels and losses");
    assert!([logits, labels, losses, dlogits].iter().all(|tensor| tensor.is_contiguous()));
    let Part { tokens, first_token, first_row, .. } = part;
    assert!(
        row == columns
            && row.is_multiple_of(WIDTH)
            && vocab <= row
            && tokens <= rows
            && first_token + tokens <= all
            && losses.meta.num_elements() == all
            && first_row + tokens <= places
            && u32::try_from(places * row).is_ok(),
        "{part:?} of [{rows}, {row}] logits of {vocab} entries, {all} tokens and [{places}, {columns}] gradients"
    );
    let clusters = capability(gpu.ordinal).has(Feature::Clusters);
    let cover = Cover::of(row, clusters.then(|| shared_memory(gpu.ordinal)));
    let Cover { cluster, share, .. } = cover;
    let functions = gpu.functions(&cover.source(dlogits.dtype, form), [(KERNEL, cover.shared())]);
    let [function] = functions.unwrap_or_else(|e| panic!("{e}"));
    let pointers = [logits, dlogits, labels, losses].map(|tensor| Some(Pointer::whole(tensor)));
    let integers = [first_token, first_row, vocab, row, share].map(|size| size as i32);
    let blocks = Launch { function, grid: [(tokens * cluster) as u32, 1], threads: THREADS };
    launch(dlogits, pointers, integers.to_vec(), part.gain, [blocks]);
}

/// How blocks share a row.
#[derive(Debug, PartialEq, Eq)]
struct Cover {
    cluster: usize,
    /// Columns of one block.
    share: usize,
    /// Whether they stay in its shared memory.
    held: bool,
}

impl Cover {
    /// `shared`: bytes of shared memory that a block may ask for, where blocks can exchange values.
    fn of(row: usize, shared: Option<usize>) -> Self {
        let share = |cluster: usize| row.div_ceil(cluster).next_multiple_of(WIDTH);
        let fits = |most: usize| {
            let cluster = CLUSTERS.into_iter().find(|cluster| 4 * share(*cluster) <= most)?;
            Some(Self { cluster, share: share(cluster), held: true })
        };
        let held = match shared {
            Some(shared) => {
                let most = shared.saturating_sub(OWN);
                fits(HELD.min(most)).or_else(|| fits(most))
            }
            None => fits(HELD_ALONE).filter(|cover| cover.cluster == 1),
        };
        held.unwrap_or(Self { cluster: 1, share: row, held: false })
    }

    /// Bytes of shared memory that a launch gives each block.
    fn shared(&self) -> usize {
        if self.held { 4 * self.share } else { 0 }
    }

    fn source(&self, dtype: DType, Logits { scale, soft_cap }: Logits) -> Source {
        let mut macros = vec![
            format!("CLUSTER={}", self.cluster),
            format!("HELD={}", u8::from(self.held)),
            format!("A={}", type_name(dtype)),
            format!("THREADS={THREADS}u"),
            format!("WIDTH={WIDTH}u"),
        ];
        macros.extend((scale != 1.0).then(|| format!("SCALE={:e}f", scale as f32)));
        macros.extend(soft_cap.map(|cap| format!("SOFT_CAP={:e}f", cap as f32)));
        let text = concat!(include_str!("../../device/cuda/kernels/numbers.cuh"), include_str!("loss.cu"));
        Source { name: "loss.cu", text, macros, generation_only: false }
    }
}

/// Rows of every length that a device with this compute capability covers in another way, of those the longest.
#[cfg(test)]
pub fn variants(capability: Capability) -> Vec<Variant> {
    let shared = capability.has(Feature::Clusters).then(|| capability.shared_memory());
    let mut longest: Vec<Cover> = Vec::new();
    for cover in (WIDTH..500_000).step_by(WIDTH).map(|row| Cover::of(row, shared)) {
        let known =
            longest.iter_mut().find(|known| (known.cluster, known.held) == (cover.cluster, cover.held));
        match known {
            Some(known) => *known = cover,
            None => longest.push(cover),
        }
    }
    let forms = [
        Logits::default(),
        Logits { scale: 0.125, soft_cap: None },
        Logits { scale: 1.0, soft_cap: Some(30.0) },
        Logits { scale: 0.7, soft_cap: Some(15.0) },
    ];
    let types = NARROW.into_iter().cycle();
    let all = forms.iter().flat_map(|form| longest.iter().zip(types.clone()).map(move |at| (form, at)));
    let variant = |(form, (cover, dtype)): (&Logits, (&Cover, DType))| Variant {
        source: cover.source(dtype, *form),
        kernels: vec![(KERNEL, cover.shared())],
    };
    all.map(variant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_shared_until_they_fit() {
        let held = |cluster, share| Cover { cluster, share, held: true };
        // An H100 has 227 KiB, a consumer's card 99. 20, 201, 608 and 1024 KB, and 2 MB.
        let [most, less] = [Some(227 << 10), Some(99 << 10)];
        assert_eq!(Cover::of(5056, most), held(1, 5056));
        assert_eq!(Cover::of(50_304, most), held(4, 12_576));
        assert_eq!(Cover::of(151_936, most), held(8, 18_992));
        assert_eq!(Cover::of(256_000, most), held(8, 32_000));
        assert_eq!(Cover::of(500_032, most), Cover { cluster: 1, share: 500_032, held: false });
        assert_eq!(Cover::of(151_936, less), held(8, 18_992));
        assert_eq!(Cover::of(256_000, less), Cover { cluster: 1, share: 256_000, held: false });
        assert_eq!(Cover::of(5056, None), held(1, 5056));
        assert_eq!(Cover::of(50_304, None), Cover { cluster: 1, share: 50_304, held: false });
    }
}
