//! `runner`: see [`runner::program`].

fn main() -> std::process::ExitCode {
    runner::program::main()
}
