//! Cubins that NVRTC has compiled before, on disk: one file for each source, its options and the compiler's version.

use std::fs;
use std::path::PathBuf;

use cudarc::nvrtc::sys;
use sha2::{Digest, Sha256};

use super::program::Source;
use crate::common::cache;
use crate::common::text::hex;

/// The compiled kernels of a source.
pub struct Compiled {
    /// `None`: nothing is kept.
    folder: Option<PathBuf>,
    name: String,
}

impl Compiled {
    /// The kernels of a source that is compiled with these options. NVRTC must be there.
    pub fn new(source: &Source, options: &[String]) -> Self {
        let mut version = [0; 2];
        let [major, minor] = &mut version;
        // SAFETY: writes two numbers.
        let known = unsafe { sys::nvrtcVersion(major, minor) }.result().is_ok();
        let folder = cache::folder("kernels").filter(|_| known);
        Self { folder, name: name(source, options, version) }
    }

    /// `None` where it is not there.
    pub fn get(&self) -> Option<Vec<u8>> {
        fs::read(self.folder.as_ref()?.join(&self.name)).ok().filter(|cubin| !cubin.is_empty())
    }

    pub fn put(&self, cubin: &[u8]) {
        if let Some(folder) = &self.folder {
            cache::keep(folder, &self.name, cubin);
        }
    }
}

/// The file's.
pub fn name(source: &Source, options: &[String], [major, minor]: [i32; 2]) -> String {
    let mut digest = Sha256::new();
    for part in [source.text, &options.join(" "), &format!("{major}.{minor}")] {
        digest.update(part);
        digest.update([0]);
    }
    format!("{}-{}.cubin", source.name, hex(&digest.finalize()[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_text_option_or_compiler_is_another_file() {
        let source = |text| Source { name: "a.cu", text, macros: Vec::new(), generation_only: false };
        let of = |text, option: &str, version| name(&source(text), &[option.into()], version);
        let one = of("x", "-DA=1", [13, 0]);
        assert!(one.starts_with("a.cu-") && one.ends_with(".cubin"), "{one}");
        assert_eq!(one, of("x", "-DA=1", [13, 0]));
        for other in [of("y", "-DA=1", [13, 0]), of("x", "-DA=2", [13, 0]), of("x", "-DA=1", [13, 1])] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn what_was_kept_is_there_and_nothing_without_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Compiled { folder: Some(folder.path().join("below")), name: "a.cubin".into() };
        assert_eq!(kept.get(), None);
        kept.put(&[1, 2, 3]);
        assert_eq!(kept.get(), Some(vec![1, 2, 3]));
        kept.put(&[]);
        assert_eq!(kept.get(), None, "an empty file is none");
        let nowhere = Compiled { folder: None, ..kept };
        nowhere.put(&[4]);
        assert_eq!(nowhere.get(), None);
    }
}
