//! Style as a test: the project's rules that the compiler and clippy do not know.
//!
//! Each rule is a function from a source file, a manifest or the documents to findings. This module
//! only walks the tree and collects the findings. A source file is read once and split into lines
//! as they are and lines with comments and literals blanked out, so that rules see only code.

mod bans;
mod layers;
mod links;
mod scan;
mod sizes;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// Directories of the root that hold sources.
const SOURCE_DIRS: [&str; 4] = ["crates", "xtask", "fuzz", "tests"];

/// One broken rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1; 0 if the whole file is meant.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// A Rust file: its path from the root, its lines as they are, and its lines with code only.
struct Source {
    path: String,
    lines: Vec<String>,
    code: Vec<String>,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.into(),
            lines: text.lines().map(str::to_string).collect(),
            code: scan::code_only(text).lines().map(str::to_string).collect(),
        }
    }
}

/// Checks the tree at `root`. The error says what could not be read or written.
pub(crate) fn run(root: &Path, bless: bool) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    let tree = tree(root)?;
    for name in tree.iter().filter(|name| is_source(name)) {
        let text = read(&root.join(name))?;
        if name.ends_with(".rs") {
            let source = Source::new(name, &text);
            sizes::check_width(&source, &mut findings);
            bans::check(&source, &mut findings);
            sources.push(source);
        } else {
            layers::check(name, &text, &mut findings)?;
        }
    }
    sizes::check_top(&sources, &mut findings);
    let ratchet = root.join(sizes::RATCHET);
    let allowed =
        if ratchet.exists() { Some(sizes::Ratchet::parse(&read(&ratchet)?)?) } else { None };
    let actual = sizes::Ratchet::measure(&sources);
    if bless {
        let blessed = allowed.map_or(actual.clone(), |old| old.lowered_to(&actual));
        std::fs::write(&ratchet, blessed.to_string())
            .map_err(|error| format!("{}: {error}", ratchet.display()))?;
        actual.compare(&blessed, &mut findings);
    } else {
        actual.compare(&allowed.unwrap_or_default(), &mut findings);
    }
    links::check(root, &tree, &mut findings)?;
    findings.sort();
    Ok(findings)
}

/// All files and directories below the root, except for what is built or hidden, as paths from the
/// root.
fn tree(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut found = BTreeSet::new();
    let mut ahead = vec![root.to_path_buf()];
    while let Some(dir) = ahead.pop() {
        let entries = std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        for entry in entries {
            let path = entry.map_err(|e| format!("{}: {e}", dir.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name == "target" || name.starts_with('.') {
                continue;
            }
            found.insert(path.strip_prefix(root).unwrap_or(&path).display().to_string());
            if path.is_dir() {
                ahead.push(path);
            }
        }
    }
    Ok(found)
}

/// Whether a path from the root is a Rust file or a manifest below one of `SOURCE_DIRS`.
fn is_source(name: &str) -> bool {
    let top = name.split_once('/').map_or("", |(top, _)| top);
    SOURCE_DIRS.contains(&top) && (name.ends_with(".rs") || name.ends_with("/Cargo.toml"))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
