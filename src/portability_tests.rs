//! Every source as the program compiles it for each compute capability, by NVRTC of CUDA 12 and 13, which pip brings: the
//! table under "Cards" in docs/gpu.md. Without a network nothing is compiled, and the test says so.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{ptr, thread};

use half::bf16;
use itertools::Itertools;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW, Symbol};
use walkdir::WalkDir;

use crate::device::cuda::program::{Source, Variant};
use crate::device::cuda::{compiled, many};
use crate::device::{Capability, Feature};
use crate::ops::attention::{decode, flash};
use crate::ops::cross_entropy::loss;
use crate::ops::largest::kernel as largest;
use crate::ops::lora::low_rank;
use crate::ops::nf4::kernel as packed;
use crate::optim::adafactor::cuda as adafactor;
use crate::optim::adamw::kernels;

/// Cards that have each compute capability, and the branches of NVIDIA's driver that know them and CUDA 12.
const CARDS: [(Capability, &str, &str); 10] = [
    (Capability::new(6, 0), "Tesla P100", "R525 to R580"),
    (Capability::new(6, 1), "GeForce GTX 1080 Ti", "R525 to R580"),
    (Capability::new(7, 0), "Tesla V100", "R525 to R580"),
    (Capability::new(7, 5), "Tesla T4, GeForce RTX 2080", "R525 or newer"),
    (Capability::new(8, 0), "A100", "R525 or newer"),
    (Capability::new(8, 6), "GeForce RTX 3090", "R525 or newer"),
    (Capability::new(8, 9), "GeForce RTX 4090, L4", "R525 or newer"),
    (Capability::new(9, 0), "H100, H200", "R525 or newer"),
    (Capability::new(10, 0), "B200", "R570 or newer"),
    (Capability::new(12, 0), "GeForce RTX 5090", "R570 or newer"),
];

/// What pip calls NVRTC, in the order of the table's columns.
const WHEELS: [&str; 2] = ["nvidia-cuda-nvrtc-cu12==12.9.*", "nvidia-cuda-nvrtc==13.*"];

fn variants(capability: Capability) -> Vec<Variant> {
    let all = [
        many::variants(),
        kernels::variants(),
        adafactor::variants(),
        decode::variants(),
        largest::variants(),
        packed::variants(),
        low_rank::variants(),
        loss::variants(capability),
        flash::variants(capability),
    ];
    all.into_iter().flatten().collect()
}

#[test]
fn every_source_is_among_the_variants() {
    let src = WalkDir::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let files = src.into_iter().map(|file| file.unwrap().into_path());
    let written = files.filter(|path| path.extension().is_some_and(|ending| ending == "cu"));
    // The files in flash/ are one source.
    let folder = |path: &Path| path.parent().unwrap().file_name().unwrap().to_owned();
    let name = |path: PathBuf| {
        if folder(&path) == "flash" {
            folder(&path).into_string()
        } else {
            path.file_stem().unwrap().to_owned().into_string()
        }
    };
    let written = written.map(|path| format!("{}.cu", name(path).unwrap())).unique();
    let compiled = variants(Capability::new(9, 0)).into_iter().map(|variant| variant.source.name.to_string());
    assert_eq!(written.sorted().collect_vec(), compiled.unique().sorted().collect_vec());
}

#[test]
fn the_table_of_cards_is_what_nvrtc_compiles() {
    let libraries = match WHEELS.iter().map(|wheel| installed(wheel)).collect::<Result<Vec<_>, _>>() {
        Ok(libraries) => libraries,
        Err(reason) => return eprintln!("skipped: NVRTC did not come from pip: {reason}"),
    };
    // Each library compiles one source after the other, and the two do not wait for each other.
    let found = thread::scope(|scope| {
        let threads = libraries.iter().map(|library| {
            scope.spawn(move || {
                let nvrtc = Nvrtc::load(library);
                CARDS.map(|(capability, ..)| nvrtc.most_shared(capability))
            })
        });
        threads.collect_vec().into_iter().map(|thread| thread.join().unwrap()).collect_vec()
    });
    let header = "| compute capability | for example | driver | NVRTC 12.9 | NVRTC 13 | shared memory of a block | \
                  most that is used |";
    let lines = CARDS.iter().enumerate().map(|(row, (capability, cards, drivers))| {
        let verdict =
            |column: usize| if found[column][row].is_some() { "compiles" } else { "does not know it" };
        let used = found.iter().filter_map(|column| column[row]).max().expect("one of them compiles");
        let has = capability.shared_memory();
        assert!(used <= has, "{capability}: a block asks for {used} bytes of {has}");
        let [has, used] = [has, used].map(|bytes| bytes.div_ceil(1 << 10));
        let [first, second] = [0, 1].map(verdict);
        format!("| {capability} | {cards} | {drivers} | {first} | {second} | {has} KiB | {used} KiB |")
    });
    let table =
        [header.to_string(), "|---|---|---|---|---|---|---|".into()].into_iter().chain(lines).join("\n");
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gpu.md")).unwrap();
    let cards =
        page.split("\n## ").find(|section| section.starts_with("Cards\n")).expect("a section \"Cards\"");
    assert!(cards.contains(&table), "docs/gpu.md should have under \"Cards\":\n{table}");
}

