//! SwiGLU with accumulation: micro-batches add up to the step that they are parts of.

use burn::tensor::Tensor;

use super::*;
use crate::model::swiglu::SwigluStack;
use crate::model::{Network, Parts};
use crate::ops::testing::assert_close;
use crate::optim::GradientSet;
use crate::parallel::Groups;
use crate::params::named;
use crate::recipe::{Recipe, Source};
use crate::train::build::Build;

const RECIPE: &str = r#"title = "t"
device = "cpu"
[model]
kind = "swiglu"
hidden_size = 7
intermediate_size = 13
num_hidden_layers = 2
[train]
batch_size = 3
seq_len = 5
accumulation_steps = 4
"#;

fn cell() -> Cell {
    let source = Source { path: "r.toml".into(), text: RECIPE.into() };
    Recipe::parse(&source).expect("a recipe").cells.remove(0)
}

/// Loss and gradients of four micro-batches, added up, are those of one batch of all their tokens.
#[test]
fn micro_batches_equal_one_batch() {
    let cell = cell();
    let drawing = drawing();
    let network = SwigluStack::build(&cell, &Groups::alone(), Parts::Whole);
    drop(drawing);
    let parts = SwigluStack::feed(&cell, Share::WHOLE).next();
    assert_eq!(parts.len(), 4);
    let join = |of: fn(&Regression) -> &Tensor<2>| Tensor::cat(parts.iter().map(of).cloned().collect(), 0);
    let whole = Regression { x: join(|p| &p.x), target: join(|p| &p.target), part: 1.0 };
    assert_eq!(whole.x.dims(), [60, 7]);

    let of = |batch: &Regression| {
        let loss = network.loss(batch);
        (
            f64::from(loss.clone().into_scalar::<f32>()),
            named::gradients(&network, network.parameters(), &GradientSet::of(&network, loss.backward())),
        )
    };
    let (expected_loss, expected) = of(&whole);
    let losses: Vec<f64> = parts.iter().map(|part| of(part).0).collect();
    assert!(losses.windows(2).all(|pair| pair[0] != pair[1]), "problems of their own: {losses:?}");
    assert!((losses.iter().sum::<f64>() - expected_loss).abs() < 1e-6 * expected_loss);
    for (i, (_, expected)) in expected.iter().enumerate() {
        let mut sum = vec![0.0; expected.len()];
        for part in &parts {
            sum.iter_mut().zip(&of(part).1[i].1).for_each(|(sum, value)| *sum += value);
        }
        assert_close(&sum, expected, 1e-5);
    }
}

/// Cells that divide a step into other micro-batches train on the same rows.
#[test]
fn a_step_is_the_same_however_it_is_divided() {
    let rows = |batch_size, accumulation_steps| -> Vec<f32> {
        let mut cell = cell();
        (cell.train.batch_size, cell.train.accumulation_steps) = (batch_size, accumulation_steps);
        let crate::model::Model::Swiglu(config) = &cell.model else { panic!("a SwiGLU network") };
        let problems = Problems::new(config, &cell, Share::WHOLE);
        let _drawing = drawing();
        cell.device_id().burn().seed(7);
        let parts: Vec<Regression> = problems.draw().collect();
        assert_eq!(parts.len(), accumulation_steps);
        let join =
            |of: fn(&Regression) -> &Tensor<2>| Tensor::cat(parts.iter().map(of).cloned().collect(), 0);
        Tensor::cat(vec![join(|p| &p.x), join(|p| &p.target)], 0).into_data().try_to_vec().unwrap()
    };
    let whole = rows(12, 1);
    assert_eq!(whole.len(), 2 * 60 * 7);
    assert!(rows(3, 4) == whole && rows(4, 3) == whole);
}

#[test]
fn every_step_has_the_same_problems() {
    let mut feed = SwigluStack::feed(&cell(), Share::WHOLE);
    let mut values = || feed.next().into_iter().map(|p| p.x.into_data().try_to_vec::<f32>().unwrap());
    assert!(values().eq(values().collect::<Vec<_>>()));
}

/// Three products of 15 tokens, 7 x 13, in two layers, for each of four micro-batches; backward twice that.
#[test]
fn operations_are_those_of_all_micro_batches() {
    let flops = cell().flops();
    let forward = f64::from(2 * 3 * 15 * 7 * 13 * 2 * 4);
    assert_eq!((flops.forward, flops.backward), (forward, 2.0 * forward));
}
