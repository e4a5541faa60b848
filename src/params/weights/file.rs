//! One safetensors file, mapped into memory, whose header was checked against its bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::{Metadata, TensorInfo, TensorView};
use serde_json::{Map, Value};

use super::{found, inner};

#[derive(Debug)]
pub struct TensorFile {
    pub path: PathBuf,
    header: Metadata,
    /// Where the bytes of tensors begin.
    data: usize,
    map: Mmap,
    /// The names of a text part's tensors in the text model alone, each with that in the file.
    renamed: BTreeMap<String, String>,
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
        let renamed = header.offset_keys().into_iter();
        let renamed = renamed.filter_map(|stored| Some((inner::own_name(&stored)?, stored))).collect();
        Ok(Self { path: path.to_path_buf(), header, data: 8 + length, map, renamed })
    }

    /// A name in the file that is another in the text model alone, of which the file's model is more.
    pub fn renamed(&self) -> Option<&str> {
        self.renamed.values().next().map(String::as_str)
    }

    /// Whether the name is of a text part's tensor.
    pub fn is_renamed(&self, own: &str) -> bool {
        self.renamed.contains_key(own)
    }

    /// What the file says of itself under this key.
    pub fn note(&self, key: &str) -> Option<String> {
        self.header.metadata().as_ref()?.get(key).cloned()
    }

    /// In alphabetical order; those of a text part as in the text model alone.
    pub fn names(&self) -> Vec<String> {
        let stored = self.header.offset_keys().into_iter();
        let mut names: Vec<String> =
            stored.map(|stored| inner::own_name(&stored).unwrap_or(stored)).collect();
        names.sort_unstable();
        names
    }

    /// A tensor where it lies in the file: little-endian, row-major, not aligned.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let name = self.renamed.get(name).map_or(name, String::as_str);
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
