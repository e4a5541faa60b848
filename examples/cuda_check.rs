//! Checks of the CUDA path on a machine with an NVIDIA GPU, one printed line each, and the rates
//! and memory of the SwiGLU study's shapes.
//!
//! ```text
//! cargo run --release --example cuda_check -- [device] [matmul] [swiglu] [rates] [shapes] [loop]
//! ```
//! Without arguments everything runs. `shapes` alone measures all shapes in one process, whose
//! memory pools one shape leaves to the next; `shapes fp32 4 1` measures one of them (compute type,
//! number, level) as a cell would. The exit code is 1 when a check fails, 0 without a GPU.

use std::time::Instant;

use burn::tensor::{DType, Device, Distribution, FloatDType, Tensor, TensorData};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use runner::device::cuda::{self, Event, Fp32Math, Gpu, Operand, Output, PeakObservation, Usage, matmul};
use runner::device::{DeviceId, dtype};
use runner::ops::swiglu::swiglu;
use runner::ops::{Level, Operator};
use runner::recipe::Compute;

const TYPES: [Compute; 4] = [Compute::Fp32, Compute::Tf32, Compute::Bf16, Compute::Fp16];

fn main() {
    if cuda::count() == 0 {
        println!("skipped: no NVIDIA driver with a device was found");
        return;
    }
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |section: &str| asked.is_empty() || asked.iter().any(|name| name == section);
    let start = Instant::now();
    let gpu = Gpu::open(0);
    println!("opened in {:.2} s", start.elapsed().as_secs_f64());
    println!("stream: {:?}; cuBLASLt: {:?}", gpu.stream_path(), gpu.blas_version());
    let mut checks = Checks { failed: 0 };
    if wanted("device") {
        println!("{:#?}", DeviceId::Cuda(0).info());
    }
    if wanted("matmul") {
        matmul_against_f64(gpu, &mut checks);
        burn_matmul_is_tf32(gpu, &mut checks);
        order_with_burn(gpu, &mut checks);
    }
    if wanted("swiglu") {
        swiglu_against_cpu(gpu, &mut checks);
    }
    if wanted("rates") {
        rates(gpu);
    }
    if wanted("shapes") {
        shapes(gpu, &asked);
    }
    if wanted("loop") {
        memory_of_a_long_loop(gpu, &mut checks);
    }
    println!("{} checks failed; {:.1} s in all", checks.failed, start.elapsed().as_secs_f64());
    std::process::exit(i32::from(checks.failed > 0));
}

struct Checks {
    failed: usize,
}

impl Checks {
    fn verdict(&mut self, name: &str, holds: bool, figures: &str) {
        self.failed += usize::from(!holds);
        println!("{} {name}: {figures}", if holds { "pass" } else { "FAIL" });
    }

    fn below(&mut self, name: &str, value: f64, tolerance: f64) {
        self.verdict(name, value <= tolerance, &format!("{value:.2e}, tolerance {tolerance:.0e}"));
    }
}

/// Relative rounding of a product whose operands are rounded as `compute` rounds them, with room
/// for the sums.
fn tolerance(compute: Compute) -> f64 {
    match compute {
        Compute::Fp32 => 2e-6,
        Compute::Tf32 => 2e-3,
        Compute::Bf16 => 8e-3,
        Compute::Fp16 => 1e-3,
    }
}

fn primitive(tensor: Tensor<2>) -> CubeTensor {
    tensor.try_into_primitive::<CubeBackend>().expect("a CUDA tensor")
}

fn tensor(primitive: CubeTensor) -> Tensor<2> {
    Tensor::from_primitive::<CubeBackend>(primitive)
}

fn host(tensor: Tensor<2>) -> Vec<f64> {
    let data = tensor.cast(FloatDType::F32).into_data();
    data.iter::<f32>().map(f64::from).collect()
}

/// A deterministic matrix, exactly the same on every device: values of N(0, 1) by Box and Muller.
fn random(shape: [usize; 2], seed: u64) -> TensorData {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    let values = (0..shape[0] * shape[1])
        .map(|_| ((-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32)
        .collect::<Vec<_>>();
    TensorData::new(values, shape)
}

fn on(device: &Device, data: TensorData, compute: Compute) -> Tensor<2> {
    Tensor::<2>::from_data(data, (device, DType::F32)).cast(float(compute))
}

fn float(compute: Compute) -> FloatDType {
    match compute {
        Compute::Fp32 | Compute::Tf32 => FloatDType::F32,
        Compute::Bf16 => FloatDType::BF16,
        Compute::Fp16 => FloatDType::F16,
    }
}

/// The largest difference from `expected`, in units of its root mean square.
fn error(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let scale = (expected.iter().map(|x| x * x).sum::<f64>() / expected.len() as f64).sqrt();
    got.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale
}

/// op(a) op(b) in f64, [m, k] times [k, n].
fn product(a: &[f64], b: &[f64], [m, n, k]: [usize; 3], ta: bool, tb: bool) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for l in 0..k {
            let x = if ta { a[l * m + i] } else { a[i * k + l] };
            for j in 0..n {
                c[i * n + j] += x * if tb { b[j * k + l] } else { b[l * n + j] };
            }
        }
    }
    c
}

