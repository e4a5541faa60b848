//! What each method trains, and what it adds.

use crate::recipe::{Cell, Recipe, Source};

fn cell(model: &str, tuning: &str) -> Cell {
    let text = format!(
        "title = \"t\"\ndevice = \"cpu\"\n[model]\n{model}\n[train]\nbatch_size = 2\nseq_len = 8\n\
         optimizer = {{ kind = \"adamw\" }}\n[tuning]\n{tuning}\n"
    );
    let source = Source { path: "r.toml".into(), text };
    Recipe::parse(&source).unwrap_or_else(|e| panic!("{:?}", miette::Report::new(e))).cells.remove(0)
}

/// All parameters and the trained ones: of the network by its shapes, and of its operators by their costs.
fn counted(model: &str, tuning: &str) -> [u128; 2] {
    use burn::tensor::DType;

    let cell = cell(model, tuning);
    let table = cell.model.table(DType::F32, &cell.tuning()).expect("a language model");
    let counts = [table.elements(|_| true), table.elements(|entry| entry.trainable)];
    let operators = cell.operators();
    assert_eq!(counts, [operators.parameters(), operators.trained()].map(u128::from), "{model} {tuning}");
    counts
}

/// A and B of rank 8 are 8 · (2 · (896 + 896) + 2 · (896 + 128)) numbers in each of 24 blocks.
#[test]
fn lora_of_qwen2_5_trains_a_million_of_495_million_parameters() {
    let model = "kind = \"qwen2\"\npreset = \"qwen2.5-0.5b\"";
    assert_eq!(counted(model, "method = \"lora\"\nrank = 8"), [495_114_112, 1_081_344]);
}

#[test]
fn every_method_has_the_parameters_that_its_operators_count() {
    let qwen2 = "kind = \"qwen2\"\nvocab_size = 61\nhidden_size = 28\nintermediate_size = 43\nnum_hidden_layers = 3\n\
                 num_attention_heads = 2\nnum_key_value_heads = 1\nmax_position_embeddings = 16";
    let gpt2 = "kind = \"gpt2\"\nvocab_size = 61\nhidden_size = 28\nnum_hidden_layers = 3\nnum_attention_heads = 2\n\
                max_position_embeddings = 16";
    let classes = |tuning: &str| {
        format!(
            "{tuning}\n[data]\ncorpus = \"task\"\nvocab_size = 257\nsampler = \"padded\"\n[task]\nkind = \"topics\"\ntopics = 3"
        )
    };
    let all_layers = "target_modules = \"q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj\"";
    let [all, trained] = counted(qwen2, "method = \"full\"");
    assert_eq!(all, trained);
    // Biases of q, k and v.
    assert_eq!(counted(qwen2, "method = \"bitfit\""), [all, 3 * (28 + 14 + 14)]);
    let added = 3 * 2 * (2 * 28 * 5 + 5 + 28);
    assert_eq!(counted(qwen2, "method = \"adapter\"\nbottleneck = 5"), [all + added, added]);
    let added = 3 * 3 * (2 * (28 + 28) + 2 * (28 + 14) + 3 * (28 + 43));
    assert_eq!(counted(qwen2, &format!("method = \"lora\"\nrank = 3\n{all_layers}")), [all + added, added]);
    // An embedding of 28 columns each; keys and values of 14 each in three layers.
    assert_eq!(counted(qwen2, "method = \"prompt\"\nnum_virtual_tokens = 6"), [all + 6 * 28, 6 * 28]);
    let added = 3 * 6 * (14 + 14);
    assert_eq!(counted(qwen2, "method = \"prefix\"\nnum_virtual_tokens = 6"), [all + added, added]);
    // A classifier of three classes, in the place of the head.
    let of_text = qwen2.replace("61", "257");
    let [all, _] = counted(&of_text, "method = \"full\"");
    let all = all - 257 * 28;
    assert_eq!(counted(&of_text, &classes("method = \"linear_probe\"")), [all + 3 * 28, 3 * 28]);
    assert_eq!(counted(&of_text, &classes("method = \"lp_ft\"\nprobe_steps = 3")), [all + 3 * 28; 2]);
    let added = 6 * 28 + 3 * 28;
    assert_eq!(
        counted(&of_text, &classes("method = \"prompt\"\nnum_virtual_tokens = 6")),
        [all + added, added]
    );
    let [all, _] = counted(gpt2, "method = \"full\"");
    let added = 3 * 6 * (28 + 28);
    assert_eq!(counted(gpt2, "method = \"prefix\"\nnum_virtual_tokens = 6"), [all + added, added]);
    // Those of the products, and of two norms in each block and one after.
    let biases = 3 * (3 * 28 + 28 + 4 * 28 + 28) + 7 * 28;
    assert_eq!(counted(gpt2, "method = \"bitfit\""), [all, biases]);
    let added = 3 * 3 * ((28 + 84) + (28 + 28) + (112 + 28));
    let gptj = format!("{}\nrotary_dim = 4", gpt2.replace("gpt2", "gptj"));
    let [all_of_gptj, _] = counted(&gptj, "method = \"full\"");
    // Of the MLP, of a norm in each block and one after, and of the head.
    let of_gptj = 3 * (4 * 28 + 28) + 4 * 28 + 61;
    assert_eq!(counted(&gptj, "method = \"bitfit\""), [all_of_gptj, of_gptj]);
    let bottlenecks = 3 * 2 * (2 * 28 * 5 + 5 + 28);
    let with = counted(&gptj, "method = \"adapter\"\nbottleneck = 5");
    assert_eq!(with, [all_of_gptj + bottlenecks, bottlenecks]);
    assert_eq!(
        counted(gpt2, "method = \"lora\"\nrank = 3\ntarget_modules = \"c_attn, c_proj\""),
        [all + added, added]
    );
}

