//! [`precisions`]: the number types of the ways to train a cell. Training in fp16 has a gradient scaler, unless the recipe itself
//! has none.

use crate::common::Compute;
use crate::device::Target;
use crate::precision::{DynamicGradScaler, Precision, ScalerConfig};
use crate::recipe::Cell;

/// Those that the device has, the cell's own first. Weights that are stored in 16 bits stay so, unless the device lacks their
/// type.
///
/// * products in bf16 with weights in fp32;
/// * on a device without bf16 the same in fp16, with a dynamic scale of the loss where there are gradients;
/// * of an fp16 cell without a scaler the same with one;
/// * fp32, if the device lacks the cell's own type.
pub fn precisions(cell: &Cell, target: &Target, keep: bool) -> Vec<Precision> {
    let own = cell.precision;
    if keep {
        return vec![own];
    }
    let is_there =
        |precision: &Precision| Cell { precision: *precision, ..cell.clone() }.is_permitted(target);
    let lacks_own = !is_there(&own);
    let mixed = |compute, scaler| Precision { compute, autocast: true, scaler };
    let [bf16, fp16] = [mixed(Compute::Bf16, None), mixed(Compute::Fp16, scaler(cell))];
    let mut all = vec![own];
    if own.stored_bytes() == 4 || lacks_own {
        let is_bf16 = own.compute == Compute::Bf16 && !lacks_own;
        all.extend((!is_bf16).then_some(bf16));
        all.extend((!is_there(&bf16)).then_some(fp16));
    }
    if own.compute == Compute::Fp16 && own.scaler.is_none() {
        all.push(Precision { scaler: scaler(cell), ..own });
    }
    all.extend(lacks_own.then(Precision::default));
    let mut distinct: Vec<Precision> = Vec::new();
    for precision in all.into_iter().filter(is_there) {
        if !distinct.contains(&precision) {
            distinct.push(precision);
        }
    }
    distinct
}

/// Whether small gradients of the cell vanish in fp16.
pub fn is_unscaled(cell: &Cell) -> bool {
    let Precision { compute, scaler, .. } = cell.precision;
    cell.train.mode.trains() && compute == Compute::Fp16 && scaler.is_none()
}

/// A forward alone has no gradients to scale.
fn scaler(cell: &Cell) -> Option<ScalerConfig> {
    cell.train.mode.trains().then(|| ScalerConfig::Dynamic(DynamicGradScaler::SECTION.defaults()))
}
