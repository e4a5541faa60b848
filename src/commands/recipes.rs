//! `runner recipes`: the recipes of a folder.

use std::path::Path;

use miette::{Result, miette};
use walkdir::{DirEntry, WalkDir};

use crate::common::text;
use crate::recipe::{Recipe, Source};

/// A table of the folder's recipes: path, cells and title, or the error of one that is not valid. They need not be able to
/// run on this machine.
///
/// # Errors
/// When there is no such folder.
pub fn list(folder: &Path) -> Result<String> {
    if !folder.is_dir() {
        return Err(miette!(
            help = "run this where the folder `recipes` is, or name the folder: runner recipes FOLDER",
            "there is no folder {}",
            folder.display()
        ));
    }
    let line = |entry: DirEntry| {
        let path = entry.path();
        let counted = Source::read(path).and_then(|source| {
            let [gpu, cpu] = [false, true].map(|on_cpu| Recipe::parse_finished(&source, on_cpu));
            Ok((gpu?, cpu?.cells.len()))
        });
        let (cells, title) = match counted {
            Ok((recipe, cpu)) if recipe.cells.len() == cpu => (cpu.to_string(), recipe.title),
            Ok((recipe, cpu)) => (format!("{}, {cpu} on a CPU", recipe.cells.len()), recipe.title),
            Err(error) => ("-".into(), format!("error: {error}")),
        };
        vec![path.display().to_string(), cells, title]
    };
    let entries = WalkDir::new(folder).sort_by_file_name().into_iter().filter_map(Result::ok);
    let recipes = entries.filter(|entry| entry.path().extension().is_some_and(|e| e == "toml"));
    let lines = recipes.map(line).collect();
    Ok(text::table(&["recipe", "cells", "title"], lines, 3))
}