/// Every layout of every type, into its own type and into fp32, overwriting and adding.
fn matmul_against_f64(gpu: &Gpu, checks: &mut Checks) {
    let sizes @ [m, n, k] = [192, 320, 256];
    for compute in TYPES {
        for (name, ta, tb) in
            [("NN", false, false), ("NT", false, true), ("TN", true, false), ("TT", true, true)]
        {
            let a = on(&gpu.burn(), random(if ta { [k, m] } else { [m, k] }, 1), compute);
            let b = on(&gpu.burn(), random(if tb { [n, k] } else { [k, n] }, 2), compute);
            let expected = product(&host(a.clone()), &host(b.clone()), sizes, ta, tb);
            let side = |t: &Tensor<2>, transposed| Operand { tensor: primitive(t.clone()), transposed };
            for out in [dtype(compute), DType::F32] {
                let run =
                    |output| host(tensor(matmul(side(&a, ta), side(&b, tb), output, compute.fp32_math())));
                let what = format!("matmul {} {name} into {out:?}", compute.name());
                // Into fp32 only the sums are rounded: the operands are what the reference multiplies.
                let limit = match (compute, out) {
                    (Compute::Bf16 | Compute::Fp16, DType::F32) => 1e-5,
                    _ => 4.0 * tolerance(compute),
                };
                checks.below(&what, error(&run(Output::New(out)), &expected), limit);
                let first = primitive(Tensor::<2>::ones([m, n], (&gpu.burn(), out)));
                let plus_one: Vec<f64> = expected.iter().map(|x| x + 1.0).collect();
                checks.below(
                    &format!("{what}, added to 1"),
                    error(&run(Output::AddTo(first)), &plus_one),
                    limit,
                );
            }
        }
        // A tensor that Burn transposed without moving it, and a slice with a stride of its own.
        let a = on(&gpu.burn(), random([k, m], 1), compute);
        let b = on(&gpu.burn(), random([k, n + 64], 2), compute).slice([0..k, 32..n + 32]);
        let expected = product(&host(a.clone()), &host(b.clone()), sizes, true, false);
        let lhs = Operand { tensor: primitive(a.transpose()), transposed: false };
        let rhs = Operand { tensor: primitive(b), transposed: false };
        let got = host(tensor(matmul(lhs, rhs, Output::New(dtype(compute)), compute.fp32_math())));
        let what = format!("matmul {} of views", compute.name());
        checks.below(&what, error(&got, &expected), 4.0 * tolerance(compute));
    }
}

/// Why fp32 does not go through Burn's product: it is TF32 there.
fn burn_matmul_is_tf32(gpu: &Gpu, checks: &mut Checks) {
    let sizes @ [m, n, k] = [512, 512, 512];
    let (a, b) = (
        on(&gpu.burn(), random([m, k], 3), Compute::Fp32),
        on(&gpu.burn(), random([k, n], 4), Compute::Fp32),
    );
    let expected = product(&host(a.clone()), &host(b.clone()), sizes, false, false);
    let side = |t: &Tensor<2>| Operand { tensor: primitive(t.clone()), transposed: false };
    let ours = tensor(matmul(side(&a), side(&b), Output::New(DType::F32), Fp32Math::Exact));
    let ours = error(&host(ours), &expected);
    let burn = error(&host(a.matmul(b)), &expected);
    checks.verdict(
        "fp32 is exact, Burn's is TF32",
        ours < 1e-5 && burn > 1e-4,
        &format!("{ours:.1e} and {burn:.1e}"),
    );
}