/// The other table of the page.
#[test]
fn the_page_says_from_which_capability_on_each_feature_is_there() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gpu.md")).unwrap();
    for (feature, words) in [
        (Feature::Kernels, "cells on CUDA"),
        (Feature::Fp16TensorCores, "tensor cores for fp16"),
        (Feature::Bf16Products, "`precision.compute = \"bf16\"`"),
        (Feature::Tf32Products, "`precision.compute = \"tf32\"`"),
        (Feature::FusedAttention, "fused attention"),
        (Feature::Clusters, "blocks that share a row of the loss"),
    ] {
        let line = format!("| {} | {words} |", feature.since());
        assert!(page.contains(&line), "docs/gpu.md has no line {line}");
    }
}

/// The folder of a wheel, which is kept beside the tests; or the last thing that pip said.
fn installed(wheel: &str) -> Result<PathBuf, String> {
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
struct Nvrtc {
    library: Library,
    version: [c_int; 2],
}

/// `NVRTC_ERROR_INVALID_OPTION`, of an architecture that it does not know.
const INVALID_OPTION: c_int = 5;

impl Nvrtc {
    fn load(folder: &Path) -> Self {
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
    fn most_shared(&self, capability: Capability) -> Option<usize> {
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

/// The way of devices without the instruction, compiled for the CPU from the text that they are given, rounds as
/// `cvt.rn.bf16.f32` does (PTX ISA: to the nearest even, and what is no number is 0x7fff).
#[test]
fn rounding_to_bf16_without_the_instruction_gives_its_bits() {
    let text = include_str!("device/cuda/kernels/numbers.cuh");
    let start = text.find("__device__ __forceinline__ u16 nearest_bfloat16").expect("the function");
    let function = text[start..].split_inclusive("\n}\n").next().expect("its end");
    let folder = tempfile::tempdir().unwrap();
    let [source, program, numbers] = ["round.c", "round", "numbers"].map(|name| folder.path().join(name));
    let before = "#include <stdio.h>\n#include <string.h>\ntypedef unsigned int u32;\ntypedef unsigned short u16;\n\
                  #define CAPABILITY 750\n#define __device__ static\n#define __forceinline__ inline\n\
                  static u32 __float_as_uint(float x) { u32 bits; memcpy(&bits, &x, 4); return bits; }\n";
    let after = "int main(void) {\n  u32 bits;\n  while (fread(&bits, 4, 1, stdin) == 1) {\n    float x;\n\
                 memcpy(&x, &bits, 4);\n    u16 y = nearest_bfloat16(x);\n    fwrite(&y, 2, 1, stdout);\n  }\n  return 0;\n}\n";
    fs::write(&source, [before, function, after].concat()).unwrap();
    let compiled =
        Command::new("cc").arg("-O1").arg("-o").args([&program, &source]).output().expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    // Each upper half with lower halves about the middle between two bf16 numbers.
    let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xc000, 0xffff];
    let all =
        (0..=u16::MAX).flat_map(|upper| lower.map(|lower| u32::from(upper) << 16 | lower)).collect_vec();
    fs::write(&numbers, all.iter().flat_map(|bits| bits.to_ne_bytes()).collect_vec()).unwrap();
    let rounded = Command::new(&program).stdin(File::open(&numbers).unwrap()).output().unwrap().stdout;
    assert_eq!(rounded.len(), 2 * all.len());
    for (bits, found) in all.iter().zip(rounded.chunks_exact(2)) {
        let x = f32::from_bits(*bits);
        let expected = if x.is_nan() { 0x7fff } else { bf16::from_f32(x).to_bits() };
        assert_eq!(u16::from_ne_bytes([found[0], found[1]]), expected, "{x} ({bits:#010x})");
    }
}
