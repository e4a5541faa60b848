fn main() -> std::process::ExitCode {
    runner::train::serve()
}
