//! Which libraries a GPU is used with: under drivers and libraries that do no more than say their version, so that no GPU is
//! needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::{Ended, Place, TINY};

/// A driver with one device of compute capability 8.6, for the version of CUDA in `SAYS_CUDA`.
const DRIVER: &str = r#"
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned f) { return 0; }
int cuDriverGetVersion(int *v) { *v = atoi(getenv("SAYS_CUDA")); return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "GeForce of a test", n); return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { *n = 8ul << 30; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 8 : a == 76 ? 6 : 16; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = c; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
int cuCtxPushCurrent_v2(void *c) { return 0; }
int cuCtxPopCurrent_v2(void **c) { return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = 7ul << 30; *t = 8ul << 30; return 0; }
"#;

/// An NVRTC that refuses every text.
fn nvrtc(major: i32, minor: i32) -> String {
    format!(
        r#"
#include <string.h>
#include <stddef.h>
int nvrtcVersion(int *a, int *b) {{ *a = {major}; *b = {minor}; return 0; }}
int nvrtcGetNumSupportedArchs(int *n) {{ *n = 2; return 0; }}
int nvrtcGetSupportedArchs(int *a) {{ a[0] = 75; a[1] = 86; return 0; }}
int nvrtcCreateProgram(void **p) {{ *p = p; return 0; }}
int nvrtcCompileProgram(void *p, int n, const char **o) {{ return 6; }}
int nvrtcGetProgramLogSize(void *p, size_t *n) {{ *n = 20; return 0; }}
int nvrtcGetProgramLog(void *p, char *s) {{ strcpy(s, "no text pleases me"); return 0; }}
int nvrtcDestroyProgram(void **p) {{ return 0; }}
const char *nvrtcGetErrorString(int e) {{ return "refused"; }}
"#
    )
}

/// A machine with that driver alone; its folders are the test's own.
struct Machine(Place);

impl Machine {
    fn new() -> Self {
        let machine = Self(Place::new(TINY));
        machine.library("system/libcuda.so.1", DRIVER);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().expect("it is there").join(name)
    }

    /// Compiles a library to this file.
    fn library(&self, name: &str, code: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is writable");
        let source = self.path("library.c");
        fs::write(&source, code).expect("the folder is writable");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&path, &source]).status();
        assert!(made.expect("a compiler, as for the runner itself").success());
        path
    }

    /// A file of a wheel that is installed in the environment `venv`.
    fn wheel(name: &str) -> String {
        format!("venv/lib/python3.12/site-packages/nvidia/{name}")
    }

    fn headers(&self, folder: &str) {
        fs::create_dir_all(self.path(folder)).expect("the folder is writable");
        for name in ["cuda_fp16.h", "cuda_bf16.h"] {
            fs::write(self.path(folder).join(name), "").expect("the folder is writable");
        }
        let version = self.path(folder).join("cuda.h");
        fs::write(version, "#define CUDA_VERSION 12040\n").expect("the folder is writable");
    }

    /// Runs the program with a driver of this version of CUDA. Toolkits of the machine under test are out of sight, where it
    /// has none in a folder that the loader always searches.
    fn runner(&self, cuda: i32, args: &[&str], variables: &[(&str, &Path)]) -> Ended {
        let mut command = self.0.command(args);
        for name in ["CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX", "CUDA_VISIBLE_DEVICES"] {
            command.env_remove(name);
        }
        command
            .env("VIRTUAL_ENV", self.path("venv"))
            .env("RUNNER_CACHE", self.path("cache"))
            .env("LD_LIBRARY_PATH", self.path("system"))
            .env("SAYS_CUDA", cuda.to_string())
            .envs(variables.iter().copied());
        Ended::from(command.output().expect("the binary starts"))
    }
}

