//! What a build says it is built from, in repositories of every kind.

use std::path::Path;
use std::process::Command;

#[path = "../../build.rs"]
#[expect(dead_code, reason = "cargo runs the rest")]
mod build;

fn git(folder: &Path, args: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
    let mut command = Command::new("git");
    // Neither a hook that runs the tests nor the user's own settings count here.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").args(identity).args(args).current_dir(folder);
    let output = command.output().expect("git is there");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
    std::fs::write(path, text).expect("writable");
}

fn sources(folder: &Path) {
    for name in ["src/main.rs", "crates/a/lib.rs", "Cargo.toml", "Cargo.lock", "build.rs"] {
        write(folder, name, name);
    }
}

#[test]
fn a_dirty_tree_says_so_and_its_builds_differ() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path();
    sources(root);
    git(root, &["init"]);
    git(root, &["add", "."]);
    git(root, &["commit", "-m", "first"]);
    let (commit, clean) = (build::commit(root), build::identity(root, "release"));
    assert!(commit.len() == 12 && commit.bytes().all(|b| b.is_ascii_hexdigit()), "{commit}");
    assert_ne!(build::identity(root, "debug"), clean, "a debug build's times are others");

    write(root, "README.md", "no source");
    assert_eq!((build::commit(root), build::identity(root, "release")), (commit.clone(), clean.clone()));
    let mut seen = vec![clean.clone()];
    for (name, text) in [("src/main.rs", "one"), ("src/main.rs", "two"), ("src/new.rs", "")] {
        write(root, name, text);
        assert_eq!(build::commit(root), format!("{commit}-dirty"), "{name}");
        let identity = build::identity(root, "release");
        assert!(!seen.contains(&identity), "{name} {text}");
        seen.push(identity);
    }
    std::fs::remove_file(root.join("src/new.rs")).expect("removable");
    write(root, "src/main.rs", "src/main.rs");
    assert_eq!((build::commit(root), build::identity(root, "release")), (commit, clean));
}

#[test]
fn a_worktree_names_its_own_commit_and_an_archive_none() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    sources(&first);
    git(&first, &["init"]);
    git(&first, &["add", "."]);
    git(&first, &["commit", "-m", "first"]);
    git(&first, &["worktree", "add", "-b", "other", second.to_str().expect("UTF-8")]);
    assert_eq!(build::commit(&second), build::commit(&first));
    git(&second, &["commit", "--allow-empty", "-m", "second"]);
    assert_ne!(build::commit(&second), build::commit(&first));
    assert_eq!(build::identity(&second, "release"), build::identity(&first, "release"), "equal sources");

    // An archive unpacked within another repository is not of its commit.
    let archive = first.join("unpacked");
    sources(&archive);
    assert_eq!(build::commit(&archive), "");
    assert_eq!(build::identity(&archive, "release"), build::identity(&first, "release"));
    write(&archive, "src/main.rs", "changed");
    assert_ne!(build::identity(&archive, "release"), build::identity(&first, "release"));
}
