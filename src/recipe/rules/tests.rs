//! Rules whose breach would compute something else than what the recipe says, or nothing at all.

use miette::Diagnostic;

use crate::recipe::tests::{recipe_of, says};
use crate::recipe::{Recipe, Source};

/// A GPT-2 of these sizes, trained by AdamW; `more` begins within `[train]`.
fn gpt2(batch_size: u64, seq_len: u64, more: &str) -> String {
    format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"gpt2\"\nvocab_size = 300\nhidden_size = 8\n\
         num_hidden_layers = 1\nnum_attention_heads = 2\nmax_position_embeddings = 2147483647\n[train]\n\
         batch_size = {batch_size}\nseq_len = {seq_len}\n{more}"
    )
}

#[test]
fn sizes_are_refused_before_any_rule_counts_with_them() {
    let most = 2_147_483_647;
    for more in [
        "[tuning]\nmethod = \"lora\"\ntarget_modules = \"c_attn\"\n",
        "[tuning]\nmethod = \"prompt\"\n",
        "mode = \"inference\"\n[tuning]\nmethod = \"bitfit\"\n",
    ] {
        says(&gpt2(most, most - 20, more), &["more memory than any machine can address"]);
    }
    let virtual_tokens = format!("[tuning]\nmethod = \"prompt\"\nnum_virtual_tokens = {}\n", most - 2);
    says(&gpt2(most, 2, &virtual_tokens), &["more memory than any machine can address"]);
}

#[test]
fn a_task_without_numbers_is_not_asked_for_them() {
    let topics = |more: &str| {
        gpt2(1, 32, &format!("[data]\ncorpus = \"task\"\nvocab_size = 257\nsampler = \"padded\"\n{more}"))
    };
    for learn in ["topic", "text"] {
        let text =
            topics(&format!("[task]\nkind = \"topics\"\nlearn = \"{learn}\"\nevaluate_generation = 5\n"));
        says(&text, &["compares the numbers at the end of answers", "remove task.evaluate_generation"]);
    }
    says(
        &topics("tokenize = \"every_step\"\n[task]\nkind = \"topics\"\n"),
        &["data.tokenize", "has no effect"],
    );
}

#[test]
fn a_forward_alone_trains_no_classifier() {
    for method in ["linear_probe", "lp_ft", "bitfit"] {
        let text = format!(
            "mode = \"inference\"\n[tuning]\nmethod = \"{method}\"\n[data]\ncorpus = \"task\"\nvocab_size = 257\n\
             sampler = \"padded\"\n[task]\nkind = \"topics\"\n"
        );
        says(&gpt2(1, 32, &text), &["tuning.method has no effect with train.mode = \"inference\""]);
    }
}

/// What a GPU without bf16 is told to use is accepted there, with blocks and their optimizer on the host.
#[test]
fn the_way_out_of_bf16_ends_in_a_recipe() {
    let target = "cuda, 8 GiB, sm_75".parse().expect("a device");
    let refused = |precision: &str| {
        let text = gpt2(1, 8, "optimizer = { kind = \"adamw\" }\n").replace("\"cpu\"", "\"cuda:0\"");
        let offload = "[offload]\nstrategy = \"overlap\"\noptimizer = \"host\"\n";
        let source =
            Source { path: "r.toml".into(), text: format!("{text}[precision]\n{precision}{offload}") };
        Recipe::parse_for(&source, &target).err().map(|e| e.help().expect("a way out").to_string())
    };
    let help = refused("compute = \"bf16\"\nautocast = true\n").expect("it is refused");
    assert!(help.contains("precision.autocast and precision.scaler"), "{help}");
    let advised = "compute = \"fp16\"\nautocast = true\nscaler = { kind = \"dynamic\" }\n";
    assert_eq!(refused(advised), None);
}

#[test]
fn several_ranks_are_named_as_such() {
    let text = "optimizer = { kind = \"adamw\" }\n[tuning]\nmethod = \"prompt\"\n[parallel.pipeline]\nstages = 2\n\
                schedule = \"gpipe\"\nmicro_batches = 2\n";
    let text = gpt2(2, 8, text).replace("num_hidden_layers = 1", "num_hidden_layers = 2");
    says(&text, &["trains in one process", "remove [parallel]"]);
}

#[test]
fn a_layer_has_one_adapter() {
    let twice = "[tuning]\nmethod = \"lora\"\ntarget_modules = \"c_attn, c_fc, c_attn\"\n";
    says(&gpt2(1, 8, twice), &["names c_attn twice", "write target_modules = \"c_attn, c_fc\"", "r.toml:15"]);
}

#[test]
fn what_is_asked_of_cuda_alone_is_not_ignored_on_a_cpu() {
    let fused = |value: bool| gpt2(1, 8, &format!("[ops]\nfused_attention = {value}\n"));
    says(&fused(true), &["ops.fused_attention = true has no effect on the CPU", "r.toml:14"]);
    recipe_of(&fused(false));
}
