//! The kernels that step AdamW over many parameters in one launch, and what they are compiled from.

use std::sync::LazyLock;

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cpu_kernels::adamw::AdamWStep;
use cpu_kernels::dynamic_map::{self, DynamicMap, SIGNED, UNSIGNED};

use crate::device::cuda::many::{Kernel, LARGEST_BLOCK, Row, Scalars, launch};
#[cfg(test)]
use crate::device::cuda::program::Variant;
use crate::device::cuda::tables::{philox, table};

const ADAMW: Kernel = Kernel { name: "adamw", file: "adamw.cu", text: || FP32, block: 8192 };
const ADAMW_8BIT: Kernel =
    // Each block copies the maps into its memory: 18 KB.
    Kernel { name: "adamw_8bit", file: "adamw_8bit.cu", text: || &EIGHT_BIT, block: LARGEST_BLOCK };
const ADAMW_BF16: Kernel =
    Kernel { name: "adamw_bf16", file: "adamw_bf16.cu", text: || &BFLOAT16, block: 8192 };

const COMMON: &str = concat!(
    include_str!("../../device/cuda/kernels/numbers.cuh"),
    include_str!("../../device/cuda/kernels/many.cuh"),
    include_str!("adamw.cuh")
);
const FP32: &str = concat!(
    include_str!("../../device/cuda/kernels/numbers.cuh"),
    include_str!("../../device/cuda/kernels/many.cuh"),
    include_str!("adamw.cuh"),
    include_str!("adamw.cu")
);
static BFLOAT16: LazyLock<String> =
    LazyLock::new(|| [COMMON, &philox(), include_str!("adamw_bf16.cu")].concat());

/// With the maps, whose numbers are those of the CPU bit for bit.
static EIGHT_BIT: LazyLock<String> = LazyLock::new(|| {
    let map = |name: &str, map: &DynamicMap| {
        let of = |what: &str| format!("{name}_{what}");
        [
            table("u32", &of("VALUES"), map.values.map(f32::to_bits)),
            table("u32", &of("THRESHOLDS"), map.thresholds.map(f32::to_bits)),
            table("unsigned char", &of("CELLS"), map.cells.map(u32::from)),
        ]
        .concat()
    };
    [COMMON, &map("SIGNED", &SIGNED), &map("UNSIGNED", &UNSIGNED), include_str!("adamw_8bit.cu")].concat()
});

/// How AdamW's moments are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moments {
    Fp32,
    /// In fp32 numbers whose bits are the largest of each block of 256, and then 8-bit codes, as
    /// [`cpu_kernels::dynamic_map`] has them.
    Coded,
    /// In bf16, rounded at random with this key and the tensor's number.
    Rounded([u32; 2]),
}

impl Moments {
    fn dtype(self) -> DType {
        match self {
            Self::Fp32 | Self::Coded => DType::F32,
            Self::Rounded(_) => DType::BF16,
        }
    }

    /// Numbers in the tensor of a moment of so many elements.
    fn length(self, elements: usize) -> usize {
        match self {
            Self::Fp32 | Self::Rounded(_) => elements,
            Self::Coded => elements.div_ceil(dynamic_map::BLOCK) + elements.div_ceil(4),
        }
    }
}

/// Steps AdamW over parameters p with their gradients g and moments m and v, `[p, g, m, v]` each, in place. All p
/// have one type, and all g one; `numbers` has one for each. Where there are `remainders`, one each, p are in bf16 and these their fp32 masters' other 16
/// bits. `clip` and `shared` are on the device.
///
/// # Panics
/// When sizes or types differ, or the kernel cannot be compiled.
pub fn adamw(
    (tensors, numbers): (&[[CubeTensor; 4]], &[u32]),
    remainders: &[CubeTensor],
    moments: Moments,
    clip: Option<&CubeTensor>,
    shared: Option<&CubeTensor>,
    step: AdamWStep,
) {
    let Some([p, g, ..]) = tensors.first() else { return };
    let types = [p.dtype, g.dtype];
    let expected = |[p, ..]: &[CubeTensor; 4]| {
        let elements = p.meta.num_elements();
        let moment = (moments.dtype(), moments.length(elements));
        [(types[0], elements), (types[1], elements), moment, moment]
    };
    let kernel = match moments {
        Moments::Fp32 => &ADAMW,
        Moments::Coded => &ADAMW_8BIT,
        Moments::Rounded(_) => &ADAMW_BF16,
    };
    let key = if let Moments::Rounded(key) = moments { key } else { [0; 2] };
    let (others, scalars) = ([clip, shared], Scalars { numbers: numbers_of(step), key });
    if remainders.is_empty() {
        let rows = tensors.iter().zip(numbers);
        let rows = rows.map(|(row, number)| Row::new("adamw", row, expected(row)).numbered(*number));
        return launch(kernel, types, p, rows.collect(), others, scalars);
    }
    assert_eq!((types[0], remainders.len()), (DType::BF16, tensors.len()), "remainders of bf16 parameters");
    let rows = tensors.iter().zip(numbers).zip(remainders).map(|((row, number), low)| {
        let [p, g, m, v] = expected(row);
        let row = row.each_ref();
        Row::new("adamw", &[row[0], row[1], row[2], row[3], low].map(Clone::clone), [p, g, m, v, p])
            .numbered(*number)
    });
    launch(kernel, types, p, rows.collect(), others, scalars);
}

/// As `Scalars` in adamw.cuh has them.
fn numbers_of(step: AdamWStep) -> [f32; 8] {
    let AdamWStep { decay, beta1, beta2, rest1, rest2, eps, rate, correction } = step;
    [decay, beta1, beta2, rest1, rest2, eps, rate, correction]
}

/// Each kernel with parameters in each way of storing them.
#[cfg(test)]
pub fn variants() -> Vec<Variant> {
    use DType::{BF16, F16, F32};
    let adamw = [
        (&ADAMW, 4, F32),
        (&ADAMW, 4, BF16),
        (&ADAMW, 4, F16),
        (&ADAMW, 5, BF16),
        (&ADAMW_8BIT, 4, F16),
        (&ADAMW_8BIT, 5, BF16),
        (&ADAMW_BF16, 4, F32),
        (&ADAMW_BF16, 5, BF16),
    ];
    let of = |(kernel, tensors, dtype): (&Kernel, _, _)| {
        Variant::plain(kernel.source(tensors, [dtype; 2]), [kernel.name])
    };
    adamw.map(of).into()
}
