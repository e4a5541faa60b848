//! `--set key=value`: settings that take the place of a recipe's own in every cell.
//!
//! They are written at the end of the recipe's text as tables `[[set]]`, one for each command line, so that
//! an error shows them with their place and the copy in the results folder says all that was run.

use std::fmt;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{RecipeError, Source};
use super::grid::Layer;
use super::{GRID, NOT_OF_CELLS, ON_CPU, head, overlay};
use crate::keys::is_within;

const SET: &str = "set";
const DEVICE: &str = "device";

/// One `key=value` of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Dotted, as in a grid.
    key: String,
    /// As TOML writes it.
    value: String,
}

impl Setting {
    pub fn new(key: &str, value: impl Into<toml::Value>) -> Self {
        Self { key: key.into(), value: value.into().to_string() }
    }

    /// Dotted.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether this sets a key or something in it.
    pub fn is_within(&self, key: &str) -> bool {
        is_within(&self.key, key)
    }

    /// Whether this sets a key, something in it or what it is in.
    pub fn concerns(&self, key: &str) -> bool {
        is_within(&self.key, key) || is_within(key, &self.key)
    }
}

/// As the command line takes it.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl FromStr for Setting {
    type Err = String;

    /// `key=value`; a value that is not TOML is text.
    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) =
            text.split_once('=').ok_or("write key=value, such as train.batch_size=4".to_string())?;
        let (key, value) = (key.trim(), value.trim());
        if key.split('.').any(|part| part.trim().is_empty()) {
            return Err(format!("`{key}` is not a dotted key: write section.key=value"));
        }
        match DeValue::parse(value) {
            Ok(_) => Ok(Self { key: key.into(), value: value.into() }),
            Err(_) => Ok(Self::new(key, value)),
        }
    }
}

impl Source {
    /// This recipe with settings in place of its own; of several for one key the last counts.
    #[must_use]
    pub fn with(mut self, settings: &[Setting]) -> Self {
        if settings.is_empty() {
            return self;
        }
        let mut lines: Vec<&Setting> = Vec::new();
        for setting in settings {
            lines.retain(|earlier| earlier.key != setting.key);
            lines.push(setting);
        }
        self.text =
            format!("{}\n\n# From --set: in place of what stands above.\n[[{SET}]]\n", self.text.trim_end());
        for Setting { key, value } in lines {
            let key = toml::Value::String(key.clone());
            self.text += &format!("{key} = {value}\n");
        }
        self
    }
}

/// A recipe's text as tables, apart from what is set by `--set`.
pub(super) struct Written<'i> {
    /// With what is set of the whole recipe, such as its title, in place.
    pub root: Spanned<DeTable<'i>>,
    /// What every cell takes last; `None` where nothing is set.
    pub set: Option<Vec<Layer<'i>>>,
    /// What cells on a CPU take behind `[on_cpu]`.
    pub on_cpu: Vec<Layer<'i>>,
}

impl Source {
    /// # Errors
    /// Text that is not TOML, or a setting whose key goes through a value.
    pub(super) fn written(&self) -> Result<Written<'_>, RecipeError> {
        let root = DeTable::parse(&self.text).map_err(|e| self.toml_error(&e, &[]))?;
        let mut written = Written { root, set: None, on_cpu: Vec::new() };
        let Some((name, tables)) = written.root.get_mut().remove_entry(SET) else { return Ok(written) };
        let wrong = |span| {
            let help = "write [[set]] followed by lines such as \"train.batch_size\" = 4";
            self.at(Some(span), format!("`{SET}` must be a list of tables"), help.into())
        };
        let DeValue::Array(tables) = tables.into_inner() else { return Err(wrong(name.span())) };
        let mut layers = Vec::new();
        for table in tables {
            let span = table.span();
            let DeValue::Table(table) = table.into_inner() else { return Err(wrong(span)) };
            layers.push(written.take(table, self)?);
        }
        written.set = Some(layers);
        Ok(written)
    }
}

