use std::fs;

use super::*;

/// A library with these functions, at this path.
fn library(path: &Path, code: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let source = path.with_extension("c");
    fs::write(&source, code).unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([path, &source]).status();
    assert!(made.expect("a compiler, as for the runner itself").success());
}

fn nvrtc((major, minor): (i32, i32), architectures: &[i32]) -> String {
    let listed: String = architectures.iter().enumerate().map(|(i, own)| format!("a[{i}]={own};")).collect();
    format!(
        "int nvrtcVersion(int *a, int *b) {{ *a={major}; *b={minor}; return 0; }}\n\
         int nvrtcGetNumSupportedArchs(int *n) {{ *n={}; return 0; }}\n\
         int nvrtcGetSupportedArchs(int *a) {{ {listed} return 0; }}\n",
        architectures.len()
    )
}

fn with(driver: (i32, i32), (major, minor): (u32, u32)) -> Option<Devices> {
    Some(Devices { driver, capabilities: vec![Capability::new(major, minor)] })
}

#[test]
fn the_latest_compiler_that_driver_and_device_take_is_chosen() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join("lib/python3.12/site-packages/nvidia").join(name);
    let (twelve, thirteen) = (path("cuda_nvrtc/lib/libnvrtc.so.12"), path("cu13/lib/libnvrtc.so.13"));
    library(&twelve, &nvrtc((12, 4), &[70, 75, 90]));
    library(&thirteen, &nvrtc((13, 0), &[75, 90]));
    // What is no library is passed over.
    fs::create_dir_all(path("broken/lib")).unwrap();
    fs::write(path("broken/lib/libnvrtc.so.14"), "no library").unwrap();
    let place = Place::under(root.path());
    let chosen = |devices: Option<Devices>| best(Library::Nvrtc, &place, devices.as_ref());
    assert_eq!(chosen(None), Some(thirteen.clone()));
    assert_eq!(chosen(with((13, 0), (9, 0))), Some(thirteen));
    assert_eq!(chosen(with((12, 8), (9, 0))), Some(twelve.clone()));
    assert_eq!(chosen(with((13, 0), (7, 0))), Some(twelve), "the later one does not compile for Volta");
    assert_eq!(chosen(with((12, 2), (9, 0))), None, "both are newer than the driver");
}

#[test]
fn cublas_and_cupti_may_not_be_of_a_later_major_version_than_the_driver() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join("lib").join(name);
    library(&path("libcublasLt.so.13"), "unsigned long cublasLtGetVersion(void) { return 130100; }");
    library(&path("libcupti.so.12"), "int cuptiGetVersion(unsigned *v) { *v = 28; return 0; }");
    let place = Place::under(root.path());
    let chosen = |library: Library, driver: (i32, i32)| best(library, &place, with(driver, (9, 0)).as_ref());
    assert_eq!(chosen(Library::BlasLt, (13, 0)), Some(path("libcublasLt.so.13")));
    assert_eq!(chosen(Library::BlasLt, (12, 9)), None);
    assert_eq!(chosen(Library::Cupti, (12, 0)), Some(path("libcupti.so.12")));
    assert_eq!(chosen(Library::Cupti, (13, 0)), Some(path("libcupti.so.12")));
}

#[test]
fn a_loaded_library_says_its_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("lib x/libnccl.so.2");
    library(&path, "int ncclGetVersion(int *v) { *v = 22703; return 0; }");
    let loaded = open(&path).expect("it can be loaded");
    assert_eq!(probe::file(Library::Nccl, &loaded), Some(path.canonicalize().unwrap()));
    assert_eq!(probe::version(Library::Nccl, &loaded), Some(vec![2, 27, 3]));
}

#[test]
fn headers_are_those_of_the_compiler_where_both_are_there() {
    let root = tempfile::tempdir().unwrap();
    let site = root.path().join("lib/python3.12/site-packages/nvidia");
    for (folder, version) in [("cu13", 13000), ("cuda_runtime", 12090)] {
        let include = site.join(folder).join("include");
        fs::create_dir_all(&include).unwrap();
        for name in super::super::HEADERS {
            fs::write(include.join(name), "").unwrap();
        }
        fs::write(include.join("cuda.h"), format!("#define CUDA_VERSION {version}\n")).unwrap();
    }
    fs::create_dir_all(site.join("cuda_nvcc/include/crt")).unwrap();
    let places = [Place::default(), Place::under(root.path())];
    let of = |major: Option<i32>| matching_headers(&places, major);
    let of_12 = vec![site.join("cuda_nvcc/include"), site.join("cuda_runtime/include")];
    assert_eq!(of(Some(12)), Some(of_12));
    assert_eq!(of(Some(13)), Some(vec![site.join("cu13/include")]));
    assert_eq!(of(None), Some(vec![site.join("cu13/include")]));
    assert_eq!(matching_headers(&places[..1], Some(12)), None);
}
