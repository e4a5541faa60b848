//! Batches on their way to the device, and packed samples in attention.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use runner::device::DeviceId;
use runner::device::cuda::Gpu;
use runner::ops::Operator;
use runner::ops::attention::{Heads, Mask, attention};
use runner::ops::dense::Arithmetic;
use runner::recipe::Compute;

use crate::Checks;
use crate::reference::random;

/// Arrays of unequal length arrive whole, also when many uploads reuse the buffers while kernels run.
pub fn staging(gpu: &'static Gpu, checks: &mut Checks) {
    let device = gpu.burn();
    let mut staging = DeviceId::Cuda(0).staging(true);
    let busy = Tensor::<2>::ones([4096, 4096], (&device, DType::F32));
    let mut uploads = Vec::new();
    for step in 0..20i32 {
        let arrays: Vec<Vec<i32>> =
            [1, 127, 128, 4097].map(|n| (0..n).map(|i| step * 10_000 + i).collect()).to_vec();
        uploads.push((staging.upload(arrays.clone()), arrays));
        drop(busy.clone().matmul(busy.clone()));
    }
    let mut wrong = 0;
    for (tensors, arrays) in uploads {
        for (tensor, array) in tensors.into_iter().zip(arrays) {
            let got: Vec<i32> = tensor.into_data().iter::<i32>().collect();
            wrong += usize::from(got != array);
        }
    }
    checks.verdict("pinned staging of 20 batches", wrong == 0, &format!("{wrong} of 80 arrays differ"));
}

/// Keys before a block's first sample are left out: the same results and gradients as with all of them.
pub fn packed_attention(gpu: &'static Gpu, checks: &mut Checks) {
    let device = gpu.burn();
    // Several blocks, none of which begins with a sample.
    let heads = Heads { batch: 1, sequence: 5000, kv_heads: 2, group: 2, head_dim: 64 };
    let (mut numbers, mut starts) = (Vec::new(), Vec::new());
    for number in 0.. {
        let start = numbers.len();
        let length = (37 + number * 53 % 71).min(heads.sequence - start);
        if length == 0 {
            break;
        }
        numbers.extend(vec![number as i32; length]);
        starts.extend(vec![start as u32; length]);
    }
    let segments =
        Tensor::<1, Int>::from_data(TensorData::new(numbers, [heads.sequence]), (&device, DType::I32))
            .reshape([1, heads.sequence]);
    for (compute, tolerance) in [(Compute::Fp32, 1e-5), (Compute::Bf16, 2e-2)] {
        let run = |starts: Option<Vec<u32>>| {
            let mask = Mask { segments: Some(segments.clone()), starts: starts.map(Into::into) };
            results(&device, heads, &mask, Arithmetic::of(compute))
        };
        let (packed, whole) = (run(Some(starts.clone())), run(None));
        for (name, (packed, whole)) in ["o", "dq", "dk", "dv"].into_iter().zip(packed.iter().zip(&whole)) {
            let largest = whole.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            let worst = packed.iter().zip(whole).map(|(a, b)| (a - b).abs()).fold(0.0f64, f64::max);
            checks.below(&format!("packed attention {}, {name}", compute.name()), worst / largest, tolerance);
        }
    }
}

/// o and the gradients of q, k and v.
fn results(device: &Device, heads: Heads, mask: &Mask, arithmetic: Arithmetic) -> [Vec<f64>; 4] {
    let device = device.clone().autodiff();
    let part = |columns: usize, seed: u64| {
        Tensor::<2>::from_data(random([heads.sequence, columns], seed), (&device, DType::F32)).require_grad()
    };
    let (queries, keys) = (heads.columns(), heads.of_keys().columns());
    let (q, k, v, g) = (part(queries, 1), part(keys, 2), part(keys, 3), part(queries, 4));
    let o = attention(q.clone(), k.clone(), v.clone(), heads, mask, arithmetic, Operator::Custom);
    let list = |t: Tensor<2>| t.into_data().iter::<f64>().collect::<Vec<f64>>();
    let values = list(o.clone().inner());
    let o = o.cast(burn::tensor::FloatDType::F32);
    let mut gradients = (o * g.inner().autodiff()).sum().backward();
    let mut gradient = |t: &Tensor<2>| list(t.grad_remove(&mut gradients).expect("a gradient"));
    [values, gradient(&q), gradient(&k), gradient(&v)]
}
