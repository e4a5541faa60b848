//! `runner-fused`: `runner` built with Burn's kernel fusion; it runs the cells with `ops.fusion = true`.

#[path = "../main.rs"]
mod runner_main;

fn main() -> std::process::ExitCode {
    runner_main::main()
}