impl<'i> Written<'i> {
    /// Returns the settings of a table that are those of cells, and puts the others where they belong.
    fn take(&mut self, table: DeTable<'i>, source: &Source) -> Result<Layer<'i>, RecipeError> {
        let (mut of_cells, mut on_cpu) = (Layer::new(), Layer::new());
        for (key, value) in overlay::layer(table) {
            let of_cpu = key.get_ref().strip_prefix(ON_CPU).and_then(|rest| rest.strip_prefix('.'));
            let of_recipe = |key: &str| NOT_OF_CELLS.contains(&head(key));
            match of_cpu.map(String::from) {
                Some(rest) if !of_recipe(&rest) => on_cpu.push((Spanned::new(key.span(), rest), value)),
                None if key.get_ref() != ON_CPU && !of_recipe(key.get_ref()) => of_cells.push((key, value)),
                _ => {
                    if let Some(axis) = key.get_ref().strip_prefix("grid.") {
                        remove_axis(self.root.get_mut(), axis);
                    }
                    overlay::put(self.root.get_mut(), &key, key.get_ref(), value, source)?;
                }
            }
        }
        if !on_cpu.is_empty() {
            self.on_cpu.push(on_cpu);
        }
        Ok(of_cells)
    }

    /// The device that its cells ask for, where no grid says another.
    pub fn device(&self) -> Option<&str> {
        let set = self.set.iter().flatten().flatten().rev().find(|(key, _)| key.get_ref() == DEVICE);
        set.map(|(_, value)| value).or_else(|| self.root.get_ref().get(DEVICE))?.get_ref().as_str()
    }
}

/// Removes an axis that the grid has as a quoted key; a nested one has its value replaced.
fn remove_axis(root: &mut DeTable<'_>, axis: &str) {
    if let Some(grid) = root.get_mut(GRID)
        && let DeValue::Table(grid) = grid.get_mut()
    {
        grid.remove(axis);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;

    const RECIPE: &str = "title = \"t\"\ndevice = \"cpu\"\n[model]\nkind = \"swiglu\"\nhidden_size = 8\n\
        intermediate_size = 8\nnum_hidden_layers = 1\n[train]\nbatch_size = 1\nseq_len = 4\n";

    fn with(more: &str, settings: &[&str]) -> Result<Recipe, String> {
        let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
        let source = Source { path: "r.toml".into(), text: format!("{RECIPE}{more}") }.with(&settings);
        Recipe::parse(&source).map_err(|e| format!("{:?}", miette::Report::new(e)))
    }

    #[test]
    fn a_value_is_toml_and_else_text() {
        for (text, value) in [
            ("a.b=3", "3"),
            ("a.b = true", "true"),
            ("a.b=1e-3", "1e-3"),
            ("a.b=\"x\"", "\"x\""),
            ("a.b={ kind = \"none\" }", "{ kind = \"none\" }"),
            ("a.b=overlap", "\"overlap\""),
            ("a.b=models/x=y", "\"models/x=y\""),
            ("a.b=", "\"\""),
            ("a.b=11 GiB", "\"11 GiB\""),
            ("a.b=1\nc = 2", "\"\"\"\n1\nc = 2\"\"\""),
        ] {
            assert_eq!(text.parse(), Ok(Setting { key: "a.b".into(), value: value.into() }), "{text}");
        }
        for text in ["a.b", "=3", "a..b=3"] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
    }

    #[test]
    fn settings_stand_over_the_recipe_and_its_grid() {
        let grid = "[grid]\n\"train.batch_size\" = [1, 2]\n\"checkpoint.level\" = [0, 1]\n";
        let sizes = |settings: &[&str]| -> Vec<usize> {
            with(grid, settings).unwrap().cells.iter().map(|cell| cell.train.batch_size).collect()
        };
        assert_eq!(sizes(&[]), [1, 1, 2, 2]);
        assert_eq!(sizes(&["train.batch_size=7"]), [7, 7]);
        assert_eq!(sizes(&["train.batch_size=7", "checkpoint.level=1", "train.batch_size=8"]), [8]);
        assert_eq!(sizes(&["train={batch_size = 3, seq_len = 2}"]), [3, 3]);
        assert_eq!(sizes(&["grid.train.batch_size=[4, 5]", "checkpoint.level=0"]), [4, 5]);
        assert_eq!(sizes(&["grid.train.batch_size=[4, 5]"]), [4, 5, 4, 5], "in place of the recipe's axis");
        let other = with("", &["title=other", "measure.steps=3"]).unwrap();
        assert_eq!((other.title.as_str(), other.cells[0].measure.steps), ("other", Some(3)));
        // The text says all: a copy of it is the same recipe, to which more can be set.
        let again = Recipe::parse(&Source { path: "r.toml".into(), text: other.text }).unwrap();
        assert_eq!(again.cells, other.cells);
    }

    #[test]
    fn settings_on_a_cpu_stand_over_its_sections() {
        let small = "[on_cpu]\ntrain = { batch_size = 2, seq_len = 8 }\n";
        let cells = with(small, &["train.batch_size=5"]).unwrap().cells;
        assert_eq!((cells[0].train.batch_size, cells[0].train.seq_len), (5, 8));
    }

    #[test]
    fn errors_are_the_recipes_own_and_show_the_setting() {
        for (setting, parts) in [
            ("train.batchsize=4", ["unknown key `batchsize`", "did you mean `batch_size`?"]),
            ("trian.batch_size=4", ["unknown key `trian`", "did you mean `train`?"]),
            ("train.batch_size=0", ["must be at least 1, not 0", "\"train.batch_size\" = 0"]),
            ("precision.compute=int3", ["unknown value `int3`", "fp32"]),
            ("device=cuda:9", ["the device \"cuda:9\" is not there", "\"device\" = \"cuda:9\""]),
            ("model.kind=swigul", ["unknown value `swigul`", "did you mean `swiglu`?"]),
            ("train.batch_size.x=4", ["goes through `batch_size`", "not a table"]),
        ] {
            let error = with("", &[setting]).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{setting}: {error}");
        }
    }

    /// What contradicts a folder's config.json stands in no one key, but one of them is meant.
    #[test]
    fn a_setting_that_does_not_go_with_a_folder_of_weights_is_marked() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/qwen2");
        let text = format!(
            "title = \"t\"\n[model]\nkind = \"qwen2\"\nweights = \"{folder}\"\n[train]\nbatch_size = 1\nseq_len = 4\n"
        );
        for setting in ["model.hidden_size=8", "model.kind=gpt2", "model.weights=/none", "model.preset=none"]
        {
            let source =
                Source { path: "r.toml".into(), text: text.clone() }.with(&[setting.parse().unwrap()]);
            let error = format!("{:?}", miette::Report::new(Recipe::parse(&source).unwrap_err()));
            assert!(error.contains("[r.toml:11:"), "{setting}: {error}");
        }
    }

    #[test]
    fn an_error_in_some_cells_names_the_first_of_them() {
        let grid = "[grid]\n\"train.batch_size\" = [1, 2]\n\"train.mode\" = [\"training\", \"inference\"]\n\
                    \"checkpoint.level\" = [0, 1]\n";
        let told = |more: &str, settings: &[&str]| {
            let error = with(more, settings).unwrap_err();
            error.replace('│', "").split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let of = told(grid, &["train.batch_size=1"]);
        assert!(of.contains("in the cell with train.mode = \"inference\", checkpoint.level = 1"), "{of}");
        let of_all = told(grid, &["train.mode=inference", "checkpoint.level=1"]);
        assert!(!of_all.contains("in the cell"), "{of_all}");
        let ladder = "[[ladder]]\nname = \"a\"\nset = { \"train.mode\" = \"inference\" }\n\
                      [[ladder]]\nname = \"b\"\nset = { \"checkpoint.level\" = 1 }\n";
        assert!(told(ladder, &[]).contains("in the cell with the rung \"b\""));
    }
}
