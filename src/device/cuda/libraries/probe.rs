//! What a loaded library says of itself: its version, and the file that it was loaded from.

use std::ffi::{CStr, c_int, c_void};
use std::fs;
use std::path::PathBuf;

use libloading::Library as Loaded;

use super::Library;

/// The file that a loaded library lies in, without symbolic links.
pub fn file(library: Library, loaded: &Loaded) -> Option<PathBuf> {
    // SAFETY: only the address is used.
    let symbol = unsafe { loaded.get::<*const c_void>(entry(library)) }.ok()?;
    mapped_at(&fs::read_to_string("/proc/self/maps").ok()?, *symbol as usize)
}

/// A function that the library has in every version.
fn entry(library: Library) -> &'static CStr {
    match library {
        Library::Driver => c"cuDriverGetVersion",
        Library::Nvrtc => c"nvrtcVersion",
        Library::BlasLt => c"cublasLtGetVersion",
        Library::Cupti => c"cuptiGetVersion",
        Library::Nccl => c"ncclGetVersion",
    }
}

/// The file that is mapped at an address, in the words of `/proc/self/maps`.
fn mapped_at(maps: &str, address: usize) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|number| usize::from_str_radix(number, 16));
        let inside = (start.ok()?..end.ok()?).contains(&address);
        // Permissions, offset, device and inode come before the path, which may have spaces.
        let path = rest.find('/').map(|at| &rest[at..]).filter(|_| inside)?;
        Some(PathBuf::from(path.trim_end()))
    })
}

/// The version, `12.9.1` say: numbers as the library has them.
pub fn version(library: Library, loaded: &Loaded) -> Option<Vec<i32>> {
    type Write = unsafe extern "C" fn(*mut c_int) -> c_int;
    let mut number = 0;
    // SAFETY: the functions have these signatures in every version, and write one number or return it.
    unsafe {
        match library {
            Library::Nvrtc => {
                let (major, minor) = super::Nvrtc::in_library(loaded)?.version;
                return Some(vec![major, minor]);
            }
            Library::BlasLt => {
                number = loaded.get::<unsafe extern "C" fn() -> usize>(entry(library)).ok()?() as c_int;
            }
            Library::Driver | Library::Cupti | Library::Nccl => {
                let write = loaded.get::<Write>(entry(library)).ok()?;
                if write(&mut number) != 0 {
                    return None;
                }
            }
        }
    }
    Some(numbers(library, number))
}

fn numbers(library: Library, number: i32) -> Vec<i32> {
    match library {
        Library::Driver => vec![number / 1000, number % 1000 / 10],
        // cuBLASLt's 12.9 says 120900. CUPTI numbered its interface from 1 to 28, the last one of CUDA 12.9.
        Library::Cupti if number < 1000 => vec![12],
        Library::BlasLt | Library::Cupti | Library::Nccl | Library::Nvrtc => {
            vec![number / 10_000, number / 100 % 100, number % 100]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_at_an_address_is_found_among_the_maps() {
        let maps = "55d000000000-55d000001000 r--p 00000000 08:01 42     /usr/bin/runner\n\
                    7f0000000000-7f0000002000 r-xp 00001000 08:01 43     /a folder/libnvrtc.so.12\n\
                    7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0      [stack]\n";
        assert_eq!(mapped_at(maps, 0x7f00_0000_1fff), Some("/a folder/libnvrtc.so.12".into()));
        assert_eq!(mapped_at(maps, 0x7f00_0000_2000), None);
        assert_eq!(mapped_at(maps, 0x7ffd_0000_0001), None);
    }

    #[test]
    fn numbers_of_versions_are_read_as_each_library_writes_them() {
        assert_eq!(numbers(Library::Driver, 12040), [12, 4]);
        assert_eq!(numbers(Library::BlasLt, 120_103), [12, 1, 3]);
        assert_eq!(numbers(Library::BlasLt, 130_100), [13, 1, 0]);
        assert_eq!(numbers(Library::Nccl, 22_703), [2, 27, 3]);
        assert_eq!(numbers(Library::Cupti, 28), [12]);
        assert_eq!(numbers(Library::Cupti, 130_001), [13, 0, 1]);
    }
}
