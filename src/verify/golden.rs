//! Reference values: `golden.safetensors`.

use std::collections::BTreeMap;
use std::path::Path;

use miette::{Result, miette};
use safetensors::{Dtype, SafeTensors};

/// A reference tensor in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

/// The tensors of a reference folder by name.
#[derive(Clone, Debug)]
pub struct Golden {
    tensors: BTreeMap<String, Values>,
}

impl Golden {
    /// Reads `folder/golden.safetensors`.
    ///
    /// # Errors
    /// A missing, damaged or unsupported file, named.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join("golden.safetensors");
        let bytes = std::fs::read(&path).map_err(|e| {
            miette!(
                help = "name a folder that holds golden.safetensors",
                "cannot read {}: {e}",
                path.display()
            )
        })?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|e| miette!("{} is not a safetensors file: {e}", path.display()))?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.iter() {
            // Token ids are exact in f64.
            let data = match view.dtype() {
                Dtype::F32 => {
                    view.data().chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(fixed(b)))).collect()
                }
                Dtype::F64 => view.data().chunks_exact(8).map(|b| f64::from_le_bytes(fixed(b))).collect(),
                Dtype::I64 => {
                    view.data().chunks_exact(8).map(|b| i64::from_le_bytes(fixed(b)) as f64).collect()
                }
                _ => continue,
            };
            tensors.insert(name.to_string(), Values { shape: view.shape().to_vec(), data });
        }
        Ok(Self { tensors })
    }

    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.tensors.contains_key(*name))
    }

    /// A tensor's elements, where there is one of this name.
    pub fn find(&self, name: &str) -> Option<&[f64]> {
        self.tensors.get(name).map(|values| values.data.as_slice())
    }

    pub fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    /// # Panics
    /// When there is no such tensor; ask [`Golden::has`] first.
    pub fn get(&self, name: &str) -> &Values {
        &self.tensors[name]
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("chunks_exact gives chunks of this size")
}
