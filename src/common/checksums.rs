//! [`Checksums`]: SHA-256 of files. Those of large files are remembered between runs.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::text::hex;
use super::{Bytes, cache, files};

/// Checksums of files from this size on are remembered between runs; smaller ones take no time.
const REMEMBERED: u64 = 1 << 20;
/// From this size on the user is notified: it takes seconds.
const NOTIFIED: u64 = 1 << 30;

/// Bytes at the beginning and at the end of a file that [`of_ends`] reads.
const ENDS: u64 = 1 << 20;

/// See the module.
pub struct Checksums<'a> {
    notify: &'a dyn Fn(&str),
    /// `None`: nothing is remembered.
    folder: Option<PathBuf>,
}

/// SHA-256 of a file's size, its time of change, its beginning and its end, in hex digits: of a file that is used before all of
/// it can be read.
///
/// # Errors
/// As [`Checksums::of_file`].
pub fn of_ends(path: &Path) -> io::Result<String> {
    let metadata = files::regular(path)?;
    let (mut file, mut hash) = (File::open(path)?, Sha256::new());
    for number in [metadata.len() as i64, metadata.mtime(), metadata.mtime_nsec()] {
        hash.update(number.to_le_bytes());
    }
    for offset in [0, metadata.len().saturating_sub(ENDS)] {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(offset))?;
        (&file).take(ENDS).read_to_end(&mut bytes)?;
        hash.update(bytes);
    }
    Ok(hex(&hash.finalize()))
}

/// A checksum, and what the file was like when it was made.
#[derive(PartialEq, Serialize, Deserialize)]
struct Remembered {
    path: PathBuf,
    bytes: u64,
    /// Seconds and nanoseconds of the last change of its content, and of its content, name or rights. Whoever
    /// sets the first back changes the second.
    modified: [i64; 2],
    changed: [i64; 2],
    sha256: String,
}

impl<'a> Checksums<'a> {
    /// `notify` is called for files that take long to read.
    pub fn new(notify: &'a dyn Fn(&str)) -> Self {
        Self { notify, folder: cache::folder("contents") }
    }

    /// SHA-256 of a file, in hex digits.
    ///
    /// # Errors
    /// When it cannot be read, or is no regular file.
    pub fn of_file(&self, path: &Path) -> io::Result<String> {
        let before = Remembered::new(path, &files::regular(path)?)?;
        if let Some(sum) = self.recall(&before) {
            return Ok(sum);
        }
        if before.bytes >= NOTIFIED {
            let size = Bytes(before.bytes);
            (self.notify)(&format!(
                "reading {} ({size}) for its checksum, which is remembered",
                path.display()
            ));
        }
        let sum = files::sha256(path)?;
        // A file that is being written has another content already.
        if Remembered::new(path, &fs::metadata(path)?)? == before {
            self.remember(Remembered { sha256: sum.clone(), ..before });
        }
        Ok(sum)
    }

    fn recall(&self, now: &Remembered) -> Option<String> {
        let text = fs::read(self.folder.as_ref()?.join(now.name())).ok()?;
        let then: Remembered = serde_json::from_slice(&text).ok()?;
        let sha256 = then.sha256.clone();
        (Remembered { sha256: String::new(), ..then } == *now).then_some(sha256)
    }

    /// A folder that cannot be written means that the next run reads the file again.
    fn remember(&self, entry: Remembered) {
        let Some(folder) = self.folder.as_ref().filter(|_| entry.bytes >= REMEMBERED) else { return };
        if let Ok(text) = serde_json::to_vec(&entry) {
            cache::keep(folder, &entry.name(), &text);
        }
    }
}

impl Remembered {
    /// Without a checksum.
    fn new(path: &Path, metadata: &Metadata) -> io::Result<Self> {
        Ok(Self {
            path: fs::canonicalize(path)?,
            bytes: metadata.len(),
            modified: [metadata.mtime(), metadata.mtime_nsec()],
            changed: [metadata.ctime(), metadata.ctime_nsec()],
            sha256: String::new(),
        })
    }

    /// Of the entry's file: one for each path.
    fn name(&self) -> String {
        let path = Sha256::digest(self.path.to_string_lossy().as_bytes());
        format!("{}.json", hex(&path[..16]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With its memory in `folder`.
    fn remembering<'a>(folder: &Path, notices: &'a dyn Fn(&str)) -> Checksums<'a> {
        Checksums { folder: Some(folder.join("memory")), ..Checksums::new(notices) }
    }

    #[test]
    fn the_ends_of_a_file_and_its_time_are_told_apart() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("large");
        let mut bytes = vec![0; 3 * ENDS as usize];
        let sum = |bytes: &[u8], seconds| {
            fs::write(&path, bytes).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            of_ends(&path).unwrap()
        };
        let first = sum(&bytes, 9);
        assert_eq!(sum(&bytes, 9), first);
        assert_ne!(sum(&bytes, 8), first);
        assert_ne!(sum(&bytes[1..], 9), first);
        for place in [0, 3 * ENDS as usize - 1] {
            bytes[place] = 1;
            assert_ne!(sum(&bytes, 9), first);
            bytes[place] = 0;
        }
        assert!(of_ends(place.path()).is_err());
    }

    #[test]
    fn a_large_file_is_read_once_and_again_when_it_changes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("large");
        let file = fs::File::create(&path).unwrap();
        file.set_len(NOTIFIED).unwrap();
        let notices = std::cell::RefCell::new(Vec::new());
        let note = |text: &str| notices.borrow_mut().push(text.to_string());
        // Not by reading, which takes long in a test.
        let state = || Remembered::new(&path, &fs::metadata(&path).unwrap()).unwrap();
        let sum = "of an earlier run".to_string();
        remembering(place.path(), &note).remember(Remembered { sha256: sum.clone(), ..state() });
        assert_eq!(remembering(place.path(), &note).of_file(&path).unwrap(), sum);
        assert!(notices.borrow().is_empty());

        file.set_len(REMEMBERED).unwrap();
        let real = remembering(place.path(), &note).of_file(&path).unwrap();
        assert!(real != sum && real == remembering(place.path(), &note).recall(&state()).unwrap());
        // The same size, and its time of change set back. Some systems count in steps of a few milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, vec![1; REMEMBERED as usize]).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        assert_ne!(remembering(place.path(), &note).of_file(&path).unwrap(), real);
    }
}
