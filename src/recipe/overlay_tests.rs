//! Every way to write a setting makes the same cell: in grids, ladders, `[on_cpu]` and by `--set`, as dotted keys and as
//! tables.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::tests::draw;
use super::super::{Recipe, Setting, Source, keys};

/// Sections of a small recipe, as inline tables by their dotted paths.
fn base() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("title", "\"t\""),
        ("device", "\"cpu\""),
        (
            "model",
            "{ kind = \"qwen2\", vocab_size = 257, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 4, \
             num_attention_heads = 2, num_key_value_heads = 1, \
             max_position_embeddings = 64, tie_word_embeddings = false }",
        ),
        ("train.batch_size", "4"),
        ("train.seq_len", "32"),
        ("train.optimizer", "{ kind = \"adamw\", lr = 1e-3, weight_decay = 0.2 }"),
        ("precision.compute", "\"fp32\""),
        ("data.corpus", "\"generated\""),
        ("data.size", "\"64 KiB\""),
    ])
}

/// A setting, the section it is in, and what the base has of this section and of others.
struct Case {
    section: &'static str,
    before: &'static [(&'static str, &'static str)],
    /// Keys and values in the section.
    change: &'static [(&'static str, &'static str)],
    /// What the base has then.
    after: &'static [(&'static str, &'static str)],
}

const CASES: &[Case] = &[
    Case {
        section: "train.optimizer",
        before: &[],
        change: &[("kind", "\"adamw\""), ("lr", "1e-4")],
        after: &[("train.optimizer", "{ kind = \"adamw\", lr = 1e-4 }")],
    },
    Case {
        section: "train.optimizer",
        before: &[],
        change: &[("momentum", "0.5"), ("lr", "0.1"), ("kind", "\"sgd\"")],
        after: &[("train.optimizer", "{ kind = \"sgd\", lr = 0.1, momentum = 0.5 }")],
    },
    Case {
        section: "train.optimizer",
        before: &[],
        change: &[("lr", "1e-4"), ("beta_2", "0.9")],
        after: &[("train.optimizer", "{ kind = \"adamw\", lr = 1e-4, weight_decay = 0.2, beta_2 = 0.9 }")],
    },
    // A section that does not say what it is has keys for all kinds.
    Case {
        section: "train.optimizer",
        before: &[("train.optimizer", "{ lr = 1e-3, weight_decay = 0.2 }")],
        change: &[("kind", "\"adamw8bit\"")],
        after: &[("train.optimizer", "{ kind = \"adamw8bit\", lr = 1e-3, weight_decay = 0.2 }")],
    },
    Case {
        section: "train.schedule",
        before: &[("train.schedule", "{ kind = \"cosine\", warmup_steps = 3, final_fraction = 0.5 }")],
        change: &[("kind", "\"cosine\""), ("warmup_steps", "2")],
        after: &[("train.schedule", "{ kind = \"cosine\", warmup_steps = 2 }")],
    },
    Case {
        section: "precision.scaler",
        before: &[
            ("precision.compute", "\"fp16\""),
            ("precision.autocast", "true"),
            ("precision.scaler", "{ kind = \"dynamic\", growth_interval = 7 }"),
        ],
        change: &[("kind", "\"dynamic\""), ("init_scale", "8")],
        after: &[("precision.scaler", "{ kind = \"dynamic\", init_scale = 8 }")],
    },
    Case {
        section: "tuning",
        before: &[("tuning", "{ method = \"lora\", rank = 4, alpha = 32 }")],
        change: &[("method", "\"lora\""), ("rank", "2")],
        after: &[("tuning", "{ method = \"lora\", rank = 2 }")],
    },
    Case {
        section: "tuning",
        before: &[("tuning", "{ method = \"lora\", rank = 4, alpha = 32 }")],
        change: &[("method", "\"bitfit\"")],
        after: &[("tuning", "{ method = \"bitfit\" }")],
    },
    Case {
        section: "offload",
        before: &[("offload", "{ strategy = \"overlap\", buffers = 3, activations = \"host\" }")],
        change: &[("strategy", "\"overlap\"")],
        after: &[("offload", "{ strategy = \"overlap\" }")],
    },
    Case {
        section: "offload",
        before: &[("offload", "{ strategy = \"overlap\", buffers = 3 }")],
        change: &[("activations", "\"host\"")],
        after: &[("offload", "{ strategy = \"overlap\", buffers = 3, activations = \"host\" }")],
    },
    Case {
        section: "parallel.pipeline",
        before: &[(
            "parallel.pipeline",
            "{ stages = 2, schedule = \"interleaved\", micro_batches = 2, chunks = 2 }",
        )],
        change: &[("stages", "2"), ("schedule", "\"gpipe\""), ("micro_batches", "4")],
        after: &[("parallel.pipeline", "{ stages = 2, schedule = \"gpipe\", micro_batches = 4 }")],
    },
    Case {
        section: "task",
        before: &[
            ("data.corpus", "\"task\""),
            ("data.sampler", "\"padded\""),
            ("data.size", ""),
            ("task", "{ kind = \"sums\", digits = 1, last_line = \"first\" }"),
        ],
        change: &[("kind", "\"sums\""), ("digits", "3")],
        after: &[("task", "{ kind = \"sums\", digits = 3 }")],
    },
    Case {
        section: "model",
        before: &[("data.corpus", ""), ("data.size", "")],
        change: &[
            ("kind", "\"swiglu\""),
            ("hidden_size", "4"),
            ("intermediate_size", "8"),
            ("num_hidden_layers", "1"),
        ],
        after: &[(
            "model",
            "{ kind = \"swiglu\", hidden_size = 4, intermediate_size = 8, num_hidden_layers = 1 }",
        )],
    },
    Case {
        section: "model",
        before: &[],
        change: &[("hidden_size", "16")],
        after: &[(
            "model",
            "{ kind = \"qwen2\", vocab_size = 257, hidden_size = 16, intermediate_size = 16, num_hidden_layers = 4, \
             num_attention_heads = 2, num_key_value_heads = 1, \
             max_position_embeddings = 64, tie_word_embeddings = false }",
        )],
    },
    // What is no sampler's stays.
    Case {
        section: "data",
        before: &[("data.sampler", "\"balanced\""), ("data.k", "4"), ("data.pad_to_multiple_of", "8")],
        change: &[("sampler", "\"packed\"")],
        after: &[("data.sampler", "\"packed\""), ("data.k", "")],
    },
    Case {
        section: "train",
        before: &[],
        change: &[("batch_size", "2"), ("clip_norm", "1.0")],
        after: &[("train.batch_size", "2"), ("train.clip_norm", "1.0")],
    },
];

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

