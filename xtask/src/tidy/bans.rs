//! What code may not use, or only some code. A run is a pure function of code, profile and seed
//! only if nothing above floor 0 uses threads, clocks, locks or chance of its own.

use super::scan::has_word;
use super::{Finding, Source};

/// Paths to which a rule does not apply, and why.
const FREE: [(&str, &str); 4] = [
    ("crates/cores/", "floor 0 is where threads, clocks and locks come from"),
    ("xtask/", "a tool for the developer's machine, no part of the house"),
    ("/benches/", "measures the real machine"),
    ("crates/drive/src/frame.rs", "memory is the process's and has no price in virtual time"),
];

/// Words of `std` that only floor 0 uses: the module's path, the words, and what to use instead. An
/// empty list bans the whole module.
const STD: [(&str, &[&str], &str); 4] = [
    ("std::thread", &[], "use cores::spawn, cores::sleep"),
    ("std::sync", &["Mutex", "RwLock", "Condvar", "Barrier", "mpsc"], "use the locks of cores"),
    ("std::time", &["Instant", "SystemTime"], "use cores::now, cores::wall_clock"),
    ("std::collections", &["HashMap", "HashSet"], "its order is random: use FxHashMap or BTreeMap"),
];

/// Other paths that only floor 0 uses.
const PATHS: [(&str, &str); 6] = [
    ("parking_lot::", "use the locks of cores"),
    ("thread_rng", "seed a generator of rand_xoshiro"),
    ("rand::rng", "seed a generator of rand_xoshiro"),
    ("rand::random", "seed a generator of rand_xoshiro"),
    ("from_os_rng", "seed a generator of rand_xoshiro"),
    ("RandomState", "its order is random: use FxHashMap or BTreeMap"),
];

const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

/// Crates whose work needs `unsafe`. All others forbid it.
const UNSAFE_CRATES: [&str; 2] = ["crates/cores/", "crates/drive/"];
/// Crates that deny it except in one module, for a ring shared with the kernel.
const UNSAFE_IN_PART: [&str; 1] = ["crates/fuse/"];

/// The floors above `subjects`, which know file systems only through `vfs::kind`.
const ABOVE_SUBJECTS: [&str; 5] = [
    "crates/fuse/src/",
    "crates/nvme-target/src/",
    "crates/lab/src/",
    "crates/linux/src/",
    "crates/strandline/src/",
];

/// What there is about F2FS itself, and why that cannot be told through `vfs::kind`.
const ABOUT_F2FS: [(&str, &str); 8] = [
    ("crates/lab/src/campaign/snapshot.rs", "for tests only: it stands in for F2FS"),
    ("crates/lab/src/paper/oprw/", "the experiments of a paper about F2FS's modes"),
    ("crates/lab/src/report/table.rs", "what that paper published, by mode"),
    ("crates/lab/src/report/timeline.rs", "that paper's picture of one fsync"),
    ("crates/linux/src/agent/", "compares the kernel's F2FS with ours, and makes volumes for it"),
    ("crates/linux/src/campaign/", "ours repeats what the kernel's F2FS was asked to do"),
    ("crates/strandline/src/cmd/mkfs/", "the options of mkfs.f2fs"),
    ("crates/strandline/src/cmd/resize.rs", "the options of resize.f2fs"),
];

pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    check_kinds(source, findings);
    check_unfinished(source, findings);
    check_attributes(source, findings);
    check_unsafe(source, findings);
    check_quotes(source, findings);
    if !FREE.iter().any(|(path, _)| source.path.contains(path)) {
        check_std(source, findings);
        check_paths(source, findings);
    }
}

/// The kernel's F2FS, which has the same name, is another one. Tests may name what they test: they
/// are at the end of a file, or in one of their own.
fn check_kinds(source: &Source, findings: &mut Vec<Finding>) {
    let is_above = ABOVE_SUBJECTS.iter().any(|path| source.path.starts_with(path));
    let is_kernel = source.path == "crates/linux/src/campaign/foreign.rs";
    let is_about = ABOUT_F2FS.iter().any(|(path, _)| source.path.starts_with(path));
    let tests = source.code.iter().position(|code| code.trim_end() == "mod tests {");
    let code = tests.unwrap_or(source.code.len());
    let is_test = source.path.ends_with("/tests.rs");
    for (number, code) in numbered(source).take(code).filter(|_| is_above && !is_test) {
        let type_of_ours = !is_kernel && has_word(&code.replace("Foreign::F2fs", ""), "F2fs");
        let names = |name: &str| has_word(code, name) && code.contains(&format!("{name}::"));
        let crate_of_it = !is_about && ["f2fs", "strandline_f2fs"].into_iter().any(names);
        if type_of_ours || crate_of_it {
            let what = "F2FS above `subjects`: use vfs::kind::Format and Volume";
            findings.push(Finding::new(&source.path, number, what));
        }
    }
}

