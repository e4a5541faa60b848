//! Records the git commit the binary was built from, so that every row can name it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A missing path would run this again, and so build everything again, each time.
    for path in [".git/HEAD", ".git/logs/HEAD"] {
        if Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|out| out.status.success())
        .and_then(|out| String::from_utf8(out.stdout).ok())
        .unwrap_or_default();
    // Empty when built from a source archive; the row then says "unknown".
    println!("cargo:rustc-env=RUNNER_COMMIT={}", commit.trim());
}
