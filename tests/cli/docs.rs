//! The README and the documents that it leads to: length, links, paths and the recipe that they show.

use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::place::{Place, files};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Markdown file at the top, and below docs/ and results/.
fn documents() -> Vec<PathBuf> {
    let below = ["docs", "results"].map(|folder| WalkDir::new(Path::new(ROOT).join(folder)));
    let below = below.into_iter().flatten().map(|entry| entry.expect("folders can be read").into_path());
    let mut found: Vec<PathBuf> = files(Path::new(ROOT)).into_iter().chain(below).collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    found
}

/// What the links of a document lead to, without those to other sites.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let inside =
        targets.filter(|target| !target.contains("://")).filter_map(|target| target.split('#').next());
    inside.filter(|path| !path.is_empty())
}

/// The paths from the top of the repository that a document names.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c)));
    let folders = ["src/", "tests/", "recipes/", "examples/", "docs/"];
    words
        .filter(move |word| folders.iter().any(|folder| word.starts_with(folder)))
        .map(|word| word.trim_end_matches('.'))
}

#[test]
fn links_and_paths_lead_somewhere() {
    let mut lost = Vec::new();
    let (mut followed, documents) = (0, documents());
    for document in &documents {
        let text = read(document);
        let folder = document.parent().expect("a file lies in a folder");
        let named = paths(&text).map(|path| Path::new(ROOT).join(path));
        for target in links(&text).map(|link| folder.join(link)).chain(named) {
            followed += 1;
            if !target.exists() {
                lost.push(format!("{}: {}", document.display(), target.display()));
            }
        }
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    assert!(documents.len() > 15 && followed > 100, "{followed} in {}", documents.len());
}

#[test]
fn the_readme_is_short() {
    let lines = read(&Path::new(ROOT).join("README.md")).lines().count();
    assert!(lines <= 130, "{lines} lines: move some to docs/");
}

#[test]
fn the_readmes_recipe_is_valid() {
    let readme = read(&Path::new(ROOT).join("README.md"));
    let (_, rest) = readme.split_once("```toml\n").expect("the README has a recipe");
    let (recipe, _) = rest.split_once("```").expect("its block ends");
    Place::new(recipe).runner(&["check", "recipe.toml"]).exits(0).says(&["3 cells, all valid"]);
}
