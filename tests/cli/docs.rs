//! The README and the documents that it leads to: length, links, paths and figures. Their commands are in docs_commands.rs.

use std::path::{Path, PathBuf};
use std::process::Command;

use walkdir::WalkDir;

use crate::place::files;

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Markdown file at the top, and below docs/, examples/ and results/.
pub fn documents() -> Vec<PathBuf> {
    let below = ["docs", "examples", "results"].map(|folder| WalkDir::new(Path::new(ROOT).join(folder)));
    let below = below.into_iter().flatten().map(|entry| entry.expect("folders can be read").into_path());
    let mut found: Vec<PathBuf> = files(Path::new(ROOT)).into_iter().chain(below).collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    found
}

/// The links of a document, without those to other sites: the path, and the place in that file.
fn places(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let inside = targets.filter(|target| !target.contains("://"));
    inside.map(|target| target.split_once('#').map_or((target, None), |(path, place)| (path, Some(place))))
}

/// What the links of a document lead to, without those to other sites.
fn links(text: &str) -> impl Iterator<Item = &str> {
    places(text).map(|(path, _)| path).filter(|path| !path.is_empty())
}

/// The names by which links lead to the headings of a document.
fn headings(text: &str) -> Vec<String> {
    let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    let name =
        |heading: &str| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| name(line.trim_start_matches('#').trim())).collect()
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
fn links_to_headings_lead_to_one() {
    let (mut lost, mut followed) = (Vec::new(), 0);
    for document in documents() {
        let text = read(&document);
        for (path, place) in places(&text) {
            let Some(place) = place else { continue };
            let target = if path.is_empty() { document.clone() } else { document.with_file_name(path) };
            followed += 1;
            if !headings(&read(&target)).iter().any(|heading| heading == place) {
                lost.push(format!("{}: {path}#{place}", document.display()));
            }
        }
    }
    assert!(lost.is_empty() && followed > 20, "{followed} followed\n{}", lost.join("\n"));
}

/// The files below results/ that git tracks, from the top of the repository. None without git or outside of a clone.
fn tracked_results() -> Vec<PathBuf> {
    let listed = Command::new("git").args(["ls-files", "-z", "results"]).current_dir(ROOT).output();
    let names =
        listed.map(|output| String::from_utf8(output.stdout).expect("names in UTF-8")).unwrap_or_default();
    names.split_terminator('\0').map(PathBuf::from).collect()
}

/// results/slim.sh takes out of git what makes this fail.
#[test]
fn committed_results_are_small() {
    let tracked = tracked_results();
    let sizes = tracked.iter().filter_map(|path| Path::new(ROOT).join(path).metadata().ok());
    let megabytes = sizes.map(|file| file.len()).sum::<u64>() as f64 / 1e6;
    assert!(megabytes <= 20.0, "{megabytes:.1} MB below results/");
    let pdfs = tracked.iter().filter(|path| path.extension().is_some_and(|ending| ending == "pdf")).count();
    assert!(pdfs <= 7, "{pdfs} PDFs below results/");
}

/// A file that lies in the working tree alone would be a dead link for everybody else.
#[test]
fn links_into_results_lead_to_committed_files() {
    let (tracked, root) = (tracked_results(), Path::new(ROOT).canonicalize().expect("the root"));
    let mut dead = Vec::new();
    for document in documents().iter().filter(|_| !tracked.is_empty()) {
        let folder = document.parent().expect("a file lies in a folder");
        for target in links(&read(document)).filter_map(|link| folder.join(link).canonicalize().ok()) {
            let target = target.strip_prefix(&root).expect("links stay in the repository");
            if target.starts_with("results") && !tracked.iter().any(|path| path.starts_with(target)) {
                dead.push(format!("{}: {}", document.display(), target.display()));
            }
        }
    }
    assert!(dead.is_empty(), "not committed:\n{}", dead.join("\n"));
}

/// results/README.md is the index: it names every folder.
#[test]
fn the_index_of_results_is_complete() {
    let index = read(&Path::new(ROOT).join("results/README.md"));
    for entry in Path::new(ROOT).join("results").read_dir().expect("results") {
        let folder = entry.expect("an entry").path();
        let name = folder.file_name().expect("a name").to_str().expect("UTF-8").to_string();
        let is_listed = links(&index).any(|link| link.split('/').next() == Some(&name));
        assert!(folder.is_file() || is_listed, "results/README.md has no line for {name}");
    }
}

#[test]
fn the_documents_are_short() {
    let lines = read(&Path::new(ROOT).join("README.md")).lines().count();
    assert!(lines <= 110, "README.md has {lines} lines: move some to docs/");
    let [mut words, mut internals] = [0; 2];
    for document in documents() {
        let path = document.strip_prefix(ROOT).expect("below the root");
        let is_word = |word: &&str| word.contains(char::is_alphanumeric);
        let own = read(&document).split_whitespace().filter(is_word).count();
        match path {
            _ if path.starts_with("docs/internals") => internals += own,
            // The reference of recipes is written by the program.
            _ if path.ends_with("recipe.md") => {}
            _ if path.starts_with("docs") || path == Path::new("README.md") => words += own,
            _ => {}
        }
    }
    assert!(
        words <= 16_000,
        "{words} words in README.md and docs/: shorten, or move what users do not need to docs/internals"
    );
    assert!(internals <= 4_000, "{internals} words in docs/internals: prefer comments in the code");
}

