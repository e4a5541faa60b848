//! Batches on their way to the device, and packed samples in attention.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use runner::device::DeviceId;
use runner::ops::Operator;
use runner::ops::attention::{Buckets, Grain, Heads, Mask, Packing, attention};
use runner::ops::dense::Arithmetic;
use runner::words::Compute;

use crate::on_gpu;
use crate::reference::random;

/// Arrays of unequal length arrive whole, also when many uploads reuse the buffers while kernels run.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn staging() {
    on_gpu(|gpu, checks| {
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
    });
}

/// Samples as batches of their own give the results and gradients that the mask of their segments gives.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn packed_attention() {
    on_gpu(|gpu, checks| {
        let device = gpu.burn();
        let heads = Heads { batch: 1, sequence: 5000, kv_heads: 2, group: 2, head_dim: 64 };
        let (mut numbers, mut lengths) = (Vec::new(), Vec::new());
        while numbers.len() < heads.sequence {
            let number = lengths.len();
            let length = (3 + number * 153 % 471).min(heads.sequence - numbers.len());
            numbers.extend(vec![number as i32; length]);
            lengths.push(length);
        }
        // As CUDA divides them, and finer.
        let grains = [Grain::CUDA, Grain::CPU];
        let segments =
            Tensor::<1, Int>::from_data(TensorData::new(numbers, [heads.sequence]), (&device, DType::I32))
                .reshape([1, heads.sequence]);
        for (compute, tolerance) in [(Compute::Fp32, 1e-5), (Compute::Bf16, 2e-2)] {
            let run = |grain: Option<Grain>| {
                let packing = grain.map(|grain| {
                    let Buckets { buckets, tokens } = Buckets::of(&lengths, grain);
                    let count = tokens.len();
                    Packing::new(
                        buckets,
                        Tensor::from_data(TensorData::new(tokens, [count]), (&device, DType::I32)),
                    )
                });
                let mask = Mask { segments: Some(segments.clone()), packing };
                results(&device, heads, &mask, Arithmetic::of(compute))
            };
            let whole = run(None);
            for (grain, packed) in grains.map(|grain| (grain, run(Some(grain)))) {
                for (name, (packed, whole)) in
                    ["o", "dq", "dk", "dv"].into_iter().zip(packed.iter().zip(&whole))
                {
                    let largest = whole.iter().fold(0.0f64, |most, x| most.max(x.abs()));
                    let worst = packed.iter().zip(whole).map(|(a, b)| (a - b).abs()).fold(0.0f64, f64::max);
                    let name = format!("packed attention {}, {grain:?}, {name}", compute.into_str());
                    checks.below(&name, worst / largest, tolerance);
                }
            }
        }
    });
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
