//! The figures of the book are what their commands print.
//!
//! `<!-- figures: COMMAND -->` stands in front of a table, a list or a paragraph, once for each of
//! its commands; `quick figures:` if the command takes no longer than a second. Each figure of that
//! block must be among those that the commands print, rounded as the page rounds it. In a table
//! the first row and the first column are what was asked for, and not looked at.
//! `<!-- given: 30 2.1 -->` names figures that come from elsewhere, as a paper's do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{commands, pages, program_path, understood};
use crate::common::{Scratch, text};

/// A block with its markers.
struct Marked {
    page: PathBuf,
    /// Of the block's first line, from 1.
    line: usize,
    commands: Vec<String>,
    given: Vec<String>,
    quick: bool,
    block: String,
}

/// The text of a marker that begins in this way.
fn marker<'a>(line: &'a str, begins: &str) -> Option<&'a str> {
    line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.strip_prefix(begins).map(str::trim)
}

fn marked(page: &Path) -> Vec<Marked> {
    let source = std::fs::read_to_string(page).unwrap();
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let mut one = Marked {
            page: page.to_owned(),
            line: 0,
            commands: Vec::new(),
            given: Vec::new(),
            quick: true,
            block: String::new(),
        };
        while let Some(line) = lines.get(at) {
            let (slow, quick) = (marker(line, "figures:"), marker(line, "quick figures:"));
            match (slow.or(quick), marker(line, "given:")) {
                (Some(command), _) => one.commands.push(command.to_owned()),
                (None, Some(list)) => one.given.extend(list.split(' ').map(str::to_owned)),
                _ if line.is_empty() && !one.commands.is_empty() => {}
                _ => break,
            }
            one.quick &= slow.is_none();
            at += 1;
        }
        let end = lines[at.min(lines.len())..].iter().position(|line| line.is_empty());
        let end = end.map_or(lines.len(), |behind| at + behind);
        if !one.commands.is_empty() {
            one.line = at + 1;
            one.block = lines[at..end].join("\n");
            found.push(one);
        }
        at = end + 1;
    }
    found
}

/// What of a block is compared: a table's cells behind the first row and the first column.
fn compared(block: &str) -> String {
    if !block.starts_with('|') {
        let spans = block.split('`').enumerate();
        return spans.filter(|(n, _)| n % 2 == 0).map(|(_, text)| text).collect();
    }
    let rows = block.lines().skip(2);
    rows.filter_map(|row| row.trim_matches('|').split_once('|'))
        .fold(String::new(), |all, (_, cells)| all + cells + "\n")
}

/// The numbers in a text, without the commas between thousands. Digits in a name are none.
fn numbers(text: &str) -> Vec<String> {
    let is_part = |char: char| char.is_ascii_digit() || char == '.' || char == ',';
    let mut found = Vec::new();
    let mut before = ' ';
    let mut rest = text;
    while let Some(start) = rest.find(|char: char| char.is_ascii_digit()) {
        before = rest[..start].chars().next_back().unwrap_or(before);
        let behind = &rest[start..];
        let end = behind.find(|char| !is_part(char)).unwrap_or(behind.len());
        let number = behind[..end].trim_end_matches(['.', ',']);
        if !(before.is_alphabetic() || before == '_') {
            found.push(number.replace(',', ""));
        }
        before = behind[..end].chars().next_back().unwrap_or(before);
        rest = &behind[end..];
    }
    found
}

/// Whether `figure` is `printed`, rounded to as many places.
fn is_rounded(figure: &str, printed: &str) -> bool {
    let places = figure.split_once('.').map_or(0, |(_, places)| places.len());
    printed.parse::<f64>().is_ok_and(|printed| format!("{printed:.places$}") == figure)
}

fn printed_by(line: &str) -> Vec<String> {
    let scratch = Scratch::new("figures");
    let mut shell = Command::new("sh");
    let out = shell.args(["-c", line]).current_dir(&scratch.0).env("PATH", program_path());
    let out = out.output().expect("a shell");
    // 1 says that a mode broke its promise.
    assert!(matches!(out.status.code(), Some(0 | 1)), "{line}: {}", text(&out.stderr));
    numbers(&text(&out.stdout))
}

/// What is stale in these blocks.
fn stale(blocks: &[Marked]) -> Vec<String> {
    let mut printed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut stale = Vec::new();
    for block in blocks {
        let mut known = block.given.clone();
        for command in &block.commands {
            let numbers = printed.entry(command).or_insert_with(|| printed_by(command));
            known.extend_from_slice(numbers);
        }
        for figure in numbers(&compared(&block.block)) {
            if !known.iter().any(|printed| is_rounded(&figure, printed)) {
                let (page, line) = (block.page.display(), block.line);
                let command = block.commands.join("\n  or ");
                stale.push(format!("{page}:{line}: {figure} is not printed by {command}"));
            }
        }
    }
    stale
}

fn all(quick: bool) -> Vec<Marked> {
    let blocks = pages().into_iter().flat_map(|page| marked(&page));
    blocks.filter(|block| block.quick == quick).collect()
}

#[test]
fn quick_figures_are_what_their_commands_print() {
    let blocks = all(true);
    assert!(!blocks.is_empty(), "no block has a marker");
    let stale = stale(&blocks);
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

#[test]
#[ignore = "long: all figures of the book"]
fn figures_are_what_their_commands_print() {
    let stale = stale(&all(false));
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

#[test]
fn a_marker_names_a_command() {
    for block in [true, false].into_iter().flat_map(all) {
        let at = format!("{}:{}", block.page.display(), block.line);
        assert!(!numbers(&compared(&block.block)).is_empty(), "{at}: no figures");
        for words in block.commands.iter().flat_map(|line| commands(line)) {
            if words[0] == "strandline" && !words.iter().any(|word| word.contains('$')) {
                understood(&words[1..]).unwrap_or_else(|why| panic!("{at}: {why}"));
            }
        }
    }
}

#[test]
fn what_is_stale_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    let table = "| in 4 KiB | p99 |\n|---|--:|\n| zn540, 8 | 1,442, **0.97** (14 to 41) |\n";
    let echo = "<!-- quick figures: echo '1441.7 0.966 14 41' -->\n<!-- given: 7 -->\n";
    let source = format!("Text 5.\n\n{echo}{table}\n{echo}8 of `--cuts 9`, as F2FS 41 to 7.\n");
    std::fs::write(&page, source).unwrap();
    let found = stale(&marked(&page));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("page.md:11: 8 is not printed by echo"), "{found:?}");
}
