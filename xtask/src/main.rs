//! Chores of the project. `cargo xtask tidy` holds the tree against its own rules; see `tidy`.

#![forbid(unsafe_code)]

mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy [--bless]

tidy            check layers, bans, line width, file and function sizes
tidy --bless    lower the entries of xtask/ratchet.toml to what the code has come down to";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let bless = match args.as_slice() {
        ["tidy"] => false,
        ["tidy", "--bless"] => true,
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    // The package lies one floor below the workspace's root.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match tidy::run(&root, bless) {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("tidy: {} findings", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::from(2)
        }
    }
}