/// Every way to write a change of a section.
fn routes(section: &str, change: &[(&str, &str)]) -> Vec<Route> {
    let pairs = |of: &dyn Fn(&str, &str) -> String, between: &str| -> String {
        change.iter().map(|(key, value)| of(key, value)).collect::<Vec<_>>().join(between)
    };
    let table = format!("{{ {} }}", pairs(&|key, value| format!("{key} = {value}"), ", "));
    let dotted = pairs(&|key, value| format!("\"{section}.{key}\" = {value}"), "\n");
    let dotted_inline = pairs(&|key, value| format!("\"{section}.{key}\" = {value}"), ", ");
    let lists = pairs(&|key, value| format!("\"{section}.{key}\" = [{value}]"), "\n");
    // One level up, and from the top.
    let (first, rest) = section.split_once('.').unwrap_or((section, ""));
    let up = if rest.is_empty() { table.clone() } else { format!("{{ {rest} = {table} }}") };
    let quoted = match rest {
        "" => table.clone(),
        _ => format!("{{ {} }}", pairs(&|key, value| format!("\"{rest}.{key}\" = {value}"), ", ")),
    };
    let lines = pairs(&|key, value| format!("{key} = {value}"), "\n");
    let mut routes: Vec<Route> = Vec::new();
    for head in ["[grid]", "[[grid]]"] {
        for body in [
            dotted.clone(),
            lists.clone(),
            format!("\"{section}\" = {table}"),
            format!("\"{section}\" = [{table}]"),
            format!("{section} = {table}"),
            format!("{first} = {up}"),
            format!("{first} = [{up}]"),
            format!("{first} = [{quoted}]"),
        ] {
            routes.push((format!("{head}\n{body}\n"), Vec::new()));
        }
    }
    for head in [format!("[grid.{section}]"), format!("[on_cpu.{section}]")] {
        routes.push((format!("{head}\n{lines}\n"), Vec::new()));
    }
    for set in [
        dotted_inline,
        format!("\"{section}\" = {table}"),
        format!("{first} = {up}"),
        format!("{first} = {quoted}"),
    ] {
        routes.push((format!("[[ladder]]\nstage = \"s\"\nset = {{ {set} }}\n"), Vec::new()));
    }
    for body in
        [dotted, format!("\"{section}\" = {table}"), format!("{first} = {up}"), format!("{first} = {quoted}")]
    {
        routes.push((format!("[on_cpu]\n{body}\n"), Vec::new()));
    }
    let mut single: Vec<String> =
        change.iter().map(|(key, value)| format!("{section}.{key}={value}")).collect();
    let whole = [format!("{section}={table}"), format!("{first}={up}"), format!("{first}={quoted}")];
    for settings in [single.clone(), {
        single.reverse();
        single
    }]
    .into_iter()
    .chain(whole.map(|one| vec![one]))
    {
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
    for part in ["the key `stages` is missing", &format!("r.toml:{line}:1"), "takes the place of"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
