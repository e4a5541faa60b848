//! Every source as the program compiles it for each compute capability, by NVRTC of CUDA 12 and 13, which pip brings: the
//! table under "Cards" in docs/gpu.md. Without a network nothing is compiled, and the test says so.

mod nvrtc;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use half::bf16;
use itertools::Itertools;
use walkdir::WalkDir;

use self::nvrtc::{Nvrtc, installed};
use crate::device::cuda::many;
use crate::device::cuda::program::Variant;
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
