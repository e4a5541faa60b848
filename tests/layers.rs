//! The house stands in layers: what a folder of `src` may import is what stands below it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use walkdir::WalkDir;

/// Folders and files at the top of `src`, the lowest first.
const LAYERS: [&str; 24] = [
    "common",    // amounts of memory, texts, files, the cache, refusals
    "keys",      // keys of recipes: table, sections, values, settings, rules
    "measure",   // records of a measurement, the meter's trait, the ledger of an estimate
    "device",    // CPU and CUDA: streams, products, copies, traces
    "world",     // ranks of a cell and what they do together
    "ops",       // operators with their backward and their cost
    "optim",     // update rules, on the device and on the host
    "precision", // autocast's types, gradient scalers
    "params",    // the table of parameters: names, shapes, loading, saving
    "residence", // where parameters, gradients and optimizer state live
    "model",     // decoders over blocks, families
    "data",      // corpora, tokenizers, samplers
    "parallel",  // stages, schedules, ranks
    "recipe",    // TOML to cells, rules across sections
    "estimate",  // memory, operations and messages of a cell
    "advise",    // which ways of training fit, and the fastest of them
    "row",       // one finished cell, by what it is known again
    "train",     // the step, the loop, feeds, saving
    "verify",    // against the values of a reference
    "run",       // cells in processes of their own, their order, limits and rows
    "report",    // rows to tables, charts and documents
    "commands",  // what a command does and prints
    "cli",       // what the user may type
    "main",
];

#[test]
fn arrows_go_down() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let floor = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    let mut rising = Vec::new();
    for file in WalkDir::new(&src).into_iter().map(Result::unwrap).filter(|entry| entry.file_type().is_file())
    {
        let path = file.path().strip_prefix(&src).unwrap();
        let Some(name) = path.to_str().unwrap().strip_suffix(".rs") else { continue };
        if name == "lib" || name.starts_with("bin/") || is_of_tests(name) {
            continue;
        }
        let layer = name.split('/').next().unwrap();
        let here = floor(layer).unwrap_or_else(|| panic!("src/{layer} has no place in LAYERS"));
        for used in imports(&fs::read_to_string(file.path()).unwrap()) {
            let there =
                floor(&used).unwrap_or_else(|| panic!("{name} imports crate::{used}, which has no place"));
            if there > here {
                rising.push(format!("{name} imports {used}"));
            }
        }
    }
    assert!(rising.is_empty(), "{} arrows go up:\n{}", rising.len(), rising.join("\n"));
}

/// What a report is made of: rows, their records, the recipe that asks, and common words. What the engine knows of a cell is in
/// its row.
const OF_REPORTS: [&str; 6] = ["common", "keys", "measure", "recipe", "row", "report"];

#[test]
fn a_report_is_made_of_rows() {
    let report = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report");
    let mut others = Vec::new();
    for file in WalkDir::new(report).into_iter().map(Result::unwrap) {
        let name = file.path().to_str().unwrap();
        let Some(name) = name.strip_suffix(".rs").filter(|name| !is_of_tests(name)) else { continue };
        let imports = imports(&fs::read_to_string(file.path()).unwrap());
        let engine = imports.into_iter().filter(|used| !OF_REPORTS.contains(&used.as_str()));
        others.extend(engine.map(|used| format!("{name} imports {used}")));
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}

fn is_of_tests(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap();
    file.ends_with("tests") || name.contains("tests/") || file == "testing"
}

/// The first words after `crate::` in the code, without its tests and comments.
fn imports(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| line.split("crate::").skip(1).map(first_word).collect::<Vec<_>>()).collect()
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[test]
fn imports_of_code_are_found() {
    let text = "use crate::common::Bytes;\n// crate::report\nfn f() { crate::device::x(crate::ops::y) }\n\
                #[cfg(test)]\nmod tests {\n    use crate::run::testing;\n}\n";
    assert_eq!(imports(text), ["common", "device", "ops"]);
}

/// What trains; the rest of the program describes it or runs it.
const ENGINE: [&str; 12] = [
    "train",
    "parallel",
    "model",
    "estimate",
    "residence",
    "params",
    "optim",
    "precision",
    "ops",
    "world",
    "device",
    "data",
];

/// Lines of code of what prints over those of the engine, at most. May only fall.
const PRINTED: f64 = 0.25;

/// By the lines of code that `tests/count.sh` prints.
#[test]
fn what_prints_stays_small_beside_what_trains() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/count.sh");
    let counted = Command::new("sh").arg(script).output().expect("sh and awk");
    let counted = String::from_utf8(counted.stdout).expect("text");
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_string(), words.next()?.parse::<f64>().ok()?))
    };
    let lines: HashMap<String, f64> = counted.lines().filter_map(line).collect();
    let sum = |folders: &[&str]| folders.iter().map(|folder| lines[*folder]).sum::<f64>();
    let share = sum(&["report", "commands"]) / sum(&ENGINE);
    assert!(share <= PRINTED, "report and commands have {share:.3} of the engine's lines, at most {PRINTED}");
}
