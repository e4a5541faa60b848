use runner::recipe::{Recipe, Source};
fn main() {
    let mut paths: Vec<std::path::PathBuf> = std::fs::read_dir("recipes").unwrap().map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    paths.sort();
    let mut out = Vec::new();
    for path in paths {
        for on_cpu in [true, false] {
            let source = Source::read(&path).unwrap();
            let recipe = Recipe::parse_finished(&source, on_cpu).unwrap();
            let cells: Vec<_> = recipe.cells.iter().map(|c| c.to_json()).collect();
            let ladder: Vec<_> = recipe.report.ladder.iter().map(|s| [s.stage.clone(), s.why.clone()]).collect();
            out.push(serde_json::json!({"path": path, "on_cpu": on_cpu, "cells": cells, "ladder": ladder}));
        }
    }
    println!("{}", serde_json::to_string_pretty(&out).unwrap());
}
