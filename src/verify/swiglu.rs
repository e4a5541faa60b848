//! The SwiGLU operator against y = (SiLU(xW) ⊙ xV)U and its gradients from the reference.

use burn::tensor::{Device, Tensor, TensorData};
use miette::{Result, miette};

use super::{Check, Golden, Kind, Options, Values, tolerance};
use crate::device::dtype;
use crate::ops::dense::{Arithmetic, WeightLayout};
use crate::ops::swiglu::swiglu;
use crate::ops::{Level, Operator};

/// The tensors a SwiGLU reference holds.
pub const NAMES: [&str; 10] = ["x", "W", "V", "U", "y", "grad_y", "dx", "dW", "dV", "dU"];

/// y, dx, dW, dV, dU at every asked level, and of the plain composition.
pub fn verify(golden: &Golden, options: &Options) -> Result<Vec<Check>> {
    let shapes = NAMES.map(|name| golden.get(name).shape.clone());
    let [x, w, v, u, ..] = &shapes;
    let consistent = w.len() == 2
        && u.len() == 2
        && v == w
        && x.last() == Some(&w[0])
        && u[0] == w[1]
        && u[1] == w[0]
        && [4, 5, 6].iter().all(|i| shapes[*i] == *x)
        && shapes[7..] == [w.clone(), v.clone(), u.clone()];
    if !consistent {
        return Err(miette!(
            help = "x is [..., hidden], W and V [hidden, intermediate], U [intermediate, hidden]",
            "the shapes of the reference do not belong to one SwiGLU: {shapes:?}"
        ));
    }
    let levels = options.level.map_or_else(|| Level::ALL.to_vec(), |level| vec![level]);
    let plain = ("plain".to_string(), Level::Keep, Operator::Plain);
    let variants =
        levels.into_iter().map(|level| (format!("level {level}"), level, Operator::Custom)).chain([plain]);
    let mut checks = Vec::new();
    for (label, level, operator) in variants {
        for (name, ours) in compute(golden, options, level, operator) {
            let kind = if name == "y" { Kind::Output } else { Kind::Gradient };
            let mut allowed = tolerance(kind, options.compute, options.device);
            if let Some(atol) = options.atol {
                (allowed.absolute, allowed.of_largest) = (atol, 0.0);
            }
            checks.push(Check::new(format!("{label}: {name}"), &ours, &golden.get(name).data, allowed));
        }
    }
    Ok(checks)
}

/// The five quantities as this machine computes them.
fn compute(
    golden: &Golden,
    options: &Options,
    level: Level,
    operator: Operator,
) -> Vec<(&'static str, Vec<f64>)> {
    let plain = options.device.burn();
    let device = plain.clone().autodiff();
    let load = |name: &str, device: &Device| {
        let Values { shape, data } = golden.get(name);
        let columns = shape[shape.len() - 1];
        let data = TensorData::new(data.clone(), [data.len() / columns, columns]);
        Tensor::<2>::from_data(data, (device, dtype(options.compute)))
    };
    let [x, w, v, u] = ["x", "W", "V", "U"].map(|name| load(name, &device).require_grad());
    let inputs = [x.clone(), w.clone(), v.clone(), u.clone()];
    let [x_in, w_in, v_in, u_in] = inputs;
    let arithmetic = Arithmetic::of(options.compute);
    let y = swiglu(x_in, w_in, v_in, u_in, WeightLayout::InOut, level, operator, arithmetic);
    let output = values(y.clone().inner());
    // d(y ⊙ grad_y)/dy = grad_y: the sum sends exactly the reference's gradient into y.
    let mut gradients = (y * load("grad_y", &device)).sum().backward();
    let mut quantities = vec![("y", output)];
    for (name, tensor) in [("dx", x), ("dW", w), ("dV", v), ("dU", u)] {
        let gradient = tensor.grad_remove(&mut gradients).expect("all four inputs require gradients");
        quantities.push((name, values(gradient)));
    }
    quantities
}

fn values(tensor: Tensor<2>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
