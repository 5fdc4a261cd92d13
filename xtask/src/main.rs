//! Chores of the project. `cargo xtask tidy` checks the tree against the project's own rules; see
//! `tidy`. `cargo xtask package` makes the Debian package; see `package`.

#![forbid(unsafe_code)]

mod package;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy [--bless]
       cargo xtask package

tidy            check layers, bans, line width, file and function sizes
tidy --bless    lower the entries of xtask/ratchet.toml to what the code has come down to
package         build the Debian package and print its path (`make deb` gets cargo-deb)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    // The package is one level below the workspace's root.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match args.as_slice() {
        ["tidy"] => tidy(&root, false),
        ["tidy", "--bless"] => tidy(&root, true),
        ["package"] => package(&root),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn package(root: &Path) -> ExitCode {
    match package::run(root) {
        Ok(deb) => {
            println!("{}", deb.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("package: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tidy(root: &Path, bless: bool) -> ExitCode {
    match tidy::run(root, bless) {
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
