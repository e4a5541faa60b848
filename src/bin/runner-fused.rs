//! `runner-fused`: `runner` built with Burn's kernel fusion; it runs the cells with `ops.fusion = true`.

fn main() -> std::process::ExitCode {
    runner::program::main()
}
