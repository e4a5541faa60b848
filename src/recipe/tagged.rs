//! Keys that choose which other keys there are (`model.kind`, `data.sampler`).
//!
//! In a recipe and in a row they are in one table with the keys that they choose: `{ kind = "adamw", lr = 1e-3 }`.
//! serde's own internally tagged enums lose the place of an error and accept unknown keys, so the tables are
//! rewritten to the externally tagged form `{ adamw = { lr = 1e-3 } }` before serde sees them, and back after.

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{RecipeError, Source};
use super::keys;

/// Sections that are their kind and its keys alone, with the name of the key that is the kind.
const TAGGED: [(&str, &str); 5] = [
    ("model", KIND),
    ("precision.scaler", KIND),
    ("train.optimizer", KIND),
    ("train.schedule", KIND),
    ("tuning", "method"),
];
/// The key of the first of them.
pub const KIND: &str = "kind";

/// Sections with keys of their own also, and the key that chooses the others, which are serde's `offload.strategy` and
/// `task.kind`.
const GATHERED: [(&str, &str); 2] = [("offload", "strategy"), ("task", KIND)];

/// The section that has keys of its own and those of the sampler, which are serde's `data.sampler`.
const DATA: &str = "data";
const SAMPLER: &str = "sampler";
/// The sampler without keys, of all text where no other is written.
const BLOCKS: &str = "blocks";

/// Rewrites every such section of a recipe, keeping the places in the file.
pub fn tag<'i>(root: &mut Spanned<DeTable<'i>>, source: &Source) -> Result<(), RecipeError> {
    for (name, tag) in TAGGED {
        let Some(section) = find_mut(root.get_mut(), name) else { continue };
        let span = section.span();
        let DeValue::Table(table) = section.get_mut() else {
            // A value of another type: serde says so, with its place.
            continue;
        };
        let Some((_, kind)) = table.remove_entry(tag) else {
            return Err(missing(tag, name, table, span, source));
        };
        *table = tagged(kind, std::mem::take(table), span, &format!("{name}.{tag}"), source)?;
    }
    for (path, key) in GATHERED {
        let Some(section) = root.get_mut().get_mut(path) else { continue };
        let span = section.span();
        if let DeValue::Table(section) = section.get_mut() {
            gather(section, path, key, span, source)?;
        }
    }
    match root.get_mut().get_mut(DATA).map(Spanned::get_mut) {
        Some(DeValue::Table(data)) => gather_sampler(data, source),
        _ => Ok(()),
    }
}

/// Whether a section's key is what such a section begins with.
pub fn is_tag(section: &str, key: &str) -> bool {
    TAGGED.contains(&(section, key))
}

/// Empties a section that says what it is where settings for it say so too. Of `[data]` only the keys of its sampler go:
/// the others are no sampler's.
pub fn forget(section: &mut DeTable<'_>, path: &str, settings: &DeTable<'_>) {
    let Some(tag) = keys::chooser(path) else { return };
    if !(settings.contains_key(tag) && section.contains_key(tag)) {
        return;
    }
    if path != DATA {
        section.clear();
        return;
    }
    for (key, _) in keys::chosen_by(DATA, SAMPLER).filter(|(_, of_one)| *of_one) {
        section.remove(key);
    }
}

/// `written`: the keys that the section has.
fn missing(
    key: &str,
    section: &str,
    written: &DeTable<'_>,
    span: std::ops::Range<usize>,
    source: &Source,
) -> RecipeError {
    let names: Vec<&str> = written.keys().map(|name| name.get_ref().as_ref()).collect();
    let kinds = match keys::kinds_with(section, key, &names) {
        none if none.is_empty() => keys::kinds(section, key),
        some => some,
    };
    source.at(
        Some(span),
        format!("the key `{key}` is missing in `{section}`"),
        format!("add `{key} = \"...\"` to `{section}`, which can be {}", kinds.join(", ")),
    )
}

/// `kind` and its keys in the externally tagged form.
fn tagged<'i>(
    kind: Spanned<DeValue<'i>>,
    keys: DeTable<'i>,
    span: std::ops::Range<usize>,
    name: &str,
    source: &Source,
) -> Result<DeTable<'i>, RecipeError> {
    let kind_span = kind.span();
    let DeValue::String(kind) = kind.into_inner() else {
        return Err(source.at(Some(kind_span), format!("`{name}` must be a string"), String::new()));
    };
    let mut out = DeTable::new();
    out.insert(Spanned::new(kind_span, kind), Spanned::new(span, DeValue::Table(keys)));
    Ok(out)
}

