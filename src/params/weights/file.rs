//! One safetensors file, mapped into memory, whose header was checked against its bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use super::WeightsError;

/// A mapped file and its tensors by name.
#[derive(Debug)]
pub struct TensorFile {
    pub path: PathBuf,
    pub tensors: BTreeMap<String, Entry>,
    map: Mmap,
}

/// Where a tensor lies in its file.
#[derive(Debug)]
pub struct Entry {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    range: Range<usize>,
}

impl TensorFile {
    /// Maps the file and reads its header.
    ///
    /// # Errors
    /// An unreadable file, or one whose header does not describe its bytes.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let read = |source| WeightsError::Read { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(read)?;
        // SAFETY: the mapping is read-only; a file must not be cut short while a run reads it, as
        // with every memory-mapped format.
        let map = unsafe { Mmap::map(&file) }.map_err(read)?;
        let damaged = |e: safetensors::SafeTensorError| WeightsError::Damaged {
            path: path.to_path_buf(),
            message: e.to_string(),
        };
        let (header, metadata) = SafeTensors::read_metadata(&map).map_err(damaged)?;
        // Eight bytes hold the length of the header.
        let data = 8 + header;
        let tensors = metadata.tensors().into_iter().map(|(name, info)| {
            let (start, end) = info.data_offsets;
            (name, Entry { dtype: info.dtype, shape: info.shape.clone(), range: data + start..data + end })
        });
        Ok(Self { path: path.to_path_buf(), tensors: tensors.collect(), map })
    }

    pub fn bytes(&self, entry: &Entry) -> &[u8] {
        &self.map[entry.range.clone()]
    }
}
