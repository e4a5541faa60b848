//! Batches on their way to the device.

use burn::tensor::{DType, Tensor};
use runner::common::DeviceId;

use crate::on_gpu;

/// Arrays of unequal length arrive whole, also when many uploads reuse the buffers while kernels run.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn staging() {
    on_gpu(|gpu, checks| {
        let device = gpu.burn();
        let mut staging = DeviceId::Cuda(0).staging(true);
        let busy = Tensor::<2>::ones([4096, 4096], (&device, DType::F32));
        let mut uploads = Vec::new();
        for step in 0..20i32 {
            let arrays: Vec<Vec<i32>> =
                [1, 127, 128, 4097].map(|n| (0..n).map(|i| step * 10_000 + i).collect()).to_vec();
            uploads.push((staging.upload(arrays.clone()), arrays));
            drop(busy.clone().matmul(busy.clone()));
        }
        let mut wrong = 0;
        for (tensors, arrays) in uploads {
            for (tensor, array) in tensors.into_iter().zip(arrays) {
                let got: Vec<i32> = tensor.into_data().iter::<i32>().collect();
                wrong += usize::from(got != array);
            }
        }
        checks.verdict("pinned staging of 20 batches", wrong == 0, &format!("{wrong} of 80 arrays differ"));
    });
}
