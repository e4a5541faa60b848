//! One operator moves a block, computes it, and in backward computes it again. The device waits for the copies, and the host
//! does not.

use burn::tensor::Tensor;

use super::Movement;
use crate::keys::Section;
use crate::keys::section::section;
use crate::ops::checkpoint::{differentiate, entrance};
use crate::ops::function::custom;
use crate::ops::name::OperatorName;
use crate::residence::engine::Pass;
use crate::residence::leaves::Leaves;
use crate::residence::offloaded::{Compute, Offloaded};

section! {
    /// One operator copies a block in, computes it and, in backward, computes it again; the device waits for copies, the host does not.
    #[derive(Copy, Default, Eq)]
    pub struct Function: Section::of("offload", "strategy", &["function"]) => {}
}

impl Movement for Function {}

/// Forward: block in, compute, block out. Backward: block in, compute again, differentiate, gradients out, block out. It
/// keeps only the block's input.
pub fn offloaded(blocks: &Offloaded, block: usize, x: Tensor<2>, compute: Compute) -> Tensor<2> {
    custom(OperatorName::Offload, [x.into_dispatch()], move |[x]| {
        let x = Tensor::<2>::from_dispatch(x);
        let y = blocks.through(block, Pass::Forward, x.clone(), &*compute);
        let input = blocks.engine().keep(block, x);
        let blocks = blocks.clone();
        let backward = move |gradient: Tensor<2>, _: [bool; 1]| {
            let leaves = Leaves::new(&blocks, block, Pass::Backward);
            let x = blocks.engine().restore(block, input).autodiff().require_grad();
            let y = compute(block, &leaves.source(), entrance(x.clone()));
            let mut found = differentiate(y, gradient);
            let dx = x.grad_remove(&mut found);
            leaves.end(&mut found);
            blocks.engine().release_input(block);
            [dx.map(Tensor::into_dispatch)]
        };
        (y, backward)
    })
}
