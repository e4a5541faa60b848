//! What `--for` accepts, and what it makes of a recipe.

use miette::{GraphicalReportHandler, GraphicalTheme};

use super::*;
use crate::recipe::{Recipe, RecipeError, Source};

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
        Target::Described(Description { device, memory: Option::map(memory, Bytes), capability, card: None })
    };
    let gpu = DeviceId::Cuda(0);
    assert_eq!(target("cpu"), described(DeviceId::Cpu, None, None));
    assert_eq!(target("cpu, 8 GiB"), described(DeviceId::Cpu, Some(8 << 30), None));
    assert_eq!(target("cuda, 11 GiB"), described(gpu, Some(11 << 30), None));
    assert_eq!(target("cuda,16GB,sm_75"), described(gpu, Some(16_000_000_000), Some(Capability::new(7, 5))));
    assert_eq!(target("cuda, sm_120"), described(gpu, None, Some(Capability::new(12, 0))));
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
        assert!(error.contains("\"cpu\" or \"cuda\"") && error.contains("sm_75"), "{wrong}: {error}");
    }
    for wrong in ["rtx 3060, sm_86", "3060, 13 GiB, 2 GiB", "4060 ti", "3061"] {
        assert!(wrong.parse::<Target>().unwrap_err().contains("write a card such as"), "{wrong}");
    }
    let error = "h100, 100 GiB".parse::<Target>().unwrap_err();
    assert!(error.starts_with("the H100 has 79.6 GiB of memory"), "{error}");
}

#[test]
fn a_card_has_its_capability_and_memory() {
    let gpu = DeviceId::Cuda(0);
    let card = target("NVIDIA GeForce RTX 3060");
    assert_eq!(card.capability(gpu), Some(Capability::new(8, 6)));
    let (info, cpu) = (card.info(gpu), card.info(DeviceId::Cpu));
    assert_eq!((info.name.as_str(), info.memory_available), ("RTX 3060", (12 << 30) - TAKEN));
    assert_eq!((cpu.name.as_str(), cpu.memory_available), ("described", 0));
    let less = target("3060, 8 GiB");
    assert_eq!(less.info(gpu).memory_available, 8 << 30);
    assert_eq!(less.card().map(|(_, part)| part), Some(Slice::WHOLE));
    let part = target("h100, 20 GiB").card().expect("a card").1;
    assert_eq!((part.products, part.memory), (2.0 / 7.0, 0.25));
    assert_eq!(target("cuda, 12 GiB, sm_86").card(), None);
    // What the card lacks is refused as on any other.
    let error = recipe("", "bf16", &target("rtx 2080 ti")).unwrap_err();
    assert!(
        error.contains("bf16 needs tensor cores of compute capability 8.0, and cuda:0 has 7.5"),
        "{error}"
    );
    assert!(recipe("", "bf16", &card).is_ok());
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

#[test]
fn what_a_described_card_lacks_is_refused_with_its_reason() {
    let old = recipe("", "fp32", &target("cuda, 12 GiB, sm_52")).unwrap_err();
    assert!(
        old.contains("the runner's CUDA kernels need compute capability 6.0, and cuda:0 has 5.2"),
        "{old}"
    );
    assert!(recipe("device = \"cpu\"", "fp32", &target("cuda, sm_52")).is_ok());
    for compute in ["fp32", "fp16"] {
        assert!(recipe("", compute, &target("cuda, 11 GiB, sm_61")).is_ok(), "{compute}");
    }
    let tf32 = recipe("", "tf32", &target("cuda, 11 GiB, sm_61")).unwrap_err();
    assert!(tf32.contains("tf32 needs tensor cores of compute capability 8.0, and cuda:0 has 6.1"), "{tf32}");
}

/// A language model in fp16 with more lines in its sections.
fn language(more: &str, target: &Target) -> Result<Recipe, RecipeError> {
    let text = format!(
        "title = \"t\"\n[model]\nkind = \"gpt2\"\nvocab_size = 300\nhidden_size = 256\nnum_hidden_layers = 2\n\
         num_attention_heads = 4\nmax_position_embeddings = 512\n[precision]\ncompute = \"fp16\"\n[train]\n\
         batch_size = 8\nseq_len = 512\n{more}"
    );
    Recipe::parse_for(&Source { path: "r.toml".into(), text }, target)
}

#[test]
fn fused_attention_is_asked_for_only_where_it_is() {
    let [turing, ampere] = ["cuda, sm_75", "cuda, sm_80"].map(target);
    let asked = "[ops]\nfused_attention = true\n";
    assert!(language(asked, &ampere).is_ok());
    let refused = language(asked, &turing).unwrap_err().to_string();
    let reason = "fused attention needs compute capability 8.0, and cuda:0 has 7.5";
    assert!(refused.contains(reason), "{refused}");
    // Left open it is what the card has, and so is the estimate.
    let bytes = |more, target| language(more, target).unwrap().cells[0].estimate().total();
    let blocks = "[ops]\nfused_attention = false\n";
    assert_eq!(bytes("", &turing), bytes(blocks, &turing));
    assert_eq!(bytes("", &turing), bytes(blocks, &ampere));
    assert!(bytes("", &ampere) < bytes("", &turing));
}

/// Moments that are only stored in bf16 need no units for it.
#[test]
fn moments_in_bf16_need_no_tensor_cores() {
    let kind = "optimizer = { kind = \"adamw_bf16\", lr = 1e-3 }\n";
    for card in ["cuda, sm_61", "cuda, sm_75", "cuda, sm_90"] {
        assert!(language(kind, &target(card)).is_ok(), "{card}");
    }
}
