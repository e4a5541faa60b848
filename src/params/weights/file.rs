//! One safetensors file, mapped into memory, whose header was checked against its bytes.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::{Metadata, TensorInfo, TensorView};
use serde_json::{Map, Value};

use super::found;

#[derive(Debug)]
pub struct TensorFile {
    pub path: PathBuf,
    header: Metadata,
    /// Where the bytes of tensors begin.
    data: usize,
    map: Mmap,
}

impl TensorFile {
    /// Maps the file and reads its header.
    ///
    /// # Errors
    /// An unreadable file, or one whose header does not describe its bytes.
    pub fn open(path: &Path) -> Result<Self, String> {
        let read = |e| format!("cannot read {}: {e}", path.display());
        let file = File::open(path).map_err(read)?;
        // SAFETY: the mapping is read-only; a file must not be cut short while a run reads it, as
        // with every memory-mapped format.
        let map = unsafe { Mmap::map(&file) }.map_err(read)?;
        let (length, header) = SafeTensors::read_metadata(&map).map_err(|e| {
            let name = path.display();
            found::other_content(path).unwrap_or_else(|| match cut(&map) {
                Some(whole) => format!(
                    "{name} is cut short: it has {} bytes, and its header describes {whole}; download or copy it again",
                    map.len()
                ),
                None => format!("{name} is damaged: {e}; download or write it again"),
            })
        })?;
        // Eight bytes hold the length of the header.
        Ok(Self { path: path.to_path_buf(), header, data: 8 + length, map })
    }

    /// What the file says of itself under this key.
    pub fn note(&self, key: &str) -> Option<String> {
        self.header.metadata().as_ref()?.get(key).cloned()
    }

    /// In alphabetical order.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.header.offset_keys();
        names.sort_unstable();
        names
    }

    /// A tensor where it lies in the file: little-endian, row-major, not aligned.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let TensorInfo { dtype, shape, data_offsets: (start, end) } = self.header.info(name)?;
        TensorView::new(*dtype, shape.clone(), &self.map[self.data + start..self.data + end]).ok()
    }
}

/// How many bytes the header says that the file has, where they are more than are there.
fn cut(bytes: &[u8]) -> Option<u64> {
    let length = u64::from_le_bytes(*bytes.first_chunk()?);
    let header = bytes.get(8..)?.get(..usize::try_from(length).ok()?)?;
    let header: Map<String, Value> = serde_json::from_slice(header).ok()?;
    let ends = header.values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
    let whole = ends.max()?.checked_add(8 + length)?;
    (whole > bytes.len() as u64).then_some(whole)
}
