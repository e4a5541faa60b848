//! Tensors with the values they hold, and how far a result is from the expected values.

use burn::tensor::{DType, Shape, TensorData, bf16, f16};
use burn_cubecl::CubeDevice;
use burn_cubecl::tensor::CubeTensor;

use crate::reference::random;

/// A tensor on the device and its values, as its type rounds them.
pub struct Known {
    pub tensor: CubeTensor,
    pub values: Vec<f64>,
}

fn device() -> CubeDevice {
    CubeDevice::cuda(0).expect("the device is open")
}

fn upload_bytes(bytes: &[u8], shape: &[usize], dtype: DType) -> CubeTensor {
    let (device, shape) = (device(), Shape::from(shape.to_vec()));
    let client = device.client();
    let handle = client.create_from_slice(bytes);
    CubeTensor::new_contiguous(client, device, shape, handle, dtype)
}

/// These values, rounded to `dtype`.
pub fn known(values: &[f64], shape: &[usize], dtype: DType) -> Known {
    let narrow: Vec<f32> = values.iter().map(|x| *x as f32).collect();
    let data = TensorData::new(narrow, shape.to_vec()).convert_dtype(dtype);
    let tensor = upload_bytes(data.as_bytes(), shape, dtype);
    Known { tensor, values: data.iter::<f64>().collect() }
}

/// Values of N(0, 1).
pub fn normal(shape: &[usize], dtype: DType, seed: u64) -> Known {
    let elements = shape.iter().product();
    let values: Vec<f64> = random([elements, 1], seed).iter::<f64>().collect();
    known(&values, shape, dtype)
}

pub fn integers(values: &[i32], shape: &[usize]) -> CubeTensor {
    upload_bytes(bytemuck::cast_slice(values), shape, DType::I32)
}

/// One value that a kernel reads on the device.
pub fn scalar(value: f64) -> CubeTensor {
    known(&[value], &[1], DType::F32).tensor
}

pub fn download(tensor: &CubeTensor) -> Vec<f64> {
    let bytes = tensor.client.read_one(tensor.handle.clone()).unwrap_or_else(|e| panic!("{e:?}"));
    let pairs = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let count = tensor.meta.num_elements();
    let values: Vec<f64> = match tensor.dtype {
        DType::BF16 => pairs.map(|bits| bf16::from_bits(bits).to_f64()).collect(),
        DType::F16 => pairs.map(|bits| f16::from_bits(bits).to_f64()).collect(),
        DType::F32 => {
            bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
        }
        other => panic!("no floats: {other:?}"),
    };
    values[..count].to_vec()
}

/// max |got − expected| / (|expected| + root mean square of expected); infinite for NaN.
pub fn distance(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let scale = (expected.iter().map(|x| x * x).sum::<f64>() / expected.len() as f64).sqrt();
    let scale = if scale == 0.0 { 1.0 } else { scale };
    got.iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs() / (b.abs() + scale))
        .fold(0.0, |worst, x| if x.is_nan() { f64::INFINITY } else { worst.max(x) })
}

/// The rounding of a result: half a unit in its last place, or room for sums in fp32.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 3.95e-3,
        DType::F16 => 4.95e-4,
        _ => 5e-6,
    }
}