/// Whether libraries or headers of CUDA are installed where every program finds them: what is missing on a test's machine is
/// then not missing.
fn has_own_cuda() -> bool {
    let headers =
        ["/usr/local/cuda", "/opt/cuda", "/usr/bin/nvcc"].iter().any(|path| Path::new(path).exists());
    let names = ["libnvrtc.so", "libnvrtc.so.12", "libnvrtc.so.13", "libcuda.so"];
    headers || {
        let listed = Command::new("/sbin/ldconfig").arg("-p").output().map(|output| output.stdout);
        let listed = listed.map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
        listed.split_whitespace().any(|word| names.contains(&word))
    }
}

#[test]
fn an_old_driver_is_refused_by_its_version() {
    let machine = Machine::new();
    machine
        .runner(11040, &["check", "recipe.toml"], &[])
        .exits(2)
        .says(&["supports CUDA 11.4, and the runner needs CUDA 12.0", "install driver 525"]);
    machine.runner(11040, &["ceilings", "cuda:0"], &[]).exits(1).says(&["install driver 525"]);
    let ended = machine.runner(11040, &["devices"], &[]).exits(0);
    let ended = ended.says(&["GeForce of a test", "8.6", "cuda:0 cannot be used", "install driver 525"]);
    assert!(!ended.err.contains("panicked"), "{}", ended.err);
}

#[test]
fn a_missing_compiler_or_header_is_refused_with_what_to_install() {
    if has_own_cuda() {
        return;
    }
    let machine = Machine::new();
    let install = ["\"nvidia-cuda-nvrtc-cu12<12.5\"", "\"nvidia-cuda-runtime-cu12<12.5\""];
    let ended = machine.runner(12040, &["run", "recipe.toml"], &[]).exits(2);
    ended.says(&["NVRTC (libnvrtc.so), which compiles the kernels, was not found"]).says(&install);
    machine.library(&Machine::wheel("cuda_nvrtc/lib/libnvrtc.so.12"), &nvrtc(12, 4));
    let ended = machine.runner(12040, &["run", "recipe.toml"], &[]).exits(2);
    ended.says(&["CUDA's headers (cuda_fp16.h, cuda_bf16.h)"]).says(&install);
    machine
        .runner(13000, &["check", "recipe.toml"], &[])
        .exits(2)
        .says(&["\"nvidia-cuda-runtime>=13,<13.1\""]);
    machine.headers(&Machine::wheel("cuda_runtime/include"));
    let ended = machine.runner(12020, &["check", "recipe.toml"], &[]).exits(2);
    ended.says(&[
        "NVRTC 12.4 is newer than the driver, which supports CUDA 12.2",
        "nvidia-cuda-nvrtc-cu12<12.3",
    ]);
    machine.runner(12040, &["check", "recipe.toml"], &[]).exits(0);
}

/// What is installed for the tests below: NVRTC and headers of CUDA 12, cuBLASLt and NCCL.
fn with_wheels() -> (Machine, PathBuf) {
    let machine = Machine::new();
    let nvrtc = machine.library(&Machine::wheel("cuda_nvrtc/lib/libnvrtc.so.12"), &nvrtc(12, 4));
    machine.headers(&Machine::wheel("cuda_runtime/include"));
    machine.library(
        &Machine::wheel("cublas/lib/libcublasLt.so.12"),
        "unsigned long cublasLtGetVersion(void) { return 120405; }",
    );
    machine.library(
        &Machine::wheel("nccl/lib/libnccl.so.2"),
        "int ncclGetVersion(int *v) { *v = 22703; return 0; }",
    );
    (machine, nvrtc)
}

