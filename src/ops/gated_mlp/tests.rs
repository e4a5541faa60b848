//! The operator against plain autodiff, an independent float64 computation and finite differences.

use burn::tensor::{DType, Device, Distribution, Tensor};

use super::*;
use crate::common::Compute;
use crate::device::drawing;
use crate::ops::activation::formula;
use crate::ops::product::Fp32Math;
use crate::verify::Kind;
use crate::verify::{Check, Tolerance, tolerance};

/// In the dtype of x.
fn run(inputs: [Tensor<2>; 4], activation: Activation, level: Level, operator: Operator) -> Tensor<2> {
    let [x, weights @ ..] = inputs;
    let arithmetic = Arithmetic { dtype: x.dtype(), math: Fp32Math::Exact };
    GatedMlp { activation, ..GatedMlp::swiglu(WeightLayout::InOut, level, arithmetic) }
        .forward(x, weights, operator)
}

/// x, W, V, U and the gradient of y.
struct Case {
    activation: Activation,
    inputs: [Tensor<2>; 4],
    grad_y: Tensor<2>,
}

impl Case {
    /// Tokens, hidden and intermediate size; values drawn in `dtype`.
    fn random([n, h, i]: [usize; 3], dtype: DType) -> Self {
        let device = Device::flex();
        let _drawing = drawing();
        let draw = |rows: usize, columns: usize, deviation: f64| {
            Tensor::<2>::random([rows, columns], Distribution::Normal(0.0, deviation), (&device, dtype))
        };
        let by = |rows: usize| 1.0 / (rows as f64).sqrt();
        Self {
            activation: Activation::Silu,
            inputs: [draw(n, h, 1.0), draw(h, i, by(h)), draw(h, i, by(h)), draw(i, h, by(i))],
            grad_y: draw(n, h, 1.0),
        }
    }

