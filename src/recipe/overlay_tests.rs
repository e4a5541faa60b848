//! Every way to write a setting makes the same cell: in grids, ladders, `[on_cpu]` and by `--set`, as dotted keys and as
//! tables.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::cases::{CASES, Case, base};
use super::super::tests::draw;
use super::super::{Recipe, Setting, Source, keys};

#[path = "overlay_cases_tests.rs"]
mod cases;

/// The recipe of a table of sections; what has an empty value is left out.
fn text(sections: &BTreeMap<&str, &str>) -> String {
    let written = sections.iter().filter(|(_, value)| !value.is_empty());
    written.map(|(path, value)| format!("{path} = {value}\n")).collect()
}

/// The cells of a recipe on a CPU; an error as it is drawn.
fn cells(text: &str, settings: &[String]) -> Result<Vec<Value>, String> {
    let settings: Vec<Setting> = settings.iter().map(|setting| setting.parse().unwrap()).collect();
    let source = Source { path: "r.toml".into(), text: text.into() }.with(&settings);
    let recipe = Recipe::parse_finished(&source, true).map_err(|e| draw(&e))?;
    Ok(recipe.cells.iter().map(|cell| cell.to_json()).collect())
}

/// What stands behind a recipe, and what is set of it.
type Route = (String, Vec<String>);

/// A change of a section as it may be written.
struct Written<'a> {
    section: &'a str,
    change: &'a [(&'a str, &'a str)],
    /// An inline table of the keys.
    table: String,
    /// The same from the first word of the section's path on, as tables, and with the other words in the keys.
    nested: [String; 2],
    first: &'a str,
}

impl<'a> Written<'a> {
    fn new(section: &'a str, change: &'a [(&'a str, &'a str)]) -> Self {
        let (first, rest) = section.split_once('.').unwrap_or((section, ""));
        let mut written = Self { section, change, table: String::new(), nested: Default::default(), first };
        let table = format!("{{ {} }}", written.pairs(|key, value| format!("{key} = {value}"), ", "));
        written.nested = match rest {
            "" => [table.clone(), table.clone()],
            _ => {
                let quoted = written.pairs(|key, value| format!("\"{rest}.{key}\" = {value}"), ", ");
                [format!("{{ {rest} = {table} }}"), format!("{{ {quoted} }}")]
            }
        };
        Self { table, ..written }
    }

    fn pairs(&self, pair: impl Fn(&str, &str) -> String, between: &str) -> String {
        self.change.iter().map(|(key, value)| pair(key, value)).collect::<Vec<_>>().join(between)
    }

    fn dotted(&self, between: &str) -> String {
        self.pairs(|key, value| format!("\"{}.{key}\" = {value}", self.section), between)
    }

    /// Settings with the whole section.
    fn whole(&self) -> [String; 3] {
        let Self { section, table, nested: [up, quoted], first, .. } = self;
        [format!("\"{section}\" = {table}"), format!("{first} = {up}"), format!("{first} = {quoted}")]
    }

    /// Bodies of a grid.
    fn of_grids(&self) -> Vec<String> {
        let Self { section, table, nested, first, .. } = self;
        let lists = self.pairs(|key, value| format!("\"{section}.{key}\" = [{value}]"), "\n");
        let mut bodies = vec![self.dotted("\n"), lists, format!("{section} = {table}")];
        bodies.extend([format!("\"{section}\" = {table}"), format!("\"{section}\" = [{table}]")]);
        bodies.push(format!("{first} = {}", nested[0]));
        bodies.extend(nested.iter().map(|nested| format!("{first} = [{nested}]")));
        bodies
    }

    /// What `--set` may say.
    fn of_commands(&self) -> Vec<Vec<String>> {
        let Self { section, change, table, nested: [up, quoted], first } = self;
        let single: Vec<String> =
            change.iter().map(|(key, value)| format!("{section}.{key}={value}")).collect();
        let reversed = single.iter().rev().cloned().collect();
        let whole = [format!("{section}={table}"), format!("{first}={up}"), format!("{first}={quoted}")];
        [single, reversed].into_iter().chain(whole.map(|one| vec![one])).collect()
    }
}

/// Every way to write a change of a section.
fn routes(section: &str, change: &[(&str, &str)]) -> Vec<Route> {
    let written = Written::new(section, change);
    let lines = written.pairs(|key, value| format!("{key} = {value}"), "\n");
    let mut texts = Vec::new();
    for head in ["[grid]", "[[grid]]"] {
        texts.extend(written.of_grids().into_iter().map(|body| format!("{head}\n{body}\n")));
    }
    for head in [format!("[grid.{section}]"), format!("[on_cpu.{section}]")] {
        texts.push(format!("{head}\n{lines}\n"));
    }
    for set in std::iter::once(written.dotted(", ")).chain(written.whole()) {
        texts.push(format!("[[ladder]]\nstage = \"s\"\nset = {{ {set} }}\n"));
    }
    for body in std::iter::once(written.dotted("\n")).chain(written.whole()) {
        texts.push(format!("[on_cpu]\n{body}\n"));
    }
    let mut routes: Vec<Route> = texts.into_iter().map(|text| (text, Vec::new())).collect();
    for settings in written.of_commands() {
        let on_cpu = settings.iter().map(|setting| format!("on_cpu.{setting}")).collect();
        routes.extend([(String::new(), settings), (String::new(), on_cpu)]);
    }
    routes
}

