//! The memory bandwidth that the language-model kernels reach.

use std::time::Instant;

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeDevice;
use burn_cubecl::ops::numeric::ones_client;
use burn_cubecl::tensor::CubeTensor;
use runner::device::cuda::{Event, Gpu};
use runner::ops::activation::Activation;
use runner::ops::activation::cuda::{activate, activate_backward};
use runner::ops::attention::heads_cuda::{merge_heads, split_heads};
use runner::ops::attention::softmax_cuda::{Mask, Scaling, masked_softmax, masked_softmax_backward};
use runner::ops::attention::{Heads, Scores};
use runner::ops::cross_entropy::Logits;
use runner::ops::cross_entropy::cuda::{LossState, chunk_gradient, observe_chunk, token_losses};
use runner::ops::embedding::cuda::{DevicePlan, ScatterPlan, gather, scatter};
use runner::ops::kernels::elementwise::{add, cast};
use runner::ops::kernels::sum::{
    mean_square_difference, mean_square_difference_backward, sum, sum_of_squares,
};
use runner::ops::norm::cuda::{norm, norm_backward};
use runner::ops::rope::Pairs;
use runner::ops::rope::cuda::rope;
use runner::optim::sgd::cuda::{SgdStep, sgd};

use crate::data::{integers, scalar};

pub fn rates(gpu: &'static Gpu) {
    let bench = &mut Bench(gpu);
    norms(bench);
    attention(bench);
    loss(bench);
    rows(bench);
    sgd_with_momentum(bench);
}