    fn with(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// The same values in another dtype.
    fn cast(&self, dtype: DType) -> Self {
        let cast = |t: &Tensor<2>| {
            Tensor::<2>::from_data(t.to_data().convert_dtype(dtype), (&Device::flex(), dtype))
        };
        Self {
            activation: self.activation,
            inputs: self.inputs.each_ref().map(cast),
            grad_y: cast(&self.grad_y),
        }
    }

    /// y, dx, dW, dV, dU.
    fn run(&self, level: Level, operator: Operator) -> Vec<Vec<f64>> {
        let inputs = self.inputs.each_ref().map(|t| t.clone().autodiff().require_grad());
        let y = run(inputs.clone(), self.activation, level, operator);
        let mut out = vec![values(y.clone().inner())];
        let grad_y = self.grad_y.clone().autodiff();
        let mut gradients = (y * grad_y).sum().backward();
        for t in inputs {
            out.push(values(t.grad_remove(&mut gradients).expect("every input requires a gradient")));
        }
        out
    }
}

fn values(tensor: Tensor<2>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

const NAMES: [&str; 5] = ["y", "dx", "dW", "dV", "dU"];

fn checks(ours: &[Vec<f64>], reference: &[Vec<f64>], allowed: impl Fn(Kind) -> Tolerance) -> Vec<Check> {
    let kinds = |name: &str| if name == "y" { Kind::Output } else { Kind::Gradient };
    NAMES
        .iter()
        .zip(ours.iter().zip(reference))
        .map(|(name, (a, b))| Check::new(name.to_string(), a, b, allowed(kinds(name))))
        .collect()
}

fn assert_all_pass(checks: &[Check]) {
    assert!(checks.iter().all(Check::passes), "{checks:#?}");
}

/// A gated MLP and its gradients in f64 by loops over the definition, no tensor library involved.
fn by_definition(case: &Case, [n, h, i]: [usize; 3]) -> Vec<Vec<f64>> {
    let [x, w, v, u] = case.inputs.each_ref().map(|t| values(t.clone()));
    let g = values(case.grad_y.clone());
    let (mut y, mut dx) = (vec![0.0; n * h], vec![0.0; n * h]);
    let (mut dw, mut dv, mut du) = (vec![0.0; h * i], vec![0.0; h * i], vec![0.0; i * h]);
    for t in 0..n {
        for j in 0..i {
            let a: f64 = (0..h).map(|k| x[t * h + k] * w[k * i + j]).sum();
            let b: f64 = (0..h).map(|k| x[t * h + k] * v[k * i + j]).sum();
            let (s, slope) = formula(case.activation, a);
            let dh: f64 = (0..h).map(|k| g[t * h + k] * u[j * h + k]).sum();
            let db = dh * s;
            let da = dh * b * slope;
            for k in 0..h {
                y[t * h + k] += s * b * u[j * h + k];
                du[j * h + k] += s * b * g[t * h + k];
                dw[k * i + j] += x[t * h + k] * da;
                dv[k * i + j] += x[t * h + k] * db;
                dx[t * h + k] += da * w[k * i + j] + db * v[k * i + j];
            }
        }
    }
    vec![y, dx, dw, dv, du]
}

/// Level 1 makes a and b again by the same products, and a forward that no gradient follows keeps nothing.
#[test]
fn levels_and_a_forward_alone_give_the_same_bits() {
    let types = [DType::F32, DType::F16, DType::BF16];
    for (dtype, activation) in
        types.into_iter().flat_map(|t| Activation::ALL.map(|activation| (t, activation)))
    {
        let case = Case::random([37, 24, 56], DType::F32).cast(dtype).with(activation);
        let levels = [Level::Keep, Level::Elementwise, Level::Full];
        let [first, others @ ..] = levels.map(|level| case.run(level, Operator::Custom));
        for other in others {
            assert_eq!(first, other, "{dtype:?}");
        }
        for level in levels {
            let y = run(case.inputs.clone(), case.activation, level, Operator::Custom);
            assert_eq!(values(y), first[0], "{level:?} {dtype:?}");
        }
    }
}

#[test]
fn every_level_equals_the_definition_in_f64() {
    let shape = [7, 12, 20];
    for activation in Activation::ALL {
        let case = Case::random(shape, DType::F64).with(activation);
        let reference = by_definition(&case, shape);
        let allowed = |_| Tolerance { absolute: 1e-12, of_largest: 0.0, relative: 1e-13 };
        for level in Level::ALL {
            assert_all_pass(&checks(&case.run(level, Operator::Custom), &reference, allowed));
        }
        assert_all_pass(&checks(&case.run(Level::Keep, Operator::Plain), &reference, allowed));
    }
}

#[test]
fn every_precision_is_within_its_tolerance_of_f64() {
    let types = [(Compute::Fp32, DType::F32), (Compute::Fp16, DType::F16), (Compute::Bf16, DType::BF16)];
    for ((compute, dtype), activation) in
        types.into_iter().flat_map(|t| Activation::ALL.map(|activation| (t, activation)))
    {
        // Drawn in the low precision, so that the reference starts from the same values.
        let case = Case::random([64, 96, 160], dtype).with(activation);
        let reference = case.cast(DType::F64).run(Level::Keep, Operator::Plain);
        for level in Level::ALL {
            let ours = case.run(level, Operator::Custom);
            assert_all_pass(&checks(&ours, &reference, |kind| {
                tolerance(kind, compute, crate::common::DeviceId::Cpu)
            }));
        }
    }
}

/// (batch, seq, hidden, intermediate) = (4, 256, 768, 2304).
#[test]
fn a_large_shape_equals_plain_autodiff_in_f64() {
    let case = Case::random([4 * 256, 768, 2304], DType::F32);
    let reference = case.cast(DType::F64).run(Level::Keep, Operator::Plain);
    for level in Level::ALL {
        let ours = case.run(level, Operator::Custom);
        assert_all_pass(&checks(&ours, &reference, |kind| {
            tolerance(kind, Compute::Fp32, crate::common::DeviceId::Cpu)
        }));
    }
}

/// The comparison that the other tests use must notice a wrong gradient.
#[test]
fn a_zeroed_gradient_is_noticed() {
    let case = Case::random([8, 16, 24], DType::F32);
    let reference = case.run(Level::Keep, Operator::Plain);
    for wrong in 1..NAMES.len() {
        let mut ours = case.run(Level::Full, Operator::Custom);
        ours[wrong].fill(0.0);
        let failed: Vec<String> =
            checks(&ours, &reference, |kind| tolerance(kind, Compute::Fp32, crate::common::DeviceId::Cpu))
                .into_iter()
                .filter(|check| !check.passes())
                .map(|check| check.name)
                .collect();
        assert_eq!(failed, [NAMES[wrong]]);
    }
}

/// (L(p + ε) − L(p − ε)) / 2ε of L = Σ y ⊙ g, for single elements of each input, in f64.
#[test]
fn gradients_equal_finite_differences() {
    let case = Case::random([5, 6, 9], DType::F64);
    let gradients = case.run(Level::Full, Operator::Custom);
    let epsilon = 1e-6;
    for input in 0..4 {
        let shape = case.inputs[input].shape();
        let size = shape.num_elements();
        for element in [0, size / 3, size - 1] {
            let loss = |sign: f64| {
                let mut shifted = values(case.inputs[input].clone());
                shifted[element] += sign * epsilon;
                let data = burn::tensor::TensorData::new(shifted, shape.clone());
                let mut inputs = case.inputs.clone();
                inputs[input] = Tensor::from_data(data, (&Device::flex(), DType::F64));
                let y = run(inputs, case.activation, Level::Full, Operator::Custom);
                (y * case.grad_y.clone()).sum().into_scalar::<f64>()
            };
            let difference = (loss(1.0) - loss(-1.0)) / (2.0 * epsilon);
            let gradient = gradients[input + 1][element];
            assert!(
                (difference - gradient).abs() < 1e-7 * gradient.abs().max(1.0),
                "{}[{element}]: finite difference {difference}, gradient {gradient}",
                NAMES[input + 1]
            );
        }
    }
}

/// A frozen input is a constant: no gradient for it, the same ones for the others.
#[test]
fn frozen_weights_leave_the_other_gradients_unchanged() {
    let case = Case::random([4, 8, 12], DType::F32);
    let all = case.run(Level::Full, Operator::Custom);
    let [x, w, v, u] = case.inputs.clone();
    let x = x.autodiff().require_grad();
    let y = run([x.clone(), w, v, u], case.activation, Level::Full, Operator::Custom);
    let mut gradients = (y * case.grad_y.clone().autodiff()).sum().backward();
    let dx = values(x.grad_remove(&mut gradients).expect("x requires a gradient"));
    assert_eq!(dx, all[1]);
}

#[test]
#[should_panic(expected = "V must have the dtype of W")]
fn mixed_dtypes_are_refused() {
    let [x, w, v, u] = Case::random([2, 4, 6], DType::F32).inputs;
    let w = w.cast(burn::tensor::FloatDType::F16);
    run([x, w, v, u], Activation::Silu, Level::Keep, Operator::Custom);
}
