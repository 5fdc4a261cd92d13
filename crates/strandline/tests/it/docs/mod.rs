//! The commands of README.md, ARCHITECTURE.md and `docs/`: in a `console` block they print what
//! stands below them; everywhere else, in `sh` blocks and in code quotes, `strandline`'s are ones
//! that it understands, and `cargo`'s and `make`'s name packages and targets that there are.

mod figures;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::common::{self, Scratch, text};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A code block with its language, or a code span with none.
struct Code {
    language: String,
    text: String,
}

fn pages() -> Vec<PathBuf> {
    let mut found =
        ["README.md", "ARCHITECTURE.md"].map(|name| Path::new(ROOT).join(name)).to_vec();
    let mut ahead = vec![Path::new(ROOT).join("docs")];
    while let Some(dir) = ahead.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                ahead.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 10, "{found:?}");
    found
}

fn codes(page: &Path) -> Vec<Code> {
    let source = fs::read_to_string(page).unwrap();
    let mut found = Vec::new();
    let mut block: Option<Code> = None;
    for event in Parser::new_ext(&source, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                block = Some(Code { language, text: String::new() });
            }
            Event::Text(words) => {
                if let Some(block) = &mut block {
                    block.text.push_str(&words);
                }
            }
            Event::End(TagEnd::CodeBlock) => found.extend(block.take()),
            Event::Code(span) => {
                found.push(Code { language: String::new(), text: span.into_string() });
            }
            _ => {}
        }
    }
    found
}

/// A line of a session: what is typed, what that prints, and its exit status.
struct Typed {
    typed: String,
    printed: String,
    status: i32,
}

fn session(block: &str) -> Vec<Typed> {
    let mut steps: Vec<Typed> = Vec::new();
    for line in block.lines() {
        if let Some(typed) = line.strip_prefix("$ ") {
            steps.push(Typed { typed: typed.to_owned(), printed: String::new(), status: 0 });
            continue;
        }
        let step = steps.last_mut().expect("a session begins with a command");
        if let Some(status) = line.strip_prefix("? ") {
            step.status = status.parse().expect("an exit status");
        } else {
            step.printed += line;
            step.printed.push('\n');
        }
    }
    steps
}

/// Where a shell finds the command, and tools for administrators.
fn program_path() -> String {
    let program = common::program();
    let dir = program.parent().unwrap().display();
    format!("{dir}:/usr/sbin:/sbin:{}", std::env::var("PATH").unwrap())
}

#[test]
fn a_session_prints_what_is_shown() {
    let path = program_path();
    let mut steps = 0;
    for page in pages() {
        let scratch = Scratch::new(&format!("docs-{}", page.file_stem().unwrap().display()));
        for block in codes(&page).iter().filter(|code| code.language == "console") {
            for step in session(&block.text) {
                let line = format!("({}) 2>&1", step.typed);
                let mut shell = Command::new("sh");
                let out = shell.args(["-c", &line]).current_dir(&scratch.0).env("PATH", &path);
                let out = out.output().expect("a shell");
                let at = format!("{}: {}", page.display(), step.typed);
                assert_eq!(text(&out.stdout), step.printed, "{at}");
                assert_eq!(out.status.code(), Some(step.status), "{at}");
                steps += 1;
            }
        }
    }
    assert!(steps > 10, "only {steps} commands were found");
}

/// The commands of a shell's line, as words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_default();
    let ends = |word: &String| ["&&", "||", "|", ";", "&"].contains(&word.as_str());
    let assigns =
        |word: &&String| word.split_once('=').is_some_and(|(name, _)| !name.starts_with('-'));
    words
        .split(ends)
        .map(|words| words.iter().skip_while(assigns).cloned().collect())
        .filter(|words: &Vec<String>| !words.is_empty())
        .collect()
}

/// Whether `strandline` takes these words: the help that they end with is asked for, not refused.
fn understood(words: &[String]) -> Result<(), String> {
    let own = words.iter().take_while(|word| *word != "--" && !word.starts_with(['>', '<']));
    let out = Command::new(env!("CARGO_BIN_EXE_strandline"))
        .args(own)
        .arg("--help")
        .output()
        .expect("the command starts");
    if out.status.success() { Ok(()) } else { Err(text(&out.stderr)) }
}

/// What Cargo can be asked for: each package's targets, by the option that names them.
fn packages() -> BTreeMap<String, BTreeSet<(String, String)>> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(ROOT)
        .output()
        .expect("cargo starts");
    let all: serde_json::Value = serde_json::from_slice(&cargo.stdout).expect("metadata");
    let word = |value: &serde_json::Value| value.as_str().expect("a word").to_owned();
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let targets = |package: &serde_json::Value| {
        let targets = list(&package["targets"]);
        targets
            .iter()
            .map(|one| (format!("--{}", word(&one["kind"][0])), word(&one["name"])))
            .collect()
    };
    list(&all["packages"]).iter().map(|one| (word(&one["name"]), targets(one))).collect()
}

fn cargo_knows(words: &[String]) -> Result<(), String> {
    let packages = packages();
    let after = |names: [&str; 2]| {
        let at = words.iter().position(|word| names.contains(&word.as_str()))?;
        words.get(at + 1)
    };
    let Some(package) = after(["-p", "--package"]) else { return Ok(()) };
    let targets = packages.get(package).ok_or_else(|| format!("there is no package {package}"))?;
    for option in ["--test", "--bench", "--example"] {
        if let Some(name) = after([option, option])
            && !targets.contains(&(option.to_owned(), name.clone()))
        {
            return Err(format!("{package} has no {option} {name}"));
        }
    }
    Ok(())
}

fn make_knows(words: &[String]) -> Result<(), String> {
    let makefile = fs::read_to_string(Path::new(ROOT).join("Makefile")).unwrap();
    let unknown = words.iter().find(|word| {
        let target = format!("{word}: ");
        !word.contains('=') && !makefile.lines().any(|line| format!("{line} ").starts_with(&target))
    });
    unknown.map_or(Ok(()), |target| Err(format!("there is no target {target}")))
}

#[test]
fn every_command_is_understood() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in pages() {
        for code in codes(&page).iter().filter(|code| ["sh", ""].contains(&code.language.as_str()))
        {
            for words in code.text.lines().flat_map(commands) {
                let verdict = match words[0].as_str() {
                    "strandline" => understood(&words[1..]),
                    "cargo" => cargo_knows(&words[1..]),
                    "make" => make_knows(&words[1..]),
                    _ => continue,
                };
                checked += 1;
                if let Err(why) = verdict {
                    wrong.push(format!("{}: {}: {why}", page.display(), words.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 30, "only {checked} commands were found");
}