struct Bench(&'static Gpu);

impl Bench {
    /// Prints the bandwidth of a launch that moves `bytes` bytes between the multiprocessors and
    /// the device's memory.
    fn rate(&mut self, name: &str, bytes: usize, mut launch: impl FnMut()) {
        const LAUNCHES: u32 = 20;
        (0..3).for_each(|_| launch());
        self.0.synchronize();
        let start = Event::record(self.0);
        let clock = Instant::now();
        (0..LAUNCHES).for_each(|_| launch());
        let host = clock.elapsed().as_secs_f64() / f64::from(LAUNCHES);
        let seconds = Event::record(self.0).seconds_since(&start) / f64::from(LAUNCHES);
        let rate = bytes as f64 / seconds / 1e9;
        println!("rate {name}: {rate:.0} GB/s, {:.1} us (host {:.1} us)", seconds * 1e6, host * 1e6);
    }
}

/// A large tensor whose values do not matter.
fn large(shape: &[usize], dtype: DType) -> CubeTensor {
    let device = CubeDevice::cuda(0).expect("the device is open");
    ones_client(device.client(), device, Shape::from(shape.to_vec()), dtype)
}

fn norms(bench: &mut Bench) {
    for (tokens, width) in [(65536, 4096), (1_048_576, 128), (131_072, 1024)] {
        for (name, x_type, g_type) in
            [("bf16", DType::BF16, DType::BF16), ("x f32, g bf16", DType::F32, DType::BF16)]
        {
            let (x, g) = (large(&[tokens, width], x_type), large(&[tokens, width], g_type));
            let weight = large(&[width], x_type);
            let elements = tokens * width;
            for (kind, bias) in [("rms_norm", None), ("layer_norm", Some(&weight))] {
                let (_, mean, rstd) = norm(&x, &weight, bias, 1e-5.into(), g_type);
                let bytes = elements * (x_type.size() + g_type.size());
                bench.rate(&format!("{kind} [{tokens}, {width}] {name}"), bytes, || {
                    drop(norm(&x, &weight, bias, 1e-5.into(), g_type));
                });
                let bytes = elements * (2 * x_type.size() + g_type.size());
                bench.rate(&format!("{kind}_backward [{tokens}, {width}] {name}"), bytes, || {
                    drop(norm_backward(&x, (&weight, false), (mean.as_ref(), &rstd), &g, None));
                });
            }
        }
    }
}

fn attention(bench: &mut Bench) {
    let (tokens, heads, d) = (65536, 32, 128);
    let x = large(&[tokens, heads * d], DType::BF16);
    let (cos, sin) = (large(&[4096, d / 2], DType::F32), large(&[4096, d / 2], DType::F32));
    let positions: Vec<i32> = (0..tokens).map(|t| (t % 4096) as i32).collect();
    let positions = integers(&positions, &[tokens]);
    let bytes = 2 * 2 * tokens * heads * d;
    bench.rate("rope [65536, 32*128] bf16", bytes, || {
        drop(rope(x.clone(), heads * d, Pairs::halves(d), &cos, &sin, &positions, false));
    });
    let scores = Scores::default();
    let dims = Heads { batch: 16, sequence: 4096, kv_heads: 8, group: 4, head_dim: d, scores };
    bench.rate("split_heads [16*4096, 32*128] bf16", bytes, || drop(split_heads(&x, 0, dims, None)));
    let matrices = large(&[128, 4 * 4096, d], DType::F32);
    bench.rate("merge_heads [128, 16384, 128] f32 to bf16", 6 * tokens * heads * d, || {
        drop(merge_heads(&matrices, dims, DType::BF16));
    });
    // The last block of queries, which sees nearly every key.
    let (matrices, rows, keys) = (32, 1024, 4096);
    let scores = large(&[matrices, rows, keys], DType::F32);
    let dp = large(&[matrices, rows, keys], DType::F32);
    let elements = matrices * rows * keys;
    let one_segment = integers(&vec![0; keys * 4], &[4, keys]);
    for (name, segments) in [("causal", None), ("packed", Some(one_segment))] {
        let (query_start, scaling) = (keys - rows / 4, Scaling { scale: 0.1, soft_cap: None });
        let mask = Mask { query_start, key_start: 0, window: None, group: 4, kv_heads: 8, segments };
        let forward = format!("masked_softmax [{matrices}, {rows}, {keys}] {name} to bf16");
        bench.rate(&forward, elements * 6, || {
            drop(masked_softmax(scores.clone(), &mask, scaling, DType::BF16));
        });
        let backward = format!("masked_softmax_backward [{matrices}, {rows}, {keys}] {name} to bf16");
        bench.rate(&backward, elements * 12, || {
            drop(masked_softmax_backward(scores.clone(), dp.clone(), &mask, scaling, DType::BF16));
        });
    }
}

fn loss(bench: &mut Bench) {
    let (tokens, width) = (4096, 16_384);
    let logits = large(&[tokens, width], DType::F32);
    let labels = integers(&vec![5; tokens], &[tokens]);
    let mut state = LossState::new(&labels, tokens);
    let elements = tokens * width;
    bench.rate("observe_chunk [4096, 16384]", elements * 4, || {
        observe_chunk(&logits, &labels, 0, Logits::default(), &mut state);
    });
    let (_, lse) = token_losses(&state, &labels);
    let scale = scalar(1.0);
    bench.rate("chunk_gradient [4096, 16384] to bf16", elements * 6, || {
        drop(chunk_gradient(logits.clone(), &lse, (&labels, 0), Logits::default(), &scale, DType::BF16));
    });
    let mut in_place = Some(large(&[tokens, width], DType::F32));
    bench.rate("chunk_gradient [4096, 16384] f32 in place", elements * 8, || {
        let logits = in_place.take().expect("put back");
        in_place = Some(chunk_gradient(logits, &lse, (&labels, 0), Logits::default(), &scale, DType::F32));
    });
    bench.rate("sum of 67 M f32", elements * 4, || drop(sum(&logits)));
    let narrow = large(&[tokens, 2 * width], DType::BF16);
    bench.rate("sum_of_squares of 134 M bf16", elements * 4, || {
        drop(sum_of_squares(std::slice::from_ref(&narrow)))
    });
    let other = narrow.copy();
    bench.rate("mean_square_difference of 134 M bf16", elements * 8, || {
        drop(mean_square_difference(&narrow, &other));
    });
    bench.rate("mean_square_difference_backward of 134 M bf16", elements * 12, || {
        drop(mean_square_difference_backward(&narrow, &other, &scale));
    });
}

fn rows(bench: &mut Bench) {
    let n = 1 << 27;
    let (wide, narrow) = (large(&[n], DType::F32), large(&[n], DType::BF16));
    bench.rate("cast 134 M f32 to bf16", n * 6, || drop(cast(wide.clone(), DType::BF16)));
    bench.rate("add 134 M f32 and bf16", n * 10, || drop(add(wide.clone(), &narrow)));
    bench.rate("gelu 134 M bf16", n * 4, || drop(activate(narrow.clone(), Activation::GeluTanh)));
    bench.rate("gelu_backward 134 M bf16", n * 6, || {
        drop(activate_backward(&narrow, narrow.clone(), Activation::GeluTanh));
    });
    drop((wide, narrow));
    let (vocab, width, tokens) = (151_936, 1024, 32_768);
    let weight = large(&[vocab, width], DType::BF16);
    let ids: Vec<i32> = (0..tokens as i64).map(|t| (t * t % vocab as i64) as i32).collect();
    let on_device = integers(&ids, &[tokens]);
    let plan = ScatterPlan::new(&ids);
    println!("{} different ids", plan.unique.len());
    let upload = |values: &[i32]| integers(values, &[values.len()]);
    let (order, unique, starts) = (upload(&plan.order), upload(&plan.unique), upload(&plan.starts));
    let plan = DevicePlan { order, unique, starts };
    bench.rate("gather 32768 of [151936, 1024] bf16", tokens * width * 4, || {
        drop(gather(&weight, &on_device, DType::BF16));
    });
    let g = large(&[tokens, width], DType::BF16);
    bench.rate("scatter 32768 into [151936, 1024] f32", tokens * width * 2 + vocab * width * 4, || {
        drop(scatter(&g, &plan, 0..vocab, DType::F32));
    });
}

fn sgd_with_momentum(bench: &mut Bench) {
    let n = 1 << 26;
    for dtype in [DType::F32, DType::BF16] {
        let new = |dtype: DType| -> CubeTensor { large(&[n], dtype) };
        let g = new(dtype);
        let mut held = Some((new(dtype), Some(new(DType::F32))));
        let plain = SgdStep { lr: 0.1, momentum: 0.9, weight_decay: 0.0 };
        bench.rate(&format!("sgd with momentum 67 M {dtype:?}"), n * (8 + 3 * dtype.size()), || {
            let (p, m) = held.take().expect("put back");
            held = Some(sgd(p, &g, m, None, None, plain));
        });
    }
}