#[test]
fn lora_in_less_usual_settings_has_the_parameters_that_its_operators_count() {
    let qwen2 = "kind = \"qwen2\"\nvocab_size = 61\nhidden_size = 28\nintermediate_size = 43\nnum_hidden_layers = 3\n\
                 num_attention_heads = 2\nnum_key_value_heads = 1\nmax_position_embeddings = 16\n\
                 tie_word_embeddings = false";
    let [all, _] = counted(qwen2, "method = \"full\"");
    let lora = |keys: &str| counted(qwen2, &format!("method = \"lora\"\nrank = 3\n{keys}"));
    let added = 3 * 3 * (2 * (28 + 28) + 2 * (28 + 14));
    assert_eq!(lora(""), [all + added, added]);
    assert_eq!(lora("use_rslora = true"), [all + added, added]);
    // A length of each row of q, k, v and o.
    let with_lengths = added + 3 * (28 + 14 + 14 + 28);
    assert_eq!(lora("use_dora = true"), [all + with_lengths, with_lengths]);
    // Biases of q, k and v.
    let biases = 3 * (28 + 14 + 14);
    for keys in ["bias = \"lora_only\"", "bias = \"all\""] {
        assert_eq!(lora(keys), [all + added, added + biases]);
        let dora = lora(&format!("{keys}\nuse_dora = true\ndropout = 0.1"));
        assert_eq!(dora, [all + with_lengths, with_lengths + biases]);
    }
    let of_k = 3 * 3 * (28 + 14);
    let some = lora("target_modules = \"k_proj\"\nbias = \"lora_only\"");
    assert_eq!(some, [all + of_k, of_k + 3 * 14]);
    let some = lora("target_modules = \"k_proj\"\nbias = \"all\"");
    assert_eq!(some, [all + of_k, of_k + biases]);
    let every = added + 3 * 3 * 3 * (28 + 43);
    assert_eq!(lora("target_modules = \"all-linear\""), [all + every, every]);
    let modules = "modules_to_save = \"embed_tokens, model.norm\"";
    assert_eq!(lora(modules), [all + added, added + 61 * 28 + 28]);
    let modules = "modules_to_save = \"lm_head\"";
    assert_eq!(lora(modules), [all + added, added + 61 * 28]);
    // Each layer by itself: q of blocks 0 and 2 of ranks 2 and 3, v of both of rank 4.
    let some = lora(
        "target_modules = '.*layers\\.[02]\\..*(q|v)_proj'\nrank_pattern = 'layers\\.0\\..*q_proj = 2, v_proj = 4'",
    );
    let of_some = (2 + 3) * (28 + 28) + 2 * 4 * (28 + 14);
    assert_eq!(some, [all + of_some, of_some]);
    let some = lora("layers_to_transform = \"1\"\nbias = \"lora_only\"");
    let of_some = added / 3;
    assert_eq!(some, [all + of_some, of_some + 28 + 14 + 14]);
    let tied = qwen2.replace("false", "true");
    for modules in ["embed_tokens", "lm_head", "embed_tokens, lm_head"] {
        let keys = format!("method = \"lora\"\nrank = 3\nmodules_to_save = \"{modules}\"");
        assert_eq!(counted(&tied, &keys), [all - 61 * 28 + added, added + 61 * 28]);
    }
    let gpt2 = "kind = \"gpt2\"\nvocab_size = 61\nhidden_size = 28\nnum_hidden_layers = 3\nnum_attention_heads = 2\n\
                max_position_embeddings = 16";
    let [all, _] = counted(gpt2, "method = \"full\"");
    let of_c_attn = 3 * 3 * (28 + 84);
    // Those of the products, and of two norms in each block and one after.
    let biases = 3 * (3 * 28 + 28 + 4 * 28 + 28) + 7 * 28;
    let keys = "method = \"lora\"\nrank = 3\ntarget_modules = \"c_attn\"\nbias = \"all\"";
    assert_eq!(counted(gpt2, keys), [all + of_c_attn, of_c_attn + biases]);
    let keys = format!("{keys}\nuse_dora = true\nmodules_to_save = \"wpe\"");
    let with_lengths = of_c_attn + 3 * 84;
    assert_eq!(counted(gpt2, &keys), [all + with_lengths, with_lengths + biases + 16 * 28]);
}