fn check_unfinished(source: &Source, findings: &mut Vec<Finding>) {
    for (number, code) in numbered(source) {
        for word in UNFINISHED {
            if has_word(code, word.trim_end_matches('!')) && code.contains(word) {
                findings.push(Finding::new(&source.path, number, format!("`{word}` is left over")));
            }
        }
    }
}

/// Every skip and every exception must say why.
fn check_attributes(source: &Source, findings: &mut Vec<Finding>) {
    for (number, code) in numbered(source) {
        let Some(start) = code.find("#[").or_else(|| code.find("#![")) else { continue };
        let attribute = until(source, number - 1, &code[start..], ']');
        let what = if has_word(&attribute, "ignore") && !attribute.contains('=') {
            "a skipped test needs a reason: #[ignore = \"...\"]"
        } else if (attribute.contains("[allow(") || attribute.contains("[expect("))
            && !has_word(&attribute, "reason")
        {
            "an exception needs a reason: #[allow(..., reason = \"...\")]"
        } else {
            continue;
        };
        findings.push(Finding::new(&source.path, number, what));
    }
}

fn check_unsafe(source: &Source, findings: &mut Vec<Finding>) {
    let is_root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
    let may = UNSAFE_CRATES.iter().any(|path| source.path.starts_with(path));
    let in_part = UNSAFE_IN_PART.iter().any(|path| source.path.starts_with(path));
    let wanted = if in_part { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    if is_root && !may && !source.code.iter().any(|code| code.contains(wanted)) {
        findings.push(Finding::new(&source.path, 0, format!("lacks {wanted}")));
    }
}

/// Messages quote with ' as clap's do, names and commands alike. Help texts and what is written to
/// profiles are Markdown.
fn check_quotes(source: &Source, findings: &mut Vec<Finding>) {
    const MARKDOWN: [&str; 3] = ["reason = ", "source = ", ".expect("];
    let is_ours = source.path.starts_with("crates/") && source.path.contains("/src/");
    for (index, line) in source.lines.iter().enumerate().filter(|_| is_ours) {
        let Some((before, _)) = line.split_once('`') else { continue };
        let literal = before.matches('"').count() % 2 == 1 && !before.contains("//");
        if literal && !MARKDOWN.iter().any(|mark| line.contains(mark)) {
            findings.push(Finding::new(&source.path, index + 1, "a message quotes with '"));
        }
    }
}

/// Finds `std::sync::Mutex` as a path and, in imports, within braces of any depth and over any
/// number of lines.
fn check_std(source: &Source, findings: &mut Vec<Finding>) {
    for (number, code) in numbered(source) {
        let import = code.trim_start().trim_start_matches("pub ").starts_with("use std::");
        let whole = if import { until(source, number - 1, code, ';') } else { code.to_string() };
        for (module, words, instead) in STD {
            let name = module.trim_start_matches("std::");
            let named = |word: &str| {
                if import {
                    has_word(&whole, name) && has_word(&whole, word)
                } else {
                    has_word(&whole, &format!("{name}::{word}")) && whole.contains(module)
                }
            };
            let hit = if words.is_empty() {
                if import { has_word(&whole, name) } else { has_word(&whole, module) }
            } else {
                words.iter().any(|word| named(word))
            };
            if hit {
                let what = format!("`{module}` above floor 0: {instead}");
                findings.push(Finding::new(&source.path, number, what));
            }
        }
    }
}

fn check_paths(source: &Source, findings: &mut Vec<Finding>) {
    for (number, code) in numbered(source) {
        for (path, instead) in PATHS {
            if has_word(code, path.trim_end_matches(':')) && code.contains(path) {
                let what = format!("`{path}` above floor 0: {instead}");
                findings.push(Finding::new(&source.path, number, what));
            }
        }
    }
}

fn numbered(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.code.iter().enumerate().map(|(index, code)| (index + 1, code.as_str()))
}

/// `first`, and the lines after `index` up to the first one that has `end`.
fn until(source: &Source, index: usize, first: &str, end: char) -> String {
    let mut whole = first.to_string();
    for line in source.code.iter().skip(index + 1) {
        if whole.contains(end) {
            break;
        }
        whole.push(' ');
        whole.push_str(line);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        check(&Source::new(path, text), &mut findings);
        findings
    }

    #[test]
    fn bad_samples_are_found() {
        let samples = [
            "use std::thread;",
            "use std::{fs, thread};",
            "std::thread::sleep(d);",
            "use std::sync::Mutex;",
            "use std::sync::{Arc, RwLock};",
            "use std::{\n    sync::{Arc, Condvar},\n};",
            "let (tx, rx) = std::sync::mpsc::channel::<u8>();",
            "let m = std::sync::Mutex::new(0);",
            "use std::time::{Duration, Instant};",
            "let t = std::time::SystemTime::now();",
            "use std::collections::HashMap;",
            "use std::collections::{BTreeMap, HashSet};",
            "let m = std::collections::HashMap::new();",
            "use parking_lot::Mutex;",
            "let r = rand::thread_rng();",
            "let r = rand::rng();",
            "let x: u8 = rand::random();",
            "todo!()",
            "unimplemented!(\"later\")",
            "dbg!(x);",
            "let said = format!(\"unknown verb `{verb}`\");",
            "#[test]\n#[ignore]\nfn f() {}",
            "#[allow(dead_code)]",
            "#![allow(\n    missing_docs,\n    dead_code\n)]",
            "#[expect(dead_code)]",
        ];
        for sample in samples {
            assert_eq!(findings("crates/f2fs/src/a.rs", sample).len(), 1, "{sample}");
        }
    }

    #[test]
    fn good_samples_are_not() {
        let samples = [
            "use std::sync::{Arc, OnceLock, atomic::AtomicU64};",
            "use std::time::Duration;",
            "use std::collections::{BTreeMap, VecDeque};",
            "use cores::{Condvar, Mutex, RwLock};",
            "use rustc_hash::FxHashMap;",
            "// std::thread and todo!() in a comment",
            "let s = \"std::thread dbg!(x) #[ignore]\";",
            "#[ignore = \"needs root\"]",
            "#[allow(dead_code, reason = \"read by the debugger\")]",
            "#[allow(\n    dead_code,\n    reason = \"x\"\n)]",
            "let instant = profile.instant();",
            "fn todo() {}",
            "/// Says \"unknown `x`\".",
            "    return Err(\"none\"); // as `x` says",
            "source = \"by `bench`\"",
        ];
        for sample in samples {
            assert_eq!(findings("crates/f2fs/src/a.rs", sample), [], "{sample}");
        }
    }

    #[test]
    fn floor_0_tools_and_benches_are_free() {
        for path in ["crates/cores/src/real.rs", "xtask/src/x.rs", "crates/f2fs/benches/b.rs"] {
            assert_eq!(findings(path, "use std::time::Instant;"), [], "{path}");
            assert_eq!(findings(path, "todo!()").len(), 1, "{path}");
        }
    }

    #[test]
    fn above_subjects_nobody_names_f2fs() {
        let line = "let fs = F2fs::mount(drive, &options)?;\n";
        assert_eq!(findings("crates/lab/src/rig.rs", line).len(), 1);
        assert!(findings("crates/lab/tests/rig.rs", line).is_empty());
        let technique = "use f2fs::technique;\n";
        assert_eq!(findings("crates/lab/src/rig.rs", technique).len(), 1);
        assert_eq!(findings("crates/fuse/src/x.rs", "use strandline_f2fs::mkfs;\n").len(), 1);
        assert!(findings("crates/lab/src/paper/oprw/fio.rs", technique).is_empty());
        let test = format!("#[cfg(test)]\nmod tests {{\n    {technique}}}\n");
        assert!(findings("crates/lab/src/rig.rs", &test).is_empty());
        assert!(findings("crates/lab/src/rig.rs", "let name = \"f2fs::\";\n").is_empty());
        assert!(findings("crates/f2fs/src/lib.rs", line).iter().all(|f| f.line != 1));
        assert!(findings("crates/linux/src/x.rs", "Foreign::F2fs => 1,\n").is_empty());
    }

    #[test]
    fn crates_forbid_unsafe_code() {
        assert_eq!(findings("crates/f2fs/src/lib.rs", "mod a;").len(), 1);
        assert_eq!(findings("crates/strandline/src/main.rs", "fn main() {}").len(), 1);
        assert_eq!(findings("crates/f2fs/src/lib.rs", "#![forbid(unsafe_code)]"), []);
        assert_eq!(findings("crates/f2fs/src/lib.rs", "// #![forbid(unsafe_code)]").len(), 1);
        assert_eq!(findings("crates/cores/src/lib.rs", "mod a;"), []);
        assert_eq!(findings("crates/f2fs/src/a.rs", "mod a;"), []);
    }
}
