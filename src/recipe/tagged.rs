//! Sections whose `kind` chooses their other keys (`[model]`, `train.optimizer`).
//!
//! In a recipe and in a row they read `{ kind = "adamw", lr = 1e-3 }`. serde's own internally
//! tagged enums lose the place of an error and accept unknown keys, so the table is rewritten to
//! the externally tagged form `{ adamw = { lr = 1e-3 } }` before serde sees it, and back after.

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{RecipeError, Source};

/// Paths of the tagged sections.
const TAGGED: [&[&str]; 4] =
    [&["model"], &["precision", "scaler"], &["train", "optimizer"], &["train", "schedule"]];
const TAG: &str = "kind";

/// Rewrites every tagged section of a recipe, keeping the places in the file.
pub fn tag<'i>(root: &mut Spanned<DeTable<'i>>, source: &Source) -> Result<(), RecipeError> {
    for path in TAGGED {
        let Some(section) = find(root.get_mut(), path) else { continue };
        let span = section.span();
        let name = path.join(".");
        let DeValue::Table(table) = section.get_mut() else {
            // A value of another type: serde says so, with its place.
            continue;
        };
        let Some((_, kind)) = table.remove_entry(TAG) else {
            return Err(source.at(
                Some(span),
                format!("the key `{TAG}` is missing in `{name}`"),
                format!("add `{TAG} = \"...\"` to `{name}`"),
            ));
        };
        let kind_span = kind.span();
        let DeValue::String(kind) = kind.into_inner() else {
            return Err(source.at(
                Some(kind_span),
                format!("`{name}.{TAG}` must be a string"),
                String::new(),
            ));
        };
        let fields = std::mem::take(table);
        table.insert(Spanned::new(kind_span, kind), Spanned::new(span, DeValue::Table(fields)));
    }
    Ok(())
}

fn find<'a, 'i>(table: &'a mut DeTable<'i>, path: &[&str]) -> Option<&'a mut Spanned<DeValue<'i>>> {
    let value = table.get_mut(path[0])?;
    if path.len() == 1 {
        return Some(value);
    }
    match value.get_mut() {
        DeValue::Table(inner) => find(inner, &path[1..]),
        _ => None,
    }
}

/// `{ "adamw": { "lr": … } }` → `{ "kind": "adamw", "lr": … }` in a serialised cell.
pub fn flatten_tags(cell: &mut Value) {
    for_each_tagged(cell, |section| {
        let Some((kind, fields)) = section.as_object_mut().and_then(|map| {
            let kind = map.keys().next()?.clone();
            map.remove(&kind).map(|fields| (kind, fields))
        }) else {
            return;
        };
        let mut flat = fields.as_object().cloned().unwrap_or_default();
        flat.insert(TAG.into(), Value::String(kind));
        *section = Value::Object(flat);
    });
}

/// The inverse of [`flatten_tags`].
pub fn restore_tags(cell: &mut Value) {
    for_each_tagged(cell, |section| {
        let Some(map) = section.as_object_mut() else { return };
        let Some(Value::String(kind)) = map.remove(TAG) else { return };
        let fields = Value::Object(std::mem::take(map));
        map.insert(kind, fields);
    });
}

fn for_each_tagged(cell: &mut Value, edit: impl Fn(&mut Value)) {
    for path in TAGGED {
        let pointer = format!("/{}", path.join("/"));
        if let Some(section) = cell.pointer_mut(&pointer) {
            edit(section);
        }
    }
}
