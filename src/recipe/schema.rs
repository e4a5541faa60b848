//! The JSON Schema (draft 7) of a recipe, from the key table: editors complete and check recipes by it.

use serde_json::{Map, Value, json};

use super::keys::{self, Entry};
use super::{GRID, LADDER, ON_CPU};
use crate::words::key::Values;

/// Accepts every recipe whose keys and values are known; rules over several keys are `runner check`'s.
pub fn schema() -> Value {
    let mut root = section("");
    let properties = root["properties"].as_object_mut().expect("an object");
    let mut on_cpu = properties.clone();
    for sections in [&mut *properties, &mut on_cpu] {
        sections.insert(GRID.into(), grid());
        sections.insert(LADDER.into(), ladder());
    }
    properties.extend(header());
    properties.insert(
        ON_CPU.into(),
        described(closed(on_cpu), "Sections that take the place of the recipe's own where it runs on a CPU."),
    );
    root["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    root["title"] = "A recipe of runner".into();
    root["required"] = json!(["title"]);
    root
}

/// The keys that are no cell's.
fn header() -> Map<String, Value> {
    let text = |doc: &str| described(json!({ "type": "string" }), doc);
    let report = json!({
        "baseline": described(selection(), "Settings of the method that every other one is compared with, at equal sizes."),
        "published": {
            "description": "Results published elsewhere, shown beside ours.",
            "type": "array",
            "items": closed(object(json!({
                "cell": described(selection(), "The settings it belongs to."),
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
        "stage": { "type": "string", "description": "Its name in tables and charts." },
        "why": { "type": "string", "description": "What the stage before it wasted, and why that costs." },
    }))
}

fn grid() -> Value {
    let table = closed(axes("", true));
    let doc = "Keys and lists of values: each combination is a cell. Several tables are joined.";
    described(json!({ "anyOf": [table.clone(), { "type": "array", "items": table }] }), doc)
}

fn ladder() -> Value {
    let mut rung = stage();
    let set = described(closed(axes("", false)), "What it sets in addition to the rungs before it.");
    rung.insert("set".into(), set);
    let mut rung = closed(rung);
    rung["required"] = json!(["stage"]);
    let doc = "Cells that each add settings to those of the one before.";
    described(json!({ "type": "array", "items": rung, "minItems": 1 }), doc)
}

/// Dotted keys and nested tables of them below a section; each with one value, or a list where `many`.
fn axes(path: &str, many: bool) -> Map<String, Value> {
    let below = |other: &str| path.is_empty() || other.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    let relative = |other: &str| if path.is_empty() { other.to_string() } else { other[path.len() + 1..].to_string() };
    let one_or_many = |one: Value| match many {
        true => json!({ "anyOf": [one.clone(), { "type": "array", "items": one, "minItems": 1 }] }),
        false => one,
    };
    let mut out = Map::new();
    for path in sections().into_iter().filter(|other| !other.is_empty() && below(other)) {
        let mut values = vec![closed(axes(&path, many))];
        values.extend(many.then(|| json!({ "type": "array", "items": section(&path), "minItems": 1 })));
        out.insert(relative(&path), json!({ "anyOf": values }));
    }
    for path in paths().into_iter().filter(|other| below(other)) {
        out.insert(relative(&path), one_or_many(key(&path)));
    }
    out
}

/// The keys of a section and the sections in it.
fn section(path: &str) -> Value {
    let mut properties = Map::new();
    let name = |child: &str| child.rsplit('.').next().unwrap_or(child).to_string();
    let parent = |child: &str| child.rsplit_once('.').map_or(String::new(), |(parent, _)| parent.into());
    for child in paths().into_iter().filter(|child| parent(child) == path) {
        properties.insert(name(&child), key(&child));
    }
    for child in sections().into_iter().filter(|child| !child.is_empty() && parent(child) == path) {
        properties.insert(name(&child), section(&child));
    }
    let mut out = closed(properties.clone());
    let own: Vec<_> = keys::sections().filter(|section| section.path == path).collect();
    if let Some(first) = own.first() {
        out["description"] = first.doc.into();
    }
    // What each kind has no key of.
    let mut rules = Vec::new();
    let choosers = own.iter().filter_map(|section| section.kind.map(|kind| kind.key));
    for chooser in choosers.collect::<std::collections::BTreeSet<_>>() {
        for value in keys::kinds(path, chooser) {
            let foreign = |name: &&String| {
                let mut of_name = own.iter().filter(|section| section.keys.iter().any(|key| key.name == name.as_str()));
                of_name.clone().next().is_some()
                    && of_name.all(|section| {
                        section.kind.is_some_and(|kind| !kind.values.is_empty() && !kind.values.contains(&value))
                    })
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

/// The values of a key, of whichever kind.
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
        Values::Words(words) => json!({ "enum": words }),
        Values::Kinds => json!({ "enum": keys::kinds(entry.section.path, entry.key.name) }),
        Values::Whole { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Values::Number(range) => range.schema(),
        Values::Scale => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Values::Numbers(numbers) => json!({ "enum": numbers }),
        Values::Bytes => json!({ "type": ["string", "integer"], "examples": ["11 GiB", "500 MB"] }),
        Values::Text => json!({ "type": "string" }),
        Values::Path(words) => json!({ "type": "string", "examples": words }),
    };
    out["description"] = entry.key.doc.into();
    if let Some(default) = entry.key.default.value() {
        out["default"] = default;
    }
    out
}

/// Dotted keys and their values, of a cell.
fn selection() -> Value {
    let properties: Map<String, Value> = paths().into_iter().map(|path| (path.clone(), key(&path))).collect();
    closed(properties)
}

fn paths() -> Vec<String> {
    let mut paths: Vec<String> = keys::all().iter().map(|entry| entry.path.clone()).collect();
    let mut seen = std::collections::HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    paths
}

fn sections() -> Vec<String> {
    let mut paths: Vec<String> = keys::sections().map(|section| section.path.to_string()).collect();
    let mut seen = std::collections::HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    paths
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
