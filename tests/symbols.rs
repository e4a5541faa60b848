//! Every symbol of the driver and of CUDA's libraries that the program can ask for is one that the oldest supported version
//! has: a missing symbol is a panic at its first call.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use walkdir::WalkDir;

/// The bindings of cudarc know the functions of one version of CUDA: a call of a later one does not compile. They are those
/// of the driver, NVRTC, cuBLASLt and CUPTI, for CubeCL as well, whose timer would else need `cuEventElapsedTime_v2` of 12.8.
#[test]
fn bindings_are_those_of_the_oldest_driver() {
    assert_eq!(
        cudarc::driver::sys::CUDA_VERSION,
        12000,
        "drivers from 525 on lack symbols of later bindings: Cargo.toml chooses the version by a feature of cudarc"
    );
    assert_eq!(cudarc::cupti::sys::CUPTI_API_VERSION, 18, "that of CUDA 12.0");
}

/// What NCCL 2.18 has, the first version for CUDA 12 among the wheels. Its bindings are of a later version.
const NCCL: [&str; 27] = [
    "ncclAllGather",
    "ncclAllReduce",
    "ncclBcast",
    "ncclBroadcast",
    "ncclCommAbort",
    "ncclCommCount",
    "ncclCommCuDevice",
    "ncclCommDestroy",
    "ncclCommFinalize",
    "ncclCommGetAsyncError",
    "ncclCommInitAll",
    "ncclCommInitRank",
    "ncclCommInitRankConfig",
    "ncclCommSplit",
    "ncclCommUserRank",
    "ncclGetErrorString",
    "ncclGetLastError",
    "ncclGetUniqueId",
    "ncclGetVersion",
    "ncclGroupEnd",
    "ncclGroupStart",
    "ncclRecv",
    "ncclRedOpCreatePreMulSum",
    "ncclRedOpDestroy",
    "ncclReduce",
    "ncclReduceScatter",
    "ncclSend",
];

/// What is looked up by name, past the bindings; CUDA 12.0 and NCCL 2.18 have all of it.
const BY_NAME: [&str; 7] = [
    "cuDriverGetVersion",
    "cublasLtGetVersion",
    "cuptiGetVersion",
    "ncclGetVersion",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetSupportedArchs",
    "nvrtcVersion",
];

#[test]
fn calls_of_nccl_and_names_that_are_looked_up_are_old_enough() {
    let code = code();
    let nccl: BTreeSet<&str> = words(&code).filter(|word| is_function(word, "nccl")).collect();
    assert!(nccl.len() > 15, "the calls are found: {nccl:?}");
    let later: Vec<_> = nccl.into_iter().filter(|name| !NCCL.contains(name)).collect();
    assert!(later.is_empty(), "NCCL 2.18 lacks {later:?}");
    let libraries = ["cu", "cublasLt", "cupti", "nccl", "nvrtc"];
    let quoted = code.split("c\"").skip(1).filter_map(|rest| rest.split('"').next());
    let looked_up: BTreeSet<&str> =
        quoted.filter(|name| libraries.iter().any(|library| is_function(name, library))).collect();
    assert_eq!(looked_up, BTreeSet::from(BY_NAME));
}

/// The sources without comments.
fn code() -> String {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = WalkDir::new(src).into_iter().map(|entry| entry.expect("sources can be read").into_path());
    let texts = files.filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
    let texts = texts.map(|path| fs::read_to_string(path).expect("sources can be read"));
    let lines = |text: String| -> Vec<String> {
        text.lines().filter(|line| !line.trim_start().starts_with("//")).map(str::to_string).collect()
    };
    texts.flat_map(lines).collect::<Vec<_>>().join("\n")
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
}

/// `ncclSend`, not a type or a constant such as `ncclComm_t` or `ncclSum`, which need no symbol.
fn is_function(word: &str, library: &str) -> bool {
    let named =
        word.strip_prefix(library).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    let constant = ["Sum", "Success", "InProgress", "DevKernel"]
        .iter()
        .any(|rest| word.strip_prefix(library) == Some(rest));
    let number = ["Float", "Bfloat", "Uint"].iter().any(|rest| word.starts_with(&format!("{library}{rest}")));
    let of_type = word == "ncclUniqueId" || word.ends_with("_t") || word.contains(char::is_whitespace);
    named && !constant && !number && !of_type
}
