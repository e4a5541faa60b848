//! [`Settings`]: nested values under dotted keys.

use std::collections::BTreeMap;

use serde_json::Value;

/// A cell as dotted keys and values, spelled as in the recipe: `"train.batch_size" → 4`.
pub type Settings = BTreeMap<String, Value>;

/// Those of a serialised cell. A key that is null has no value: it is left out.
pub fn settings(cell: &Value) -> Settings {
    let mut settings = flatten(cell);
    settings.retain(|_, value| !value.is_null());
    settings
}

/// Whether a dotted key is the other or within it: `a.b` is within `a`, `ab` is not.
pub fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Nested JSON as dotted keys and values.
pub fn flatten(value: &Value) -> Settings {
    fn walk(prefix: &str, value: &Value, out: &mut Settings) {
        let Value::Object(map) = value else {
            out.insert(prefix.to_string(), value.clone());
            return;
        };
        for (key, inner) in map {
            let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            walk(&path, inner, out);
        }
    }
    let mut out = Settings::new();
    walk("", value, &mut out);
    out
}
