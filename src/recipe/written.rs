//! [`Cell::written`]: a cell as a recipe needs to write it.

use serde_json::Value;

use super::Cell;
use super::keys;
use super::tagged::is_tag;
use crate::keys::Settings;

impl Cell {
    /// [`Cell::to_json`] without keys that are null or have their default: written out, some defaults are refused as having
    /// no effect. A step by launches is written as one where `"auto"` would record it.
    pub fn written(&self) -> Value {
        let mut written = pruned(self.to_json(), "", &self.settings()).expect("a cell is no null");
        if !self.train.graph && self.is_recorded_by_default() {
            written["train"]["graph"] = false.into();
        }
        written
    }
}

/// `None` of a key that is left out.
fn pruned(value: Value, path: &str, settings: &Settings) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(table) => {
            let kept = |(name, value): (String, Value)| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                Some((name, pruned(value, &path, settings)?))
            };
            Some(table.into_iter().filter_map(kept).collect())
        }
        value => (!goes_without_saying(path, &value, settings)).then_some(value),
    }
}

/// Whether a recipe without the key has this value. A model's sizes have no defaults, a table names its kind, and a default
/// that follows from another key is not had beside it.
fn goes_without_saying(path: &str, value: &Value, settings: &Settings) -> bool {
    keys::of(path, settings).is_some_and(|entry| {
        let section = entry.section.path;
        let always = section == "model" || is_tag(section, entry.key.name) || !entry.key.follows.is_empty();
        !always && keys::is_default(path, value, settings)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::recipe::{Recipe, Source};

    /// Of every committed recipe, on its side for a GPU.
    #[test]
    fn what_is_written_is_read_as_the_same_cell() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes");
        let mut count = 0;
        for file in std::fs::read_dir(folder).expect("recipes") {
            let path = file.expect("a file").path();
            let recipe = Recipe::parse_finished(&Source::read(&path).expect("a recipe"), false);
            // The models and data of some are not here.
            for cell in recipe.map(|recipe| recipe.cells).unwrap_or_default() {
                let mut table = toml::Table::from_iter([("title".to_string(), "written".into())]);
                table.extend(toml::Table::try_from(cell.written()).expect("a table"));
                let text = toml::to_string(&table).expect("a recipe");
                let source = Source { path: "written.toml".into(), text };
                let again = Recipe::parse_finished(&source, false);
                let again = again.unwrap_or_else(|e| panic!("{}: {e}\n{}", path.display(), source.text));
                // How many processes measure a cell is not of the cell, nor who decides about its graph.
                let mut cell = cell;
                cell.measure.repeats = again.cells[0].measure.repeats;
                cell.train.graph_is_open = again.cells[0].train.graph_is_open;
                assert_eq!(again.cells, [cell], "{}\n{}", path.display(), source.text);
                count += 1;
            }
        }
        assert!(count > 300, "{count} cells");
    }
}
