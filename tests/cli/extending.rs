//! `examples/extending`: each patch still applies, adds one file, and changes at most three lines elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

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
