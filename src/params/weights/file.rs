//! One safetensors file, mapped into memory, whose header was checked against its bytes.

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::{Metadata, TensorInfo, TensorView};

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
        let (length, header) = SafeTensors::read_metadata(&map)
            .map_err(|e| format!("{} is damaged: {e}; download or write it again", path.display()))?;
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