/// A number of a document with its unit.
#[derive(Debug)]
struct Figure {
    text: String,
    value: f64,
    /// Of the last digit that is written.
    precision: f64,
    unit: &'static str,
}

/// Amounts of memory, times in milliseconds, and rates, which are the numbers with groups of three digits.
fn figures(text: &str) -> Vec<Figure> {
    let plain = |word: &str| word.trim_matches(|c: char| !c.is_ascii_digit()).to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    let of = |(i, word): (usize, &&str)| {
        let text = plain(word);
        let value: f64 = text.replace(',', "").parse().ok()?;
        let next = words.get(i + 1).map_or("", |next| next.trim_matches(|c: char| !c.is_alphanumeric()));
        let unit = ["GiB", "MiB", "ms"].into_iter().find(|unit| *unit == next);
        let unit = unit.or_else(|| (text.contains(',') && value >= 1000.0).then_some("tokens/s"))?;
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        Some(Figure { value, precision: 0.1f64.powi(decimals as i32), unit, text: format!("{text} {next}") })
    };
    words.iter().enumerate().filter_map(of).collect()
}

/// What the rows of a results folder have of a unit.
fn measured(folder: &Path, unit: &str) -> Vec<f64> {
    let rows = WalkDir::new(folder.join("rows")).into_iter().filter_map(Result::ok);
    let rows = rows.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "json"));
    let mut out = Vec::new();
    for row in rows {
        let row: serde_json::Value = serde_json::from_str(&read(row.path())).expect("a row");
        let number =
            |path: &str| row.pointer(&format!("/measurement{path}")).and_then(serde_json::Value::as_f64);
        let phases = ["forward", "backward", "optimizer", "step", "host_update"];
        let memory = ["live_peak", "driver_peak", "reserved_peak", "pinned", "host", "process_rss_peak"];
        out.extend(match unit {
            "tokens/s" => number("/tokens_per_second").into_iter().collect::<Vec<f64>>(),
            "ms" => phases.iter().filter_map(|of| Some(number(&format!("/{of}/median"))? * 1e3)).collect(),
            "MiB" => {
                memory.iter().filter_map(|of| Some(number(&format!("/memory/{of}"))? / 1048576.0)).collect()
            }
            _ => {
                let gib = |name: &str| Some(number(&format!("/memory/{name}"))? / 1073741824.0);
                // Ordinary and page-locked memory of the host together.
                let host = gib("host").unwrap_or(0.0) + gib("pinned").unwrap_or(0.0);
                memory.iter().filter_map(|name| gib(name)).chain([host]).collect()
            }
        });
    }
    out
}

/// Each paragraph and each row of a table that leads to a results folder, or follows such a row or paragraph, has its figures
/// from the rows there, or from the PEERS.md beside them.
#[test]
fn every_figure_is_of_a_committed_row() {
    let (mut checked, mut wrong) = (0, Vec::new());
    let results = Path::new(ROOT).join("results");
    let is_index = |path: &Path| path == results.join("README.md");
    let is_read = |path: &PathBuf| is_index(path) || !path.starts_with(&results);
    for document in documents().into_iter().filter(is_read) {
        let text = read(&document);
        let folder = document.parent().expect("a file lies in a folder");
        let mut sources: Vec<PathBuf> = Vec::new();
        for block in text.split("\n\n") {
            // A table without a link of its own is of the paragraph before.
            if !block.starts_with('|') {
                sources.clear();
            }
            let parts: Vec<&str> = if block.starts_with('|') { block.lines().collect() } else { vec![block] };
            for part in parts {
                let results = |path: PathBuf| {
                    let inside = path.canonicalize().ok()?;
                    let has = |folder: &Path, name: &str| folder.join(name).exists();
                    let of_results = |f: &&Path| f.starts_with(Path::new(ROOT).join("results"));
                    let mut folders = inside.ancestors().take_while(of_results);
                    let folder = folders.find(|f| has(f, "rows") || has(f, "PEERS.md"))?;
                    Some(folder.to_path_buf())
                };
                let linked: Vec<PathBuf> =
                    links(part).filter_map(|link| results(folder.join(link))).collect();
                sources = if linked.is_empty() { sources } else { linked };
                for figure in figures(part).into_iter().filter(|_| !sources.is_empty()) {
                    checked += 1;
                    let near = |value: &f64| (value - figure.value).abs() <= 0.5001 * figure.precision;
                    let is_there = sources.iter().any(|source| {
                        let peers = std::fs::read_to_string(source.join("PEERS.md")).unwrap_or_default();
                        let number = figure.text.split(' ').next().expect("a number");
                        let mut numbers = peers.split(|c: char| !(c.is_ascii_digit() || ".,".contains(c)));
                        measured(source, figure.unit).iter().any(near) || numbers.any(|other| other == number)
                    });
                    if !is_there {
                        let name = document.display();
                        wrong.push(format!("{name}: {} is in none of {sources:?}", figure.text));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= 25, "{checked} figures");
}
