//! Reference values: `golden.safetensors`.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{DType, TensorData};
use miette::{Result, miette};
use safetensors::{Dtype, SafeTensors};

use crate::params::peft;
use crate::params::weights::inner;

pub const FILE: &str = "golden.safetensors";

/// transformers' module of the head.
const MODULE: &str = "lm_head";

/// A reference tensor in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceTensor {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
    /// What it is stored in.
    pub dtype: DType,
}

/// The tensors of a reference folder by name.
#[derive(Clone, Debug)]
pub struct Golden {
    pub tensors: BTreeMap<String, ReferenceTensor>,
    /// Names and types of those that cannot be read.
    pub unread: Vec<(String, Dtype)>,
}

impl ReferenceTensor {
    /// What storing each element may have changed, where the type is coarser than fp32: half of its last bit.
    pub fn rounding(&self) -> Vec<f64> {
        let (bits, least) = match self.dtype {
            DType::BF16 => (-8, 0.0),
            // Below its smallest normal number fp16 has a fixed step of 2^-24.
            DType::F16 => (-11, 2f64.powi(-25)),
            _ => return vec![0.0; self.data.len()],
        };
        self.data.iter().map(|value| (value.abs() * 2f64.powi(bits)).max(least)).collect()
    }
}

impl Golden {
    /// Reads `folder/golden.safetensors`.
    ///
    /// # Errors
    /// A missing or damaged file, named.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let bytes = std::fs::read(&path).map_err(|e| {
            miette!(
                help = "name a folder that holds golden.safetensors, or golden.json of a gradient scaler",
                "cannot read {}: {e}",
                path.display()
            )
        })?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|e| miette!("{} is not a safetensors file: {e}", path.display()))?;
        let (mut tensors, mut unread) = (BTreeMap::new(), Vec::new());
        let is_whole = file.names().into_iter().any(|name| inner::own_name(name).is_some());
        for (name, view) in file.iter() {
            let own = inner::own_name(name);
            // Of another part than the text part.
            if is_whole && own.is_none() && name.contains(".model.") {
                continue;
            }
            let Some(dtype) = readable(view.dtype()) else {
                unread.push((name.to_string(), view.dtype()));
                continue;
            };
            let shape = view.shape().to_vec();
            // Token ids are exact in f64.
            let data = TensorData::from_bytes_vec(view.data().to_vec(), shape.clone(), dtype);
            let data = data.iter::<f64>().collect();
            // Of a network that PEFT has wrapped: under the names of ours.
            let name = peft::plain_name(own.as_deref().unwrap_or(name));
            tensors.insert(name, ReferenceTensor { shape, data, dtype });
        }
        unread.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Self { tensors, unread })
    }

    /// The same with the parameters of the head under the name that it has in the model's files: the module of
    /// transformers' class is called `lm_head` also where the files have another name.
    #[must_use]
    pub fn with_head(&self, head: &str) -> Self {
        let renamed = |name: &String| name.replace(&format!(".{MODULE}."), &format!(".{head}."));
        let tensors = self.tensors.iter().map(|(name, values)| (renamed(name), values.clone())).collect();
        Self { tensors, unread: self.unread.clone() }
    }

    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.tensors.contains_key(*name))
    }

    /// A tensor, where there is one of this name.
    pub fn find(&self, name: &str) -> Option<&ReferenceTensor> {
        self.tensors.get(name)
    }

    /// Names that begin with `prefix` and a dot, without these.
    pub fn under<'s>(&'s self, prefix: &str) -> Vec<(&'s str, &'s ReferenceTensor)> {
        let rest = |name: &'s String| name.strip_prefix(prefix)?.strip_prefix('.');
        self.tensors.iter().filter_map(|(name, values)| Some((rest(name)?, values))).collect()
    }

    /// # Panics
    /// When there is no such tensor; ask [`Golden::has`] first.
    pub fn get(&self, name: &str) -> &ReferenceTensor {
        &self.tensors[name]
    }
}

fn readable(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        _ => return None,
    })
}
