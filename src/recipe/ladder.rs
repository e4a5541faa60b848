//! `[[ladder]]`: cells that each add settings to those of the cell before.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeString, DeValue, Deserializer};

use super::diagnostic::{RecipeError, Source};
use super::grid::{Layer, Variant, axes};
use super::report::Stage;

const SET: &str = "set";

/// The settings of each rung behind those of the rungs before it, and its name.
///
/// # Errors
/// A ladder of another type, or a rung without a name or with several values of a key.
pub fn expand<'i>(
    (name, rungs): (Spanned<DeString<'i>>, Spanned<DeValue<'i>>),
    source: &Source,
) -> Result<Vec<Variant<'i>>, RecipeError> {
    let wrong_type = |span| {
        source.at(
            Some(span),
            "`ladder` must be a list of tables, one for each rung".into(),
            "write [[ladder]] followed by name = \"...\" and set = { \"precision.compute\" = \"bf16\" }"
                .into(),
        )
    };
    let DeValue::Array(rungs) = rungs.into_inner() else { return Err(wrong_type(name.span())) };
    let mut so_far: Vec<Layer<'i>> = Vec::new();
    let mut out = Vec::with_capacity(rungs.len());
    for rung in rungs {
        let span = rung.span();
        let DeValue::Table(mut rung) = rung.into_inner() else { return Err(wrong_type(span)) };
        if let Some((set, values)) = rung.remove_entry(SET) {
            let DeValue::Table(values) = values.into_inner() else {
                return Err(source.at(
                    Some(set.span()),
                    "`set` must be a table of keys and values".into(),
                    "write set = { \"precision.compute\" = \"bf16\" }".into(),
                ));
            };
            let mut layer = Layer::new();
            for (key, mut values) in axes(values, source)? {
                if values.len() != 1 {
                    return Err(source.at(
                        Some(key.span()),
                        format!("the rung has {} values of `{}`", values.len(), key.get_ref()),
                        "give it one: a ladder has one cell for each rung".into(),
                    ));
                }
                layer.push((key, values.remove(0)));
            }
            so_far.push(layer);
        }
        let stage = Stage::deserialize(Deserializer::from(Spanned::new(span, rung)))
            .map_err(|e| source.toml_error(&e, &[SET]))?;
        out.push(Variant { layers: so_far.clone(), name: stage.name.clone(), stage: Some(stage) });
    }
    if out.is_empty() {
        return Err(wrong_type(name.span()));
    }
    Ok(out)
}
