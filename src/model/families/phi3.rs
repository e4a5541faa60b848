//! Phi-3 and Phi-4 (Abdin et al. 2024): Llama's layers whose queries, keys and values come from one linear layer, and gate and
//! up from another. Rotary positions turn a part of each head.

use serde_json::{Value, json};

use super::{Family, llama};
use crate::keys::key::DefaultValue::{Bool, Number};
use crate::keys::{Key, Section};
use crate::model::architecture::{MlpLayers, Projections, with_windows};
use crate::model::config::{dimension, joined, with_default};

const OWN: [Key; 14] = with_default(
    joined(llama::KEYS, [dimension("partial_rotary_factor"), dimension("sliding_window")]),
    "rms_norm_eps",
    Number(1e-5),
);

pub const PHI3: Family = Family {
    kind: "phi3",
    class: "Phi3ForCausalLM",
    presets: &[("phi-4-mini", include_str!("presets/phi-4-mini.json"))],
    section: Section::of("model", "kind", &["phi3"]).with(
        "Llama's layers with queries, keys and values from one linear layer, and gate and up from another.",
        &OWN,
    ),
    fixed: &[("attention_bias", Bool(false)), ("mlp_bias", Bool(false))],
    operators: &["attention", "loss", "norm", "rope"],
    padding: Some(32_000),
    read: |file, written| {
        // With transformers' default of an absent key.
        let original = file.get("original_max_position_embeddings").cloned().unwrap_or(json!(4096));
        file.read_rope(&PHI3, None, written)?;
        // It counts before the table's own.
        let scaling = written.get("rope_scaling").and_then(Value::as_str);
        let table = scaling.and_then(|text| serde_json::from_str::<Value>(text).ok());
        if let Some(mut table) = table {
            table["original_max_position_embeddings"] = original;
            written.insert("rope_scaling".into(), json!(table.to_string()));
        }
        Ok(())
    },
    complete: |dimensions| llama::complete(dimensions, 4096),
    architecture: |of| {
        let mut layer = llama::layer(of)?;
        layer.attention.projections = Projections::Fused("qkv_proj");
        layer.mlp.layers = MlpLayers::GatedFused(["gate_up_proj", "down_proj"]);
        Ok(llama::around(of, with_windows(&layer, of.windows(|_| true)?)))
    },
    ..llama::LLAMA
};
