//! The `aetherd` program.

fn main() -> std::process::ExitCode {
    aetherd::cli::main()
}