/// A chain in which each kernel needs the one before, Burn's and cuBLASLt's by turns: a missing
/// order shows as a wrong sum.
fn order_with_burn(gpu: &Gpu, checks: &mut Checks) {
    let n = 1024;
    let device = gpu.burn();
    let identity = || Operand { tensor: primitive(Tensor::<2>::eye(n, &device)), transposed: false };
    let mut x = Tensor::<2>::zeros([n, n], &device);
    for _ in 0..500 {
        x = x + 1.0;
        let lhs = Operand { tensor: primitive(x), transposed: false };
        x = tensor(matmul(lhs, identity(), Output::New(DType::F32), Fp32Math::Exact));
    }
    let wrong = host(x).iter().filter(|value| **value != 500.0).count();
    checks.verdict(
        "500 kernels of Burn and cuBLASLt in turn",
        wrong == 0,
        &format!("{wrong} wrong elements"),
    );
}

/// y, dx, dW, dV and dU of one operator for the loss Σ y ⊙ t.
fn gradients(device: &Device, [n, h, i]: [usize; 3], level: Level, compute: Compute) -> [Vec<f64>; 5] {
    let device = device.clone().autodiff();
    let scaled = |shape: [usize; 2], seed| {
        let t = Tensor::<2>::from_data(random(shape, seed), (&device, DType::F32));
        (t / (shape[0] as f64).sqrt()).cast(float(compute)).require_grad()
    };
    let x =
        Tensor::<2>::from_data(random([n, h], 5), (&device, DType::F32)).cast(float(compute)).require_grad();
    let (w, v, u) = (scaled([h, i], 6), scaled([h, i], 7), scaled([i, h], 8));
    let target = Tensor::<2>::from_data(random([n, h], 9), (&device, DType::F32)).cast(float(compute));
    let y = swiglu(x.clone(), w.clone(), v.clone(), u.clone(), level, Operator::Custom, compute.fp32_math());
    let gradients = (y.clone() * target).sum().backward();
    let of = |t: &Tensor<2>| host(t.grad(&gradients).expect("a gradient"));
    [host(y.inner()), of(&x), of(&w), of(&v), of(&u)]
}