/// Moves the keys of a section that belong to a value of its `key` into that.
fn gather<'i>(
    section: &mut DeTable<'i>,
    path: &str,
    key: &str,
    span: std::ops::Range<usize>,
    source: &Source,
) -> Result<(), RecipeError> {
    let Some((name, chosen)) = section.remove_entry(key) else {
        return Err(missing(key, path, section, span, source));
    };
    let own = keys::chosen_by(path, key).filter_map(|(key, _)| section.remove_entry(key)).collect();
    let span = chosen.span();
    let chosen = tagged(chosen, own, span.clone(), &format!("{path}.{key}"), source)?;
    section.insert(name, Spanned::new(span, DeValue::Table(chosen)));
    Ok(())
}

/// Moves the keys of `[data]` that belong to a sampler into `data.sampler`.
fn gather_sampler<'i>(data: &mut DeTable<'i>, source: &Source) -> Result<(), RecipeError> {
    let (mut own, mut common) = (DeTable::new(), DeTable::new());
    for (key, of_one) in keys::chosen_by(DATA, SAMPLER) {
        if let Some((name, value)) = data.remove_entry(key) {
            if of_one { &mut own } else { &mut common }.insert(name, value);
        }
    }
    let written = data.remove_entry(SAMPLER);
    let Some((name, sampler)) = written.filter(|(_, sampler)| sampler.get_ref().as_str() != Some(BLOCKS))
    else {
        let first = common.iter().chain(own.iter()).map(|(key, _)| key).min_by_key(|key| key.span().start);
        return first.map_or(Ok(()), |key| {
            let others: Vec<_> = keys::kinds(DATA, SAMPLER).into_iter().filter(|kind| *kind != BLOCKS).collect();
            Err(source.at(
                Some(key.span()),
                format!(
                    "`{}` is a key of data.sampler; without one, or with blocks, the text is cut into equal blocks",
                    key.get_ref()
                ),
                format!("remove it, or set data.sampler to one of: {}", others.join(", ")),
            ))
        });
    };
    let span = sampler.span();
    let sampler = tagged(sampler, own, span.clone(), &format!("{DATA}.{SAMPLER}"), source)?;
    common.insert(name.clone(), Spanned::new(span.clone(), DeValue::Table(sampler)));
    data.insert(name, Spanned::new(span, DeValue::Table(common)));
    Ok(())
}

/// The value of a dotted key, if it is written.
pub fn find<'a, 'i>(table: &'a DeTable<'i>, path: &str) -> Option<&'a Spanned<DeValue<'i>>> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let value = table.get(first)?;
    if rest.is_empty() { Some(value) } else { find(value.get_ref().as_table()?, rest) }
}

pub fn find_mut<'a, 'i>(root: &'a mut DeTable<'i>, path: &str) -> Option<&'a mut Spanned<DeValue<'i>>> {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    table_of(root, parent)?.get_mut(name)
}

/// The table of a dotted key; of an empty one the root.
pub fn table_of<'a, 'i>(root: &'a mut DeTable<'i>, path: &str) -> Option<&'a mut DeTable<'i>> {
    if path.is_empty() {
        return Some(root);
    }
    match find_mut(root, path)?.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// The inverse of [`tag`] in a serialised cell.
pub fn flatten_tags(cell: &mut Value) {
    for (path, tag) in TAGGED {
        let pointer = format!("/{}", path.replace('.', "/"));
        if let Some(Value::Object(section)) = cell.pointer_mut(&pointer) {
            *section = untagged(std::mem::take(section), tag);
        }
    }
    for (path, key) in GATHERED {
        if let Some(Value::Object(section)) = cell.get_mut(path)
            && let Some(Value::Object(chosen)) = section.remove(key)
        {
            section.extend(untagged(chosen, key));
        }
    }
    let Some(Value::Object(data)) = cell.get_mut(DATA) else { return };
    match data.get_mut(SAMPLER).map(Value::take) {
        Some(Value::Object(mut common)) => {
            if let Some(Value::Object(sampler)) = common.remove(SAMPLER) {
                data.extend(untagged(sampler, SAMPLER));
            }
            data.extend(common);
        }
        _ if data["train_split"].is_null() => {}
        _ => _ = data.insert(SAMPLER.into(), BLOCKS.into()),
    }
}

/// `{ "adamw": { "lr": … } }` → `{ "kind": "adamw", "lr": … }`
fn untagged(tagged: Map<String, Value>, tag: &str) -> Map<String, Value> {
    let mut out = Map::new();
    for (kind, keys) in tagged {
        out.extend(keys.as_object().cloned().unwrap_or_default());
        out.insert(tag.into(), kind.into());
    }
    out
}
