//! The `config.json` that is written beside weights.

use burn::tensor::DType;
use serde_json::{Map, Value, json};

use super::dimensions::JSON;
use super::section::present;
use super::{ConfigFile, Dimensions, inner};
use crate::model::families::Family;
use crate::params::save::{MARK, RUNNER};

/// The `config.json` of a model whose weights are stored in this type. `base`: that of its first weights, which stays as it
/// is but for what is another now. `pad`: the padding token. `ends`: the tokens that end a text, where they are not those of `base`.
pub fn to_hugging_face(
    (family, config): (&'static Family, &Dimensions),
    pad: Option<usize>,
    stored: DType,
    base: Option<ConfigFile>,
    ends: Option<&[u32]>,
) -> Value {
    let mut own = Map::new();
    for (key, value) in present(config) {
        let name = family.section.keys.iter().find(|known| known.name == key).map_or("", |known| known.name);
        let json =
            value.as_str().filter(|_| JSON.contains(&name)).and_then(|text| serde_json::from_str(text).ok());
        own.insert(family.name_in_file(name).into(), json.unwrap_or(value));
    }
    own.remove("");
    // Phi-3's counts beside the table.
    let original = own.get("rope_scaling").and_then(|table| table.get("original_max_position_embeddings"));
    if let Some(original) = original.cloned() {
        own.insert("original_max_position_embeddings".into(), original);
    }
    // Where a file has none, transformers takes another.
    if pad.is_some() || family.padding.is_some() {
        own.insert("pad_token_id".into(), json!(pad));
    }
    let switch = family.window_switch.filter(|_| config.sliding_window.is_some());
    own.extend(switch.map(|switch| (switch.into(), json!(true))));
    let (field, default) = family.activation;
    let activation = config.activation.as_deref().unwrap_or(default);
    own.extend([("architectures".into(), json!([family.class])), (field.into(), json!(activation))]);
    own.insert("model_type".into(), json!(family.kind));
    let mut file = match base {
        Some(ConfigFile { whole: Some(file), .. }) => file,
        // The weights have a head now, also where they had none.
        Some(ConfigFile { keys: mut file, .. }) => {
            file.extend(own.remove_entry("architectures"));
            file
        }
        None => own,
    };
    let stored = match stored {
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        _ => "float32",
    };
    // The newer and the older name.
    let dtypes = ["dtype", "torch_dtype"];
    if !dtypes.iter().any(|key| file.contains_key(*key)) {
        file.insert("torch_dtype".into(), json!(stored));
    }
    inner::both(&mut file, |part| {
        dtypes.iter().filter_map(|key| part.get_mut(*key).map(|dtype| *dtype = json!(stored))).for_each(drop);
        if let Some(ends) = ends {
            with_ends(part, ends);
        }
    });
    file.insert(MARK.into(), json!(RUNNER));
    Value::Object(file)
}

/// Names the tokens that begin and end a text, in a `config.json` or `generation_config.json`.
pub fn with_ends(file: &mut Map<String, Value>, ends: &[u32]) {
    let all = if ends.len() > 1 { json!(ends) } else { json!(ends.first()) };
    file.extend([("bos_token_id".into(), json!(ends.first())), ("eos_token_id".into(), all)]);
}
