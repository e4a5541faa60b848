//! Records the git commit the binary was built from, so that every row can name it.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=.git/HEAD");
    println!("cargo:rerun-if-changed=.git/logs/HEAD");
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
