//! NVRTC of several versions, from NVIDIA's wheels.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use itertools::Itertools;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW, Symbol};
use walkdir::WalkDir;

use super::variants;
use crate::device::Capability;
use crate::device::cuda::compiled;
use crate::device::cuda::program::{Source, Variant};

/// The folder of a wheel, which is kept beside the tests; or the last thing that pip said.
pub fn installed(wheel: &str) -> Result<PathBuf, String> {
    let folder = kept().join(wheel.replace(['=', '*'], "_"));
    if folder.exists() {
        return Ok(folder);
    }
    let fresh = tempfile::tempdir_in(kept()).expect("a folder beside the tests");
    let pip =
        ["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "1"];
    let output = Command::new("python3").args(pip).arg("--target").arg(fresh.path()).arg(wheel).output();
    let output = output.map_err(|error| format!("python3: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.lines().last().unwrap_or("pip failed").into());
    }
    // Where another process was faster its folder stays.
    match fs::rename(fresh.keep(), &folder) {
        Err(error) if !folder.exists() => panic!("{}: {error}", folder.display()),
        _ => Ok(folder),
    }
}

/// Wheels and cubins of earlier runs.
fn kept() -> PathBuf {
    let tests = std::env::current_exe().expect("the program of the tests");
    let folder = tests.ancestors().nth(2).expect("the target folder").join("nvrtc");
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// NVRTC from a file: cudarc takes the one of the system.
pub struct Nvrtc {
    library: Library,
    pub version: [c_int; 2],
}

/// `NVRTC_ERROR_INVALID_OPTION`, of an architecture that it does not know.
const INVALID_OPTION: c_int = 5;

impl Nvrtc {
    pub fn load(folder: &Path) -> Self {
        let files = WalkDir::new(folder).into_iter().map(|entry| entry.unwrap().into_path());
        let named = |start: &str, files: &[PathBuf]| {
            let is = |path: &&PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(start);
            files.iter().find(is).unwrap_or_else(|| panic!("no {start} in {}", folder.display())).clone()
        };
        let files = files.collect_vec();
        // It looks for its builtins by name, and finds what is loaded.
        // SAFETY: NVIDIA's libraries do nothing when they are loaded.
        let open = |path: PathBuf, flags| unsafe { Library::open(Some(path), RTLD_NOW | flags) }.unwrap();
        std::mem::forget(open(named("libnvrtc-builtins.so.", &files), RTLD_GLOBAL));
        let mut nvrtc = Self { library: open(named("libnvrtc.so.", &files), RTLD_LOCAL), version: [0; 2] };
        let [major, minor] = &mut nvrtc.version.each_mut();
        // SAFETY: the signature is that of nvrtc.h; writes two numbers.
        unsafe {
            let version: Symbol<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int> =
                nvrtc.library.get(b"nvrtcVersion").unwrap();
            assert_eq!(version(*major, *minor), 0);
        }
        nvrtc
    }

    /// Bytes of shared memory that a block of the kernels takes, of the one that takes most; `None`: it does not know the
    /// architecture.
    pub fn most_shared(&self, capability: Capability) -> Option<usize> {
        let mut most = 0;
        for Variant { source, kernels } in variants(capability) {
            let cubin = self.cubin(&source, &source.options(capability, capability))?;
            for (kernel, asked) in kernels {
                let size = |kind: &str| section_bytes(&cubin, &format!(".{kind}.{kernel}"));
                assert!(size("text").is_some(), "{} has no kernel {kernel}", source.name);
                most = most.max(asked + size("nv.shared").unwrap_or(0));
            }
        }
        Some(most)
    }

    /// What an earlier run compiled is taken from its file.
    fn cubin(&self, source: &Source, options: &[String]) -> Option<Vec<u8>> {
        let file = kept().join(compiled::name(source, options, self.version));
        if let Ok(cubin) = fs::read(&file) {
            return Some(cubin);
        }
        let cubin = self.compile(source, options)?;
        let mut fresh = tempfile::NamedTempFile::new_in(kept()).unwrap();
        std::io::Write::write_all(&mut fresh, &cubin).unwrap();
        fresh.persist(file).unwrap();
        Some(cubin)
    }

    fn compile(&self, source: &Source, options: &[String]) -> Option<Vec<u8>> {
        type Handle = *mut c_void;
        type Text = *const c_char;
        let [text, name] = [source.text, source.name].map(|text| CString::new(text).unwrap());
        let options = options.iter().map(|option| CString::new(option.as_str()).unwrap()).collect_vec();
        let pointers = options.iter().map(|option| option.as_ptr()).collect_vec();
        // SAFETY: the signatures are those of nvrtc.h; texts end with a zero and outlive the calls, and the buffers have the
        // sizes that NVRTC asks for.
        unsafe {
            let create: Symbol<
                unsafe extern "C" fn(*mut Handle, Text, Text, c_int, *const Text, *const Text) -> c_int,
            > = self.library.get(b"nvrtcCreateProgram").unwrap();
            let sized = |get_size: &str, get_bytes: &str, program| {
                let size: Symbol<unsafe extern "C" fn(Handle, *mut usize) -> c_int> =
                    self.library.get(get_size.as_bytes()).unwrap();
                let bytes: Symbol<unsafe extern "C" fn(Handle, *mut u8) -> c_int> =
                    self.library.get(get_bytes.as_bytes()).unwrap();
                let mut count = 0;
                assert_eq!(size(program, &mut count), 0);
                let mut buffer = vec![0; count];
                assert_eq!(bytes(program, buffer.as_mut_ptr()), 0);
                buffer
            };
            let compile: Symbol<unsafe extern "C" fn(Handle, c_int, *const Text) -> c_int> =
                self.library.get(b"nvrtcCompileProgram").unwrap();
            let destroy: Symbol<unsafe extern "C" fn(*mut Handle) -> c_int> =
                self.library.get(b"nvrtcDestroyProgram").unwrap();
            let mut program = ptr::null_mut();
            assert_eq!(create(&mut program, text.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()), 0);
            let cubin = match compile(program, pointers.len() as c_int, pointers.as_ptr()) {
                0 => Some(sized("nvrtcGetCUBINSize", "nvrtcGetCUBIN", program)),
                INVALID_OPTION => None,
                _ => {
                    let log = sized("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program);
                    let log = CStr::from_bytes_until_nul(&log).unwrap().to_string_lossy();
                    panic!(
                        "NVRTC {:?} does not compile {} by {options:?}:\n{log}",
                        self.version, source.name
                    );
                }
            };
            destroy(&mut program);
            cubin
        }
    }
}

/// Bytes of a section of an ELF file of 64 bits by its name.
fn section_bytes(elf: &[u8], name: &str) -> Option<usize> {
    let number = |at: usize, bytes: usize| {
        elf[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let (table, size, count, names) = (number(40, 8), number(58, 2), number(60, 2), number(62, 2));
    let section = |index: usize| table + index * size;
    let names = number(section(names) + 24, 8);
    let is = |at: &usize| {
        let start = names + number(*at, 4);
        elf[start..].starts_with(name.as_bytes()) && elf[start + name.len()] == 0
    };
    (0..count).map(section).find(is).map(|at| number(at + 32, 8))
}