fn with<'a>(
    mut sections: BTreeMap<&'a str, &'a str>,
    other: &[(&'a str, &'a str)],
) -> BTreeMap<&'a str, &'a str> {
    sections.extend(other.iter().copied());
    sections
}

#[test]
fn every_way_to_write_a_setting_makes_the_same_cell() {
    for Case { section, before, change, after } in CASES {
        let base = with(base(), before);
        let expected =
            cells(&text(&with(base.clone(), after)), &[]).unwrap_or_else(|e| panic!("{section}: {e}"));
        let alone = cells(&text(&base), &[]);
        assert_ne!(alone.as_ref().ok(), Some(&expected), "{section}: nothing changes");
        for (behind, settings) in routes(section, change) {
            // Both sides of [on_cpu] are checked.
            if alone.is_err() && format!("{behind}{settings:?}").contains("on_cpu") {
                continue;
            }
            let text = format!("{}{behind}", text(&base));
            match cells(&text, &settings) {
                Ok(found) => assert_eq!(found, expected, "{text}{settings:?}"),
                Err(error) => panic!("{text}{settings:?}\n{error}"),
            }
        }
    }
}

/// A new section with kinds needs a case.
#[test]
fn every_section_with_kinds_has_a_case() {
    let with_kinds: BTreeSet<&str> =
        keys::sections().filter(|section| section.kind.is_some()).map(|section| section.path).collect();
    let names_kind = |case: &&Case| {
        let tag = keys::chooser(case.section);
        case.change.iter().any(|(key, _)| Some(*key) == tag)
    };
    assert_eq!(CASES.iter().filter(names_kind).map(|case| case.section).collect::<BTreeSet<_>>(), with_kinds);
}

/// A rung that says what a section is begins it anew for all rungs behind it, and `--set` does for all cells.
#[test]
fn later_settings_replace_sections_of_earlier_ones() {
    let ladder = "[[ladder]]\nstage = \"a\"\nset = { \"train.optimizer.beta_1\" = 0.5 }\n\
        [[ladder]]\nstage = \"b\"\nset = { \"train.optimizer.lr\" = 0.3, \"train.optimizer.kind\" = \"adamw\" }\n\
        [[ladder]]\nstage = \"c\"\nset = { train.optimizer.weight_decay = 0.4 }\n";
    let optimizers = |behind: &str, settings: &[&str]| -> Vec<[f64; 3]> {
        let settings: Vec<String> = settings.iter().map(|text| (*text).to_string()).collect();
        let cells = cells(&format!("{}{behind}", text(&base())), &settings).unwrap_or_else(|e| panic!("{e}"));
        let number = |cell: &Value, key: &str| cell["train"]["optimizer"][key].as_f64().unwrap();
        cells.iter().map(|cell| ["lr", "beta_1", "weight_decay"].map(|key| number(cell, key))).collect()
    };
    assert_eq!(optimizers(ladder, &[]), [[1e-3, 0.5, 0.2], [0.3, 0.9, 0.01], [0.3, 0.9, 0.4]]);
    assert_eq!(optimizers(ladder, &["train.optimizer.beta_1=0.8"]).len(), 3);
    let one = ["train.optimizer={ kind = \"adamw\", lr = 2.0 }"];
    assert_eq!(optimizers(ladder, &one), [[2.0, 0.9, 0.01]], "one cell is left");
    assert_eq!(
        optimizers("[on_cpu.train.optimizer]\nbeta_1 = 0.5\n", &["on_cpu.train.optimizer.lr=0.7"]),
        [[0.7, 0.5, 0.2]]
    );
}

/// What is missing in a section that a setting replaces is missing where it does so.
#[test]
fn a_key_that_a_replaced_section_lacks_is_missed_at_the_setting() {
    let pipeline = ("parallel.pipeline", "{ stages = 2, schedule = \"gpipe\", micro_batches = 4 }");
    let base = text(&with(base(), &[pipeline]));
    let line = base.lines().count() + 2;
    let error =
        cells(&format!("{base}[grid]\n\"parallel.pipeline.schedule\" = [\"1f1b\"]\n"), &[]).unwrap_err();
    for part in ["the key `stages` is missing", &format!("r.toml:{line}:1"), "replaces all of"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
