//! Gradients of [`custom`] operators through Burn's graph.

use super::*;
use burn::tensor::Device;

/// y = a · b element by element.
fn product(a: Tensor<1>, b: Tensor<1>) -> Tensor<1> {
    custom(OperatorName::Linear, [a.into_dispatch(), b.into_dispatch()], |[a, b]| {
        let (a, b) = (Tensor::<1>::from_dispatch(a), Tensor::<1>::from_dispatch(b));
        (a.clone() * b.clone(), move |g: Tensor<1>, [want_a, want_b]| {
            [want_a.then(|| (g.clone() * b).into_dispatch()), want_b.then(|| (g * a).into_dispatch())]
        })
    })
}

fn vector(values: [f32; 2]) -> Tensor<1> {
    Tensor::from_floats(values, &Device::flex())
}

fn list(tensor: Tensor<1>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

#[test]
fn gradients_reach_every_tracked_input() {
    let a = vector([2.0, 3.0]).autodiff().require_grad();
    let b = vector([5.0, 7.0]).autodiff().require_grad();
    // a is used twice: its gradients add up.
    let y = product(product(a.clone(), b.clone()), a.clone());
    let mut gradients = y.sum().backward();
    assert_eq!(list(a.grad_remove(&mut gradients).unwrap()), [20.0, 42.0]);
    assert_eq!(list(b.grad_remove(&mut gradients).unwrap()), [4.0, 9.0]);
}

/// y = a · b, whose backward adds to what a has already.
fn adding_product(a: Tensor<1>, b: Tensor<1>, found: Arc<Mutex<Vec<bool>>>) -> Tensor<1> {
    custom_adding(OperatorName::Linear, [a.into_dispatch(), b.into_dispatch()], |[a, b], tracked| {
        assert_eq!(tracked, [true, false]);
        let (a, b) = (Tensor::<1>::from_dispatch(a), Tensor::<1>::from_dispatch(b));
        (a * b.clone(), move |g: Tensor<1>, _, earlier: &mut Earlier<'_>| {
            let before = earlier(0).map(Tensor::<1>::from_dispatch);
            found.lock().unwrap().push(before.is_some());
            let own = g * b;
            [Some(before.map_or(own.clone(), |before| before + own).into_dispatch()), None]
        })
    })
}

#[test]
fn an_operator_adds_to_the_gradient_that_its_input_has() {
    let leaf = vector([2.0, 3.0]).autodiff().require_grad();
    let found = Arc::new(Mutex::new(Vec::new()));
    let times = |x: Tensor<1>, by| adding_product(x, vector([by, by]), found.clone());
    // Three results of a, which is no leaf; the last one's backward comes first.
    let a = product(leaf.clone(), vector([1.0, 10.0]));
    let y = times(a.clone(), 1.0) + times(a.clone(), 2.0) + a.clone() * 4.0 + times(a, 8.0);
    let mut gradients = y.sum().backward();
    assert_eq!(list(leaf.grad_remove(&mut gradients).unwrap()), [15.0, 150.0]);
    assert_eq!(found.lock().unwrap().iter().filter(|found| **found).count(), 2);
    // A leaf's gradient stays where it is.
    found.lock().unwrap().clear();
    let y = times(leaf.clone(), 1.0) + times(leaf.clone(), 2.0);
    assert_eq!(list(leaf.grad(&y.sum().backward()).unwrap()), [3.0, 3.0]);
    assert_eq!(*found.lock().unwrap(), [false, false]);
}

#[test]
fn a_constant_takes_part_without_a_gradient() {
    let a = vector([2.0, 3.0]).autodiff().require_grad();
    let y = product(a.clone(), vector([5.0, 7.0]));
    assert_eq!(list(a.grad(&y.sum().backward()).unwrap()), [5.0, 7.0]);
    assert_eq!(list(product(vector([1.0, 2.0]), vector([3.0, 4.0]))), [3.0, 8.0]);
}