fn swiglu_against_cpu(gpu: &Gpu, checks: &mut Checks) {
    let shape = [1024, 768, 2304];
    let expected = gradients(&Device::flex(), shape, Level::Keep, Compute::Fp32);
    for compute in TYPES {
        for level in Level::ALL {
            let got = gradients(&gpu.burn(), shape, level, compute);
            for (name, (got, expected)) in ["y", "dx", "dW", "dV", "dU"].iter().zip(got.iter().zip(&expected))
            {
                let what = format!("swiglu {} level {level} {name}", compute.name());
                // Three products deep, and the largest of millions of elements.
                let limit = if compute == Compute::Fp32 { 5e-5 } else { 20.0 * tolerance(compute) };
                checks.below(&what, error(got, expected), limit);
            }
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Products timed together.
const BATCH: u32 = 10;

fn rates(gpu: &'static Gpu) {
    for compute in TYPES {
        for n in [1024, 4096, 8192] {
            let random = || {
                let normal = Distribution::Normal(0.0, 1.0);
                primitive(Tensor::<2>::random([n, n], normal, (&gpu.burn(), DType::F32)).cast(float(compute)))
            };
            let (a, b) = (random(), random());
            for (name, ta, tb) in [("NN", false, false), ("NT", false, true), ("TN", true, false)] {
                let side = |t: &CubeTensor, transposed| Operand { tensor: t.clone(), transposed };
                // Several at a time, so that the host stays ahead of the device.
                let seconds = (0..8).map(|_| {
                    let start = Event::record(gpu);
                    for _ in 0..BATCH {
                        let output = Output::New(a.dtype);
                        drop(matmul(side(&a, ta), side(&b, tb), output, compute.fp32_math()));
                    }
                    Event::record(gpu).seconds_since(&start) / f64::from(BATCH)
                });
                let seconds = median(seconds.skip(3).collect());
                println!(
                    "rate matmul {n} {} {name}: {:.1} TFLOP/s",
                    compute.name(),
                    2.0 * (n as f64).powi(3) / seconds / 1e12
                );
            }
        }
    }
    let ceilings = DeviceId::Cuda(0).ceilings(&TYPES);
    println!("{ceilings:#?}");
    let start = Instant::now();
    let (a, count) = (primitive(Tensor::<2>::zeros([64, 64], &gpu.burn())), 2000);
    for _ in 0..count {
        let side = || Operand { tensor: a.clone(), transposed: false };
        drop(matmul(side(), side(), Output::New(DType::F32), Fp32Math::Exact));
    }
    println!(
        "host time of one small matmul: {:.1} us",
        start.elapsed().as_secs_f64() / f64::from(count) * 1e6
    );
}

/// A stack of SwiGLU layers with its own weights, as the study's.
struct Stack {
    x: Tensor<2>,
    layers: Vec<[Tensor<2>; 3]>,
}

impl Stack {
    fn new(gpu: &Gpu, [tokens, h, i, layers]: [usize; 4], compute: Compute) -> Self {
        let device = gpu.burn().autodiff();
        let random = |rows: usize, columns: usize, spread: f64| {
            let normal = Distribution::Normal(0.0, spread);
            Tensor::<2>::random([rows, columns], normal, (&device, dtype(compute))).require_grad()
        };
        let matrix = |rows: usize, columns: usize| random(rows, columns, 1.0 / (rows as f64).sqrt());
        let layers = (0..layers).map(|_| [matrix(h, i), matrix(h, i), matrix(i, h)]).collect();
        Self { x: random(tokens, h, 1.0), layers }
    }

    fn forward(&self, level: Level, math: Fp32Math) -> Tensor<2> {
        self.layers.iter().fold(self.x.clone(), |x, [w, v, u]| {
            swiglu(x, w.clone(), v.clone(), u.clone(), level, Operator::Custom, math)
        })
    }
}

/// The study's shapes: tokens, hidden size, intermediate size, layers.
const SHAPES: [(&str, [usize; 4]); 5] = [
    ("16x128 512 2048 2", [16 * 128, 512, 2048, 2]),
    ("32x128 512 2048 2", [32 * 128, 512, 2048, 2]),
    ("8x512 1024 4096 3", [8 * 512, 1024, 4096, 3]),
    ("16x512 1024 4096 3", [16 * 512, 1024, 4096, 3]),
    ("4x1024 4096 16384 5", [4 * 1024, 4096, 16384, 5]),
];

/// Forward and backward of each shape by device events, then one step under observation for the
/// peaks. The gradients live until the step ends, as in training.
fn shapes(gpu: &'static Gpu, asked: &[String]) {
    let only = |place: usize, value: &str| asked.get(place).is_none_or(|asked| asked == value);
    for compute in [Compute::Fp32, Compute::Tf32, Compute::Bf16] {
        for (number, (name, shape)) in SHAPES.into_iter().enumerate() {
            for level in Level::ALL {
                let chosen =
                    only(1, compute.name()) && only(2, &number.to_string()) && only(3, &level.to_string());
                if !chosen {
                    continue;
                }
                gpu.release_memory();
                let before = Usage::now(gpu);
                let stack = Stack::new(gpu, shape, compute);
                let math = compute.fp32_math();
                let (mut forward, mut backward, mut wall) = (Vec::new(), Vec::new(), Vec::new());
                for step in 0..12 {
                    let clock = Instant::now();
                    let start = Event::record(gpu);
                    let y = stack.forward(level, math);
                    let middle = Event::record(gpu);
                    let gradients = y.sum().backward();
                    let end = Event::record(gpu);
                    let times = (middle.seconds_since(&start), end.seconds_since(&middle));
                    drop(gradients);
                    if step >= 4 {
                        forward.push(times.0 * 1e3);
                        backward.push(times.1 * 1e3);
                        wall.push(clock.elapsed().as_secs_f64() * 1e3);
                    }
                }
                let reserved = Usage::now(gpu).reserved;
                let observation = PeakObservation::start(gpu);
                drop(stack.forward(level, math).sum().backward());
                let (live, _) = observation.peaks();
                drop(observation);
                println!(
                    "shape {name} {} level {level}: forward {:.3} ms, backward {:.3} ms, host {:.3} ms, live peak {:.3} GiB \
                     ({:.3} before), reserved {:.3} GiB",
                    compute.name(),
                    median(forward),
                    median(backward),
                    median(wall),
                    gib(live),
                    gib(before.live),
                    gib(reserved),
                );
            }
        }
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

fn memory_of_a_long_loop(gpu: &'static Gpu, checks: &mut Checks) {
    let stack = Stack::new(gpu, [2048, 512, 2048, 2], Compute::Bf16);
    let step = || drop(stack.forward(Level::Full, Fp32Math::Exact).sum().backward());
    (0..20).for_each(|_| step());
    gpu.synchronize();
    let early = Usage::now(gpu);
    (0..200).for_each(|_| step());
    gpu.synchronize();
    let late = Usage::now(gpu);
    let steady = late.live == early.live && late.reserved == early.reserved && late.driver == early.driver;
    checks.verdict("200 steps leave the memory as it was", steady, &format!("{early:?} then {late:?}"));
}
