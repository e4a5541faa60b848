//! [`table`]: the libraries that are here, for a user.

use super::arrange::for_other_programs;
use super::{HEADERS, Library, driver, headers, headers_version, probe};
use crate::common::text;

/// What is missing where the library is.
fn cost(library: Library) -> &'static str {
    match library {
        Library::Driver => "no GPU is used",
        Library::Nvrtc => "no kernel is compiled: no GPU is used",
        Library::BlasLt => "Burn multiplies, slower; no fp32 on a GPU",
        Library::Cupti => "the host waits around each call; no --trace",
        Library::Nccl => "ranks exchange through the host (sockets)",
    }
}

fn name(library: Library) -> &'static str {
    match library {
        Library::Driver => "NVIDIA driver",
        Library::Nvrtc => "NVRTC",
        Library::BlasLt => "cuBLASLt",
        Library::Cupti => "CUPTI",
        Library::Nccl => "NCCL",
    }
}

/// Headers that Burn's own products on tensor cores include besides.
const TENSOR_CORES: [&str; 2] = ["crt/mma.h", "nv/target"];

/// A line for each library and for the headers: version, file, and what its absence costs. Below it stands the command that
/// shows them to other programs, where this one has made links.
pub fn table() -> String {
    let [nvrtc, others @ ..] = Library::OPTIONAL;
    let mut lines = vec![line(Library::Driver), line(nvrtc), headers_line()];
    lines.extend(others.map(line));
    let table = text::wrapped_table(&["library", "version", "file", "without it"], lines, 400);
    match for_other_programs() {
        Some(command) => format!("{table}\n\nOther programs, such as the tests, find them after:\n{command}"),
        None => table,
    }
}

fn line(library: Library) -> Vec<String> {
    let [version, file] = match library.loaded() {
        None => ["not found".to_string(), "-".into()],
        Some(loaded) => {
            let numbers = probe::version(library, loaded).unwrap_or_default();
            let numbers = numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(".");
            let version = match library {
                Library::Driver => format!("{}, CUDA {numbers}", driver::version()),
                _ => numbers,
            };
            let version = version.trim_start_matches(", ").to_string();
            [version, probe::file(library, loaded).map_or("-".into(), |file| file.display().to_string())]
        }
    };
    vec![name(library).into(), version, file, cost(library).into()]
}

fn headers_line() -> Vec<String> {
    let [version, file] = match headers() {
        None => ["not found".to_string(), format!("-, {} are needed", HEADERS.join(" and "))],
        Some(folder) => {
            let version = headers_version(&folder);
            let version = version.map_or("-".into(), |(major, minor)| format!("{major}.{minor}"));
            let has =
                |name: &str| [&folder, &folder.join("cccl")].iter().any(|root| root.join(name).is_file());
            let version = match TENSOR_CORES.into_iter().filter(|name| !has(name)).collect::<Vec<_>>() {
                lacking if lacking.is_empty() => version,
                lacking => format!("{version}, without {}", text::and(lacking)),
            };
            [version, folder.canonicalize().unwrap_or(folder).display().to_string()]
        }
    };
    vec!["CUDA headers".into(), version, file, "no kernel is compiled: no GPU is used".into()]
}
