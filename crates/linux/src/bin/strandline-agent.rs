//! The [`agent`](linux::agent), for the scripts of tests; campaigns have it in `strandline crash
//! agent`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match linux::agent::run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("strandline-agent {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}
