//! The general checkpoint operator between two operators that only move a block.

use std::sync::{Arc, Mutex};

use burn::backend::DispatchTensor;
use burn::tensor::Tensor;

use super::Movement;
use crate::keys::Section;
use crate::keys::section::section;
use crate::ops::checkpoint::checkpoint;
use crate::ops::function::custom;
use crate::ops::name::OperatorName;
use crate::residence::engine::Pass;
use crate::residence::leaves::Leaves;
use crate::residence::offloaded::{Compute, Offloaded};

section! {
    /// As naive, with the copies and the general checkpoint as separate operators.
    #[derive(Copy, Default, Eq)]
    pub struct Checkpointed: Section::of("offload", "strategy", &["checkpointed"]) => {}
}

impl Movement for Checkpointed {
    fn host_waits(&self) -> bool {
        true
    }

    fn input_stays(&self) -> Option<&'static str> {
        Some("the general checkpoint operator keeps the input of a block itself")
    }

    /// In forward the first operator brings the block in and the last takes it out. In backward the last brings it in, and the
    /// first takes its gradients and the block out.
    fn forward(&self, blocks: &Offloaded, block: usize, x: Tensor<2>, compute: Compute) -> Tensor<2> {
        // From the move in, forward or backward, to the computation.
        let parameters: Shared<Vec<DispatchTensor>> = Arc::default();
        let leaves: Shared<Option<Leaves>> = Arc::default();
        // From the computation's backward to the move out.
        let gradients: Shared<Vec<DispatchTensor>> = Arc::default();

        let (inside, found, outer) = (parameters.clone(), gradients.clone(), blocks.clone());
        let x = moving(
            x,
            || put(&inside, blocks.engine().enter(block, Pass::Forward)),
            move || {
                let mut engine = outer.engine();
                engine.take_gradients(block, take(&found));
                engine.leave(block);
            },
        );
        let (again, inside, outer) = (compute.clone(), leaves.clone(), blocks.clone());
        let y = checkpoint(
            x,
            move |x| compute(block, &outer.source(block, &take(&parameters)), x),
            move |x| {
                let leaves = take(&inside).expect("the block has come in");
                (again(block, &leaves.source(), x), leaves)
            },
            move |leaves, found| put(&gradients, leaves.gradients(found)),
        );
        let outer = blocks.clone();
        let enter = move || put(&leaves, Some(Leaves::new(&outer, block, Pass::Backward)));
        moving(y, || blocks.engine().leave(block), enter)
    }
}

type Shared<T> = Arc<Mutex<T>>;

fn take<T: Default>(from: &Mutex<T>) -> T {
    std::mem::take(&mut *from.lock().expect("no panic"))
}

fn put<T>(to: &Mutex<T>, what: T) {
    *to.lock().expect("no panic") = what;
}

/// The identity, with an action in forward and one in backward.
fn moving(x: Tensor<2>, forward: impl FnOnce(), backward: impl FnOnce() + Send + 'static) -> Tensor<2> {
    custom(OperatorName::Offload, [x.into_dispatch()], |[x]| {
        forward();
        let back = move |gradient: Tensor<2>, _: [bool; 1]| {
            backward();
            [Some(gradient.into_dispatch())]
        };
        (Tensor::<2>::from_dispatch(x), back)
    })
}
