//! How a `config.json` says what the parts of a network are: activations, windows of attention, rotary positions.

use serde_json::{Map, Value, json};

use super::ConfigFile;
use super::hugging_face::wrong_type;
use crate::model::families::Family;
use crate::ops::rope::{RopeParameters, Scaling};

impl ConfigFile {
    /// Adds transformers' defaults of keys that are absent; a null is another value.
    pub fn by_default(&self, written: &mut Map<String, Value>, defaults: &[(&str, u64)]) {
        for (key, value) in defaults.iter().filter(|(key, _)| !self.has(key)) {
            written.insert((*key).into(), json!(value));
        }
    }

    /// Takes the MLP's activation away where it is the family's default.
    ///
    /// # Errors
    /// When the family does not have it.
    pub(super) fn read_activation(
        &self,
        family: &Family,
        written: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let (field, default) = family.activation;
        let activation = self.get(field).cloned().unwrap_or_else(|| json!(default));
        let known = family.activations;
        if !known.iter().any(|known| activation == *known) {
            let known: Vec<String> = known.iter().map(|known| json!(known).to_string()).collect();
            let are = if known.len() == 1 { "is" } else { "are" };
            return Err(format!("{field} = {activation} is not supported; only {} {are}", known.join(", ")));
        }
        if activation == default {
            written.remove("activation");
        }
        Ok(())
    }

    /// Refuses windows of attention.
    ///
    /// # Errors
    /// The key that asks for one.
    pub fn refuse_windows(&self) -> Result<(), String> {
        self.only("use_sliding_window", json!(false))?;
        self.only("use_mrope", json!(false))?;
        if let Some(types) = self.get("layer_types") {
            let layers = types.as_array().ok_or("layer_types must be a list with the type of each layer")?;
            for layer in layers {
                Self::refuse_unless("layer_types", layer, &json!("full_attention"))?;
            }
        }
        Ok(())
    }

    /// Adds which layers have windows, where some have: by `layer_types`, or those from `max_window_layers` on.
    ///
    /// # Errors
    /// When a list of layers cannot be read.
    pub fn read_windows(&self, written: &mut Map<String, Value>) -> Result<(), String> {
        let window = written.remove("sliding_window");
        let types = written.remove("layer_types");
        if self.get("use_sliding_window") != Some(&json!(true)) {
            return self.refuse_windows();
        }
        let Some(window) = window else { return Ok(()) };
        let layers = written.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or(0);
        let from = self.get("max_window_layers").and_then(Value::as_u64).unwrap_or(28);
        let kind = |layer| if layer < from { "full_attention" } else { "sliding_attention" };
        let of_layers = || json!(json!((0..layers).map(kind).collect::<Vec<_>>()).to_string());
        written.extend([
            ("sliding_window".into(), window),
            ("layer_types".into(), types.unwrap_or_else(of_layers)),
        ]);
        Ok(())
    }

    /// Adds what rotary positions are: `rope_theta` and `partial_rotary_factor` stand at the top level in older files and
    /// in the table `rope_parameters` in newer ones, with how positions are scaled; `rope_scaling` is that table's older
    /// name. A table of the family's own is `own`.
    ///
    /// # Errors
    /// What the file asks for and is not computed.
    pub fn read_rope(
        &self,
        family: &Family,
        own: Option<&Map<String, Value>>,
        written: &mut Map<String, Value>,
    ) -> Result<(), String> {
        written.remove("rope_scaling");
        let longest = written.get("max_position_embeddings").and_then(Value::as_u64).unwrap_or(2048) as usize;
        for name in ["rope_scaling", "rope_parameters"] {
            let table = match self.raw(name) {
                None | Some(Value::Null) => continue,
                Some(Value::Object(table)) => own.filter(|_| name == "rope_parameters").unwrap_or(table),
                Some(other) => return Err(wrong_type(name, other, "a table")),
            };
            let read = RopeParameters::read(table, longest, None).map_err(|e| format!("{name}: {e}"))?;
            for (key, value) in [("rope_theta", read.theta), ("partial_rotary_factor", read.fraction)] {
                let Some(value) = value else { continue };
                if !family.section.keys.iter().any(|known| known.name == key) {
                    Self::refuse_unless(&format!("{name}.{key}"), &json!(value), &json!(1.0))?;
                } else if written.get(key).is_some_and(|other| other.as_f64() != Some(value)) {
                    let other = family.name_in_file(key);
                    return Err(format!("{name}.{key} and {other} differ; remove the wrong one"));
                } else {
                    written.insert(key.into(), json!(value));
                }
            }
            if read.scaling != Scaling::None {
                let mut scaling = table.clone();
                scaling.retain(|key, _| !["rope_theta", "partial_rotary_factor"].contains(&key.as_str()));
                written.insert("rope_scaling".into(), json!(Value::Object(scaling).to_string()));
            }
        }
        Ok(())
    }

    /// The same of a family with rotary positions for each type of layer: newer files have a table for each in
    /// `rope_parameters`, and that of layers with windows is not scaled.
    ///
    /// # Errors
    /// What the file asks for and is not computed.
    pub fn read_ropes_by_type(
        &self,
        family: &Family,
        written: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let tables = self.get("rope_parameters").and_then(Value::as_object);
        let table = |kind: &str| tables.and_then(|tables| tables.get(kind)).and_then(Value::as_object);
        if let Some(local) = table("sliding_attention") {
            written.remove("rope_local_base_freq");
            for (key, value) in local {
                if key == "rope_theta" {
                    written.insert("rope_local_base_freq".into(), value.clone());
                } else {
                    Self::refuse_unless(key, value, &json!("default"))?;
                }
            }
        }
        self.read_rope(family, table("full_attention"), written)
    }
}
