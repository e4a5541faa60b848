//! What `--for` accepts, and what it makes of a recipe.

use miette::{GraphicalReportHandler, GraphicalTheme};

use super::*;
use crate::recipe::{Recipe, Source};

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

/// A recipe of one cell with these lines before its sections, checked for a device.
fn recipe(lines: &str, compute: &str, target: &Target) -> Result<Recipe, String> {
    let text = format!(
        "title = \"t\"\n{lines}\n[model]\nkind = \"swiglu\"\nhidden_size = 8\nintermediate_size = 16\n\
         num_hidden_layers = 1\n[precision]\ncompute = \"{compute}\"\n[train]\nbatch_size = 1\nseq_len = 4\n"
    );
    let source = Source { path: "r.toml".into(), text };
    Recipe::parse_for(&source, target).map_err(|error| {
        let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(400);
        let mut out = String::new();
        handler.render_report(&mut out, &error).unwrap();
        out
    })
}

#[test]
fn a_description_names_memory_and_architecture() {
    let described = |device, memory, capability| {
        Target::Described(Description { device, memory: Option::map(memory, Bytes), capability })
    };
    let gpu = DeviceId::Cuda(0);
    assert_eq!(target("cpu"), described(DeviceId::Cpu, None, None));
    assert_eq!(target("cpu, 8 GiB"), described(DeviceId::Cpu, Some(8 << 30), None));
    assert_eq!(target("cuda, 11 GiB"), described(gpu, Some(11 << 30), None));
    assert_eq!(target("cuda,16GB,sm_75"), described(gpu, Some(16_000_000_000), Some((7, 5))));
    assert_eq!(target("cuda, sm_120"), described(gpu, None, Some((12, 0))));
}

#[test]
fn anything_else_is_told_the_grammar() {
    for wrong in [
        "",
        "gpu",
        "cuda:0",
        "11 GiB",
        "cuda, 11",
        "cuda, much",
        "cuda, 0 GiB",
        "cuda,",
        "cpu, sm_75",
        "cuda, sm_",
        "cuda, sm_9a",
        "cuda, sm_-75",
        "cuda, 1 GiB, 2 GiB",
        "cuda, sm_75, sm_80",
        "cuda, 11 GiB, sm_75, fast",
    ] {
        let error = wrong.parse::<Target>().expect_err(wrong);
        assert!(error.contains("write \"cpu\" or \"cuda\"") && error.contains("sm_75"), "{wrong}: {error}");
    }
}

#[test]
fn auto_is_the_described_device_and_its_memory_the_limit() {
    let gpu = target("cuda, 11 GiB");
    let on_gpu = recipe("", "fp32", &gpu).unwrap();
    assert_eq!(on_gpu.device(), DeviceId::Cuda(0));
    assert_eq!(gpu.info(DeviceId::Cuda(0)).memory_available, 11 << 30);
    assert_eq!(gpu.info(DeviceId::Cpu).memory_available, 0, "nothing is known of its CPU");
    assert_eq!(recipe("", "fp32", &target("cpu")).unwrap().device(), DeviceId::Cpu);
    assert_eq!(recipe("device = \"cuda:1\"", "fp32", &gpu).unwrap().device(), DeviceId::Cuda(1));
    assert_eq!(recipe("device = \"cpu\"", "fp32", &gpu).unwrap().device(), DeviceId::Cpu);
    let error = recipe("device = \"cuda:0\"", "fp32", &target("cpu")).unwrap_err();
    assert!(error.contains("--for describes a machine with \"cpu\""), "{error}");
}

#[test]
fn precisions_are_those_of_the_described_card() {
    for (device, fp16, bf16, tf32) in [
        ("cpu", true, true, false),
        ("cuda", true, true, true),
        ("cuda, sm_75", true, false, false),
        ("cuda, sm_80", true, true, true),
    ] {
        let takes = |compute| recipe("", compute, &target(device)).is_ok();
        assert_eq!((takes("fp16"), takes("bf16"), takes("tf32")), (fp16, bf16, tf32), "{device}");
    }
    let error = recipe("", "bf16", &target("cuda, sm_75")).unwrap_err();
    assert!(error.contains("bf16 needs tensor cores of compute capability 8.0"), "{error}");
    assert!(error.contains("cuda:0 has 7.5") && error.contains("r.toml:9:11"), "{error}");
}
