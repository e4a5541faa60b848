//! The SwiGLU operator against y = (SiLU(xW) ⊙ xV)U and its gradients from the reference.

use burn::tensor::{Device, Tensor, TensorData};
use miette::{Result, miette};

use super::check::Comparison;
use super::settings::{Variant, variants};
use super::{Check, Golden, Kind, Options, ReferenceTensor};
use crate::device::dtype;
use crate::ops::checkpoint::differentiate;
use crate::ops::dense::{Arithmetic, WeightLayout};
use crate::ops::gated_mlp::GatedMlp;
use crate::params::named::wide;
use crate::recipe::Cell;

/// The tensors a SwiGLU reference holds.
pub const NAMES: [&str; 10] = ["x", "W", "V", "U", "y", "grad_y", "dx", "dW", "dV", "dU"];

const VERIFIED: [&str; 4] = ["device", "precision.compute", "checkpoint.level", "ops.swiglu"];

/// y, dx, dW, dV, dU at every level and of the plain composition, or of those that are set.
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
    let tokens: usize = x[..x.len() - 1].iter().product();
    let mut recipe = format!(
        "title = \"SwiGLU\"\n[model]\nkind = \"swiglu\"\nhidden_size = {}\nintermediate_size = {}\n\
         num_hidden_layers = 1\n[train]\nbatch_size = 1\nseq_len = {tokens}\n",
        w[0], w[1],
    );
    if !options.settings.iter().any(|s| s.concerns("checkpoint.level") || s.concerns("ops.swiglu")) {
        recipe += "[[grid]]\n\"checkpoint.level\" = [0, 0.5, 1]\n[[grid]]\n\"ops.swiglu\" = \"plain\"\n";
    }
    let mut checks = Vec::new();
    for Variant { label, cell } in variants(recipe, &VERIFIED, &options.settings)? {
        let comparison = Comparison::new(&cell, options.atol);
        for (name, ours) in compute(golden, &cell) {
            let kind = if name == "y" { Kind::Output } else { Kind::Gradient };
            checks.push(comparison.check(name, kind, &ours, golden.get(name)).labelled(&label));
        }
    }
    Ok(checks)
}

/// The five quantities as this machine computes them.
fn compute(golden: &Golden, cell: &Cell) -> Vec<(&'static str, Vec<f64>)> {
    let plain = cell.device_id().burn();
    let device = plain.clone().autodiff();
    let compute = cell.precision.compute;
    let load = |name: &str, device: &Device| {
        let ReferenceTensor { shape, data, .. } = golden.get(name);
        let columns = shape[shape.len() - 1];
        let data = TensorData::new(data.clone(), [data.len() / columns, columns]);
        Tensor::<2>::from_data(data, (device, dtype(compute)))
    };
    let [x, w, v, u] = ["x", "W", "V", "U"].map(|name| load(name, &device).require_grad());
    let inputs = [x.clone(), w.clone(), v.clone(), u.clone()];
    let [x_in, weights @ ..] = inputs;
    let mlp = GatedMlp::swiglu(WeightLayout::InOut, cell.checkpoint.level, Arithmetic::of(compute));
    let y = mlp.forward(x_in, weights, cell.ops.swiglu);
    let output = values(y.clone().inner());
    let mut gradients = differentiate(y, load("grad_y", &plain));
    let mut quantities = vec![("y", output)];
    for (name, tensor) in [("dx", x), ("dW", w), ("dV", v), ("dU", u)] {
        let gradient = tensor.grad_remove(&mut gradients).expect("all four inputs require gradients");
        quantities.push((name, values(gradient)));
    }
    quantities
}

fn values(tensor: Tensor<2>) -> Vec<f64> {
    wide(tensor.into_data())
}