/// The lines of a table without its frame, each without spaces.
fn lines(ended: &Ended) -> Vec<String> {
    ended.out.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn wheels_of_the_active_environment_are_found_without_other_variables() {
    let (machine, nvrtc) = with_wheels();
    let ended = machine.runner(12080, &["devices"], &[]).exits(0);
    let all = lines(&ended);
    let line = |name: &str| {
        all.iter().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{}", ended.out))
    };
    assert!(line("NVIDIAdriver").contains("CUDA12.8"), "{}", ended.out);
    assert!(line("cuBLASLt").contains("12.4.5"), "{}", ended.out);
    if !has_own_cuda() {
        assert!(line("NVRTC").contains("12.4"), "{}", ended.out);
        assert!(line("CUDAheaders").contains("12.4"), "{}", ended.out);
        assert!(line("CUPTI").contains("notfound"), "{}", ended.out);
        let flat: String = all.concat();
        assert!(flat.contains(&nvrtc.display().to_string()), "{}", ended.out);
        assert!(line("NCCL").contains("2.27.3"), "{}", ended.out);
    }
    // The device is opened, and the compiler asked for a kernel: an error of the cell, not of the program.
    if !has_own_cuda() {
        let ended = ended.says(&["cuda:0 cannot be used", "no text pleases me"]);
        assert!(!ended.err.contains("panicked"), "{}", ended.err);
        let ended = machine.runner(12080, &["run", "recipe.toml"], &[]);
        let ended = ended.says(&["no text pleases me", "nvidia-cuda-nvrtc-cu12<12.9"]);
        assert!(!ended.err.contains("panicked"), "{}", ended.err);
        assert!(machine.0.rows().iter().all(|row| row["status"] == "failed"), "{}", ended.err);
    }
}

#[test]
fn the_environment_that_the_program_is_installed_into_is_searched() {
    let (machine, _) = with_wheels();
    let program = machine.path("venv/bin/runner");
    fs::create_dir_all(program.parent().expect("bin")).expect("the folder is writable");
    // The kernel says the path of the file, so a link to it would not do.
    fs::hard_link(crate::place::runner(), &program)
        .or_else(|_| fs::copy(crate::place::runner(), &program).map(drop))
        .expect("the program can be copied");
    let mut command = Command::new(&program);
    for name in ["CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES"] {
        command.env_remove(name);
    }
    command
        .arg("devices")
        .env("RUNNER_CACHE", machine.path("cache"))
        .env("LD_LIBRARY_PATH", machine.path("system"))
        .env("SAYS_CUDA", "12080");
    Ended::from(command.output().expect("the binary starts")).exits(0).says(&["12.4.5"]);
}

#[test]
fn the_loaders_own_library_stays_unless_the_driver_cannot_take_it() {
    let (machine, _) = with_wheels();
    let newer = machine.library("mine/libnvrtc.so", &nvrtc(13, 0));
    let search = std::env::join_paths([machine.path("mine"), machine.path("system")]).expect("plain paths");
    let variables = [("LD_LIBRARY_PATH", Path::new(&search))];
    let version = |cuda: i32| {
        let ended = machine.runner(cuda, &["devices"], &variables).exits(0);
        let line = lines(&ended).into_iter().find(|line| line.starts_with("NVRTC"));
        line.unwrap_or_else(|| panic!("{}", ended.out))
    };
    assert!(version(13000).contains("13.0"), "{} fits", newer.display());
    assert!(version(12080).contains("12.4"), "the wheel's is the one that the driver takes");
    // Neither fits: the refusal is about the one that is loaded.
    let ended = machine.runner(12020, &["check", "recipe.toml"], &variables).exits(2);
    ended.says(&[
        "NVRTC 13.0 is newer than the driver, which supports CUDA 12.2",
        "nvidia-cuda-nvrtc-cu12<12.3",
    ]);
}

#[test]
fn without_a_driver_the_libraries_are_listed_all_the_same() {
    let (machine, _) = with_wheels();
    fs::remove_file(machine.path("system/libcuda.so.1")).expect("it is there");
    let ended = machine.runner(0, &["devices"], &[]).exits(0);
    let all = lines(&ended);
    if !has_own_cuda() {
        assert!(all.iter().any(|line| line.starts_with("NVIDIAdrivernotfound")), "{}", ended.out);
    }
    assert!(all.iter().any(|line| line.starts_with("cuBLASLt12.4.5")), "{}", ended.out);
    machine.runner(0, &["check", "recipe.toml"], &[]).exits(0);
}
