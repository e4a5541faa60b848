//! The JSON Schema (draft 7) of a recipe, from the key table: editors complete and check recipes by it.

use std::collections::BTreeSet;

use itertools::Itertools;
use serde_json::{Map, Value, json};

use super::keys::{self, Entry};
use super::{GRID, LADDER, ON_CPU};
use crate::keys::values::Values;

/// Accepts every recipe whose keys and values are known; rules over several keys are `runner check`'s.
pub fn schema() -> Value {
    let mut root = section("");
    let properties = root["properties"].as_object_mut().expect("an object");
    properties.extend([(GRID.into(), grid()), (LADDER.into(), ladder())]);
    properties.extend(header());
    let on_cpu = closed(properties.clone());
    let doc = "Settings that are laid over the recipe's own where it runs on a CPU, and a grid or ladder in place of its own.";
    properties.insert(ON_CPU.into(), described(on_cpu, doc));
    root["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    root["title"] = "A recipe of runner".into();
    root["required"] = json!(["title"]);
    root["definitions"] = definitions().into();
    root
}

/// The key at a path, a section, and axes of a grid or a rung's settings in it, by the names of [`defined`];
/// `all` is the whole of a cell.
fn definitions() -> Map<String, Value> {
    let mut all = Map::new();
    for path in paths() {
        all.insert(format!("key.{path}"), key(&path));
    }
    for path in sections().into_iter().filter(|path| !path.is_empty()) {
        all.insert(format!("section.{path}"), section(&path));
        all.insert(format!("axes.{path}"), closed(axes(&path, true)));
        all.insert(format!("rung.{path}"), closed(axes(&path, false)));
    }
    let settings = paths().into_iter().map(|path| (path.clone(), defined("key", &path))).collect();
    let mut of_grid = axes("", true);
    of_grid.insert(
        "name".into(),
        described(json!({ "type": "string" }), "What tables and charts call its cells."),
    );
    let whole = [("axes", of_grid), ("rung", axes("", false)), ("settings", settings)];
    all.extend(whole.map(|(name, properties)| (format!("{name}.all"), closed(properties))));
    all
}

fn defined(what: &str, path: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{what}.{path}") })
}

/// The keys that are no cell's.
fn header() -> Map<String, Value> {
    let text = |doc: &str| described(json!({ "type": "string" }), doc);
    let report = json!({
        "baseline": defined("settings", "all"),
        "published": {
            "description": "Results published elsewhere, shown next to ours.",
            "type": "array",
            "items": closed(object(json!({
                "cell": defined("settings", "all"),
                "forward": { "type": "number", "description": "Seconds." },
                "backward": { "type": "number", "description": "Seconds." },
                "memory": { "type": "number", "description": "Peak memory in GB." },
            }))),
        },
        "published_source": text("Who published them and on what."),
        "ladder": {
            "description": "What each cell of the grid is, where each improves on the one before; [[ladder]] gives both.",
            "type": "array",
            "items": closed(stage()),
        },
    });
    object(json!({
        "title": text("What the report is called."),
        "question": text("What the recipe answers, in a sentence or two."),
        "report": described(closed(object(report)), "What the report compares with what."),
        "set": {
            "description": "Settings in place of the recipe's own, as --set writes them.",
            "type": "array",
            "items": { "type": "object" },
        },
    }))
}

fn stage() -> Map<String, Value> {
    object(json!({
        "name": { "type": "string", "description": "Its name in tables and charts." },
        "why": { "type": "string", "description": "What the stage before it wasted, and why that costs." },
    }))
}

fn grid() -> Value {
    let table = defined("axes", "all");
    let doc = "Keys and lists of values: each combination is a cell. Several tables are joined.";
    described(json!({ "anyOf": [table.clone(), { "type": "array", "items": table }] }), doc)
}

fn ladder() -> Value {
    let mut rung = stage();
    rung.insert("set".into(), defined("rung", "all"));
    let mut rung = closed(rung);
    rung["required"] = json!(["name"]);
    let doc = "Cells of which each adds settings to the one before.";
    described(json!({ "type": "array", "items": rung, "minItems": 1 }), doc)
}

/// Dotted keys and nested tables of them below a section; each with one value, or a list where `many`.
fn axes(path: &str, many: bool) -> Map<String, Value> {
    let below =
        |other: &str| path.is_empty() || other.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    let relative =
        |other: &str| if path.is_empty() { other.to_string() } else { other[path.len() + 1..].to_string() };
    let one_or_many = |one: Value| match many {
        true => json!({ "anyOf": [one.clone(), { "type": "array", "items": one, "minItems": 1 }] }),
        false => one,
    };
    let mut out = Map::new();
    for path in sections().into_iter().filter(|other| !other.is_empty() && below(other)) {
        let value = match many {
            true => {
                let sections = json!({ "type": "array", "items": defined("section", &path), "minItems": 1 });
                json!({ "anyOf": [defined("axes", &path), sections] })
            }
            false => defined("rung", &path),
        };
        out.insert(relative(&path), value);
    }
    for path in paths().into_iter().filter(|other| below(other)) {
        out.insert(relative(&path), one_or_many(defined("key", &path)));
    }
    out
}

/// The keys of a section and the sections in it.
fn section(path: &str) -> Value {
    let mut properties = Map::new();
    let name = |child: &str| child.rsplit('.').next().unwrap_or(child).to_string();
    let parent = |child: &str| child.rsplit_once('.').map_or(String::new(), |(parent, _)| parent.into());
    for child in paths().into_iter().filter(|child| parent(child) == path) {
        properties.insert(name(&child), defined("key", &child));
    }
    for child in sections().into_iter().filter(|child| !child.is_empty() && parent(child) == path) {
        properties.insert(name(&child), defined("section", &child));
    }
    let mut out = closed(properties.clone());
    let own: Vec<_> = keys::sections().filter(|section| section.path == path).collect();
    if let Some(first) = own.first() {
        out["description"] = first.doc.into();
    }
    // What each kind has no key of.
    let mut rules = Vec::new();
    let choosers = own.iter().filter_map(|section| section.kind.map(|kind| kind.key));
    for chooser in choosers.collect::<BTreeSet<_>>() {
        for value in keys::kinds(path, chooser) {
            let foreign = |name: &&String| {
                let mut of_name =
                    own.iter().filter(|section| section.keys.iter().any(|key| key.name == name.as_str()));
                of_name.clone().next().is_some()
                    && of_name.all(|section| section.kind.is_some_and(|kind| !kind.has(value)))
            };
            let allowed: Vec<&String> = properties.keys().filter(|name| !foreign(name)).collect();
            rules.push(json!({
                "if": { "properties": { chooser: { "const": value } }, "required": [chooser] },
                "then": { "propertyNames": { "enum": allowed } },
            }));
        }
    }
    if !rules.is_empty() {
        out["allOf"] = rules.into();
    }
    out
}

/// The values of a key, of every kind.
fn key(path: &str) -> Value {
    let mut of_kinds: Vec<Value> = Vec::new();
    for entry in keys::all().iter().filter(|entry| entry.path == path) {
        let value = of_kind(entry);
        if !of_kinds.contains(&value) {
            of_kinds.push(value);
        }
    }
    if of_kinds.len() == 1 { of_kinds.remove(0) } else { json!({ "anyOf": of_kinds }) }
}

fn of_kind(entry: &Entry) -> Value {
    let mut out = match entry.key.values {
        Values::Bool => json!({ "type": "boolean" }),
        Values::BoolOr(words) => json!({ "anyOf": [{ "type": "boolean" }, { "enum": words }] }),
        Values::Words(words) => json!({ "enum": words }),
        Values::Kinds => json!({ "enum": keys::kinds(entry.section.path, entry.key.name) }),
        Values::Whole { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Values::WholeOr { least, most, words } => json!({
            "anyOf": [{ "type": "integer", "minimum": least, "maximum": most }, { "enum": words }],
        }),
        Values::Number(range) => range.schema(),
        Values::Scale => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Values::Numbers(numbers) => json!({ "enum": numbers }),
        Values::Bytes => json!({ "type": ["string", "integer"], "examples": ["11 GiB", "500 MB"] }),
        Values::Text => json!({ "type": "string" }),
        Values::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Values::Path(words) => json!({ "type": "string", "examples": words }),
    };
    out["description"] = entry.key.doc.into();
    if let Some(default) = entry.key.default.value() {
        out["default"] = default;
    }
    out
}

/// Without repetitions, in their order.
fn paths() -> Vec<String> {
    keys::all().iter().map(|entry| entry.path.clone()).unique().collect()
}

fn sections() -> Vec<String> {
    keys::sections().map(|section| section.path.to_string()).unique().collect()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// A table without other keys.
fn closed(properties: Map<String, Value>) -> Value {
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn described(mut schema: Value, doc: &str) -> Value {
    schema["description"] = doc.into();
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `runner schema > recipes/schema.json`
    #[test]
    fn the_schema_next_to_the_recipes_is_current() {
        let written: Value = serde_json::from_str(include_str!("../../recipes/schema.json")).unwrap();
        assert!(written == schema(), "write it again: runner schema > recipes/schema.json");
    }

    #[test]
    fn every_reference_is_defined() {
        fn walk(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    found.extend(map.get("$ref").and_then(Value::as_str).map(String::from));
                    map.values().for_each(|value| walk(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(value, found)),
                _ => {}
            }
        }
        let (schema, mut found) = (schema(), Vec::new());
        walk(&schema, &mut found);
        assert!(found.len() > 100);
        for reference in found {
            assert!(schema.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        // Kinds: momentum is SGD's, and AdamW has none.
        let rules = schema["definitions"]["section.train.optimizer"]["allOf"].as_array().unwrap();
        let names = |kind: &str| {
            let rule = rules.iter().find(|rule| rule["if"]["properties"]["kind"]["const"] == kind).unwrap();
            rule["then"]["propertyNames"]["enum"].as_array().unwrap().clone()
        };
        assert!(names("sgd").contains(&"momentum".into()) && !names("adamw").contains(&"momentum".into()));
    }
}
