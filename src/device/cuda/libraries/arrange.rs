//! [`arrange`]: makes the libraries of pip's wheels, of conda and of packages without links for development known to the
//! loader, before anything is loaded.
//!
//! cudarc and CubeCL load libraries by their names, `libnvrtc.so` say, and CubeCL takes headers from `CUDA_PATH`. A loader
//! reads `LD_LIBRARY_PATH` when a program starts. So the program makes a folder of links with these names and starts itself
//! again, in the same process, with that folder in both variables. What the loader finds by itself stays, unless the driver
//! cannot take it.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library as Loaded;

use super::links::Links;
use super::nvrtc::Nvrtc;
use super::places::{Place, prefixes};
use super::{Library, driver, has_headers, headers, headers_version, probe};
use crate::common::{cache, text};
use crate::device::Capability;

/// Starts this program again if it then finds more of the libraries, and returns if not. Only `main` calls it, before
/// anything else. Without a GPU nothing is done, unless `also_without_gpu`.
pub fn arrange(also_without_gpu: bool) {
    let gpus = driver::count();
    if gpus == 0 && !also_without_gpu {
        return;
    }
    let device = (gpus > 0).then(|| Devices {
        driver: driver::supported(),
        capabilities: (0..gpus).map(driver::architecture).collect(),
    });
    let links = missing(device.as_ref(), &here());
    let folder = folder_of_links().filter(|_| !links.is_empty());
    let Some(folder) = folder.and_then(|folder| links.folder(&folder).ok()) else { return };
    let variables = links.variables(&folder, env::var_os("LD_LIBRARY_PATH").as_deref());
    if variables.iter().all(|(name, value)| env::var_os(name).as_ref() == Some(value)) {
        // It has been started again, and does not find them.
        return;
    }
    let program = env::current_exe().ok().filter(|program| program.exists());
    let mut words = env::args_os();
    let mut command = Command::new(program.unwrap_or_else(|| "/proc/self/exe".into()));
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    // It returns only where it fails; what is missing is then refused when a device is opened.
    let _ = command.args(words).envs(variables).exec();
}

/// Below the folder for what a machine remembers; losing it costs only time.
fn folder_of_links() -> Option<PathBuf> {
    std::path::absolute(cache::folder("libraries")?).ok()
}

/// The command with which a shell gives other programs, as tests are, the links that this one has been started with; `None`
/// where it has none.
pub fn for_other_programs() -> Option<String> {
    let own = folder_of_links()?;
    let value = |name| env::var(name).ok().filter(|value| Path::new(value).starts_with(&own));
    let set = ["LD_LIBRARY_PATH", "CUDA_PATH"].into_iter().filter_map(|name| Some((name, value(name)?)));
    let set: Vec<String> = set.map(|(name, value)| format!(" {name}={}", text::argument(value))).collect();
    (!set.is_empty()).then(|| format!("export{}", set.concat()))
}

fn here() -> Vec<Place> {
    let program = env::current_exe().ok();
    let prefixes = prefixes(|name| env::var_os(name), program.as_deref());
    prefixes.iter().map(|prefix| Place::under(prefix)).collect()
}

/// What libraries are chosen for.
struct Devices {
    driver: (i32, i32),
    capabilities: Vec<Capability>,
}

/// What the loader does not find, or only in a version that the driver does not take, and one of these places has.
fn missing(devices: Option<&Devices>, places: &[Place]) -> Links {
    let mut links = Links::default();
    for library in Library::OPTIONAL {
        if library.loaded().is_some_and(|loaded| suits(library, loaded, devices)) {
            continue;
        }
        let found = by_version(library, devices);
        let in_places = |devices| places.iter().find_map(|place| best(library, place, devices));
        let found = found.or_else(|| in_places(devices));
        // So that the refusal is about the one that is there.
        let any = || in_places(None).filter(|_| library == Library::Nvrtc && library.loaded().is_none());
        let found = found.or_else(any);
        links.libraries.extend(found.map(|path| (library, path)));
    }
    if headers().is_none() {
        let nvrtc = links.libraries.iter().find(|(library, _)| *library == Library::Nvrtc);
        let nvrtc = match nvrtc {
            Some((_, path)) => open(path).as_ref().and_then(Nvrtc::in_library),
            None => Library::Nvrtc.loaded().and_then(Nvrtc::in_library),
        };
        links.headers = matching_headers(places, nvrtc.map(|nvrtc| nvrtc.version.0)).unwrap_or_default();
    }
    links
}

/// Whether the driver and the devices take this library.
fn suits(library: Library, loaded: &Loaded, devices: Option<&Devices>) -> bool {
    let Some(Devices { driver, capabilities }) = devices else { return true };
    match library {
        Library::Nvrtc => Nvrtc::in_library(loaded)
            .is_some_and(|nvrtc| nvrtc.fits(*driver) && capabilities.iter().all(|own| nvrtc.knows(*own))),
        // A driver runs the libraries of its own major version and of earlier ones.
        Library::BlasLt | Library::Cupti => {
            probe::version(library, loaded).is_none_or(|version| version[0] <= driver.0)
        }
        Library::Nccl | Library::Driver => true,
    }
}

/// Later versions than CUDA 15 have other names.
const LAST_MAJOR: u32 = 15;

/// The library by its name with a version, which is all that a package without files for development has.
fn by_version(library: Library, devices: Option<&Devices>) -> Option<PathBuf> {
    let versions = if library == Library::Nccl { 2..=2 } else { 12..=LAST_MAJOR };
    versions.rev().find_map(|version| {
        let loaded = open(Path::new(&format!("lib{}.so.{version}", library.stem())))?;
        suits(library, &loaded, devices).then(|| probe::file(library, &loaded))?
    })
}

/// The latest version in this place that suits.
fn best(library: Library, place: &Place, devices: Option<&Devices>) -> Option<PathBuf> {
    let files = place.files(library.stem()).into_iter();
    let versions = files.filter_map(|path| {
        let loaded = open(&path)?;
        let version = probe::version(library, &loaded)?;
        suits(library, &loaded, devices).then_some((version, path))
    });
    versions.max().map(|(_, path)| path)
}

fn open(path: &Path) -> Option<Loaded> {
    // SAFETY: loading these libraries runs no more than their own set-up.
    unsafe { Loaded::new(path) }.ok()
}

/// The headers of the first place with any, and there those of NVRTC's major version if they are there.
fn matching_headers(places: &[Place], major: Option<i32>) -> Option<Vec<PathBuf>> {
    let is_major = |group: &&Vec<PathBuf>| {
        let version = group.iter().find_map(|folder| headers_version(folder));
        version.map(|(own, _)| own) == major
    };
    places.iter().find_map(|place| {
        let whole = || place.headers.iter().filter(|group| group.iter().any(|folder| has_headers(folder)));
        whole().find(is_major).or_else(|| whole().next()).cloned()
    })
}

#[cfg(test)]
#[path = "arrange_tests.rs"]
mod tests;
