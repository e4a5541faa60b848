//! The mean squared difference with hand-written backward: d/dy = 2 (y − target) / n. One kernel each
//! way on CUDA, where Burn's own mean would try variants for seconds.

use burn::tensor::Tensor;

use super::backend::{cube, on_cuda, uncube};
use super::cost::{Cost, Moment, Setting};
use super::function::custom;
use super::kernels::sum::{mean_square_difference, mean_square_difference_backward};
use super::name::OperatorName;
use super::{narrow, wide};

/// Mean of (y − target)², [1] in fp32; y and target [tokens, hidden].
pub fn mean_square(y: Tensor<2>, target: Tensor<2>) -> Tensor<1> {
    custom(OperatorName::Loss, [y.into_dispatch()], |[y]| {
        let y = Tensor::<2>::from_dispatch(y);
        let on_cuda = on_cuda(&y);
        // The CPU no longer needs y: the difference takes its memory.
        let (loss, kept) = match on_cuda {
            true => (uncube(mean_square_difference(&cube(y.clone()), &cube(target.clone()))), y),
            false => {
                let difference = y - target.clone();
                (wide(difference.clone()).square().mean(), difference)
            }
        };
        (loss, move |g: Tensor<1>, _| {
            let dy: Tensor<2> = match on_cuda {
                true => uncube(mean_square_difference_backward(&cube(kept), &cube(target), &cube(g))),
                false => {
                    let dtype = kept.dtype();
                    let factor = 2.0 / kept.shape().num_elements() as f64;
                    narrow(wide(kept) * (wide(g) * factor).unsqueeze(), dtype)
                }
            };
            [Some(dy.into_dispatch())]
        })
    })
}

/// y [tokens, columns] is kept on CUDA, and its difference to the target in its place on the CPU.
pub fn cost(setting: &Setting, columns: u64) -> Cost {
    let y = setting.activation(columns);
    let wide = if setting.on_cuda() || setting.element() == 4 { 0 } else { setting.wide(columns) };
    let (forward, backward) = if setting.on_cuda() { (0, y) } else { (setting.wide(columns), y + wide) };
    let moments = Cost::new(Moment::workspace(forward), Moment::workspace(backward));
    Cost { input: y, holds_input: true, launches: [2, 1], ..moments }.named(OperatorName::Loss, setting)
}
