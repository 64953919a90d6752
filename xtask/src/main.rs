//! `cargo xtask`: see [`llama_patchset`] for the engine and `cli` for the commands.

fn main() -> std::process::ExitCode {
    llama_patchset::cli::main()
}
