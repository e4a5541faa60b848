//! `examples/extending`: each patch still applies, adds one file, and changes at most three lines elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use walkdir::WalkDir;

use crate::place::files;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn patches() -> Vec<PathBuf> {
    let all = files(&Path::new(ROOT).join("examples/extending"));
    all.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "patch")).collect()
}

fn git(args: &[&str]) -> Option<bool> {
    Some(Command::new("git").args(args).current_dir(ROOT).output().ok()?.status.success())
}

/// Or it is applied: somebody tries it.
#[test]
fn every_patch_applies() {
    if git(&["ls-files", "--error-unmatch", "examples/extending/README.md"]) != Some(true) {
        eprintln!("skipped: these sources are no checkout of git, or there is no git");
        return;
    }
    for patch in patches() {
        let name = patch.to_str().expect("UTF-8");
        let checks = [git(&["apply", "--check", name]), git(&["apply", "--check", "-R", name])];
        assert!(checks.contains(&Some(true)), "{name} does not apply: make it again");
    }
}

#[test]
fn every_patch_is_a_file_and_three_lines() {
    let patches = patches();
    assert_eq!(patches.len(), 6, "{patches:?}");
    for patch in patches {
        let text = std::fs::read_to_string(&patch).expect("a patch");
        let (mut new, mut added, mut removed) = (0, 0, 0);
        for file in text.split("diff --git ").skip(1) {
            let of = |sign: char| {
                let changes = file.split("\n@@").skip(1).flat_map(|hunk| hunk.lines().skip(1));
                changes.filter(|line| line.starts_with(sign)).count()
            };
            if file.contains("\nnew file mode") {
                new += 1;
            } else {
                (added, removed) = (added + of('+'), removed + of('-'));
            }
        }
        let name = patch.display();
        assert!(new == 1 && (1..=3).contains(&added) && removed <= added, "{name}: {new} {added} {removed}");
    }
}

/// What family.patch shows of a family that is not there, of those that are: no code but their own file, two lines of the
/// list and families that build on them names them.
#[test]
fn a_family_is_a_file_and_two_lines() {
    let families = Path::new(ROOT).join("src/model/families");
    let list = families.join("mod.rs");
    let source = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "rs");
    let is_test = |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with("tests.rs"));
    let all =
        WalkDir::new(Path::new(ROOT).join("src")).into_iter().map(|entry| entry.expect("a file").into_path());
    let others: Vec<(PathBuf, String)> = all
        .filter(|path| source(path) && !is_test(path) && (*path == list || !path.starts_with(&families)))
        .map(|path| (path.clone(), std::fs::read_to_string(path).expect("source")))
        .collect();
    for name in ["qwen3", "gemma2", "gemma3", "mistral", "smollm3", "olmo2", "granite", "phi3", "starcoder2"]
    {
        assert!(families.join(format!("{name}.rs")).exists(), "{name}");
        let has =
            |line: &&str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
        let lines = |(path, text): &(PathBuf, String)| {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//")).filter(has);
            code.map(|line| format!("{}: {line}", path.display())).collect::<Vec<_>>()
        };
        let named: Vec<String> = others.iter().flat_map(lines).collect();
        assert!(named.len() == 2 && named.iter().all(|line| line.contains("families/mod.rs")), "{named:#?}");
    }
}
