//! What packages hold: manual pages and shell completions, for every command there is.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Scratch, ok, text, tool};

/// All commands that `--help` lists, those below another one included: `drive`, `drive create`, …
fn commands() -> Vec<String> {
    let mut found = Vec::new();
    let mut ahead = vec![String::new()];
    while let Some(command) = ahead.pop() {
        let help = ok(&format!("{command} --help"));
        let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        // A description may continue on a second, indented line.
        let named = list.take_while(|line| !line.is_empty()).filter(|l| !l.starts_with("   "));
        for line in named {
            let name = line.split_whitespace().next().expect("a name");
            if name != "help" {
                let below = format!("{command} {name}").trim().to_owned();
                ahead.push(below.clone());
                found.push(below);
            }
        }
    }
    assert!(found.len() > 20 && found.iter().any(|c| c == "drive create"), "{found:?}");
    found
}

#[test]
fn every_command_has_a_page_that_man_understands() {
    let scratch = Scratch::new("man");
    let dir = scratch.path("pages");
    ok(&format!("man {dir}"));
    let mut pages: Vec<String> = commands()
        .iter()
        .map(|command| format!("strandline-{}.1", command.replace(' ', "-")))
        .collect();
    pages.extend(["strandline.1", "mount.strandline.8", "umount.strandline.8"].map(String::from));
    pages.sort();
    let mut made: Vec<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    made.sort();
    assert_eq!(made, pages);
    for page in &pages {
        let out = tool(Path::new(&dir), &format!("man --warnings -E UTF-8 -l -Tutf8 {page}"));
        assert!(out.status.success() && out.stderr.is_empty(), "{page}: {}", text(&out.stderr));
        let source = fs::read_to_string(Path::new(&dir).join(page)).unwrap();
        let (_, synopsis) = source.split_once("\n.SH SYNOPSIS\n").expect("a synopsis");
        let words = synopsis.lines().next().unwrap_or_default();
        let bold = words.strip_prefix(r"\fB").and_then(|words| words.split_once(r"\fR "));
        let (command, arguments) = bold.expect("a command in bold");
        let named = command.replace(r"\-", "-").replace(' ', "-");
        assert!(named == page[..page.len() - 2] && !arguments.is_empty(), "{page}: {words}");
    }
    let create = fs::read_to_string(Path::new(&dir).join("strandline-drive-create.1")).unwrap();
    let size = r"[\fB\-\-size\fR \fISIZE\fR]";
    assert!(create.contains(size), "an option's value has no name: {create}");
    let fsck = fs::read_to_string(Path::new(&dir).join("strandline-fsck.1")).unwrap();
    for part in [".SH EXAMPLES\n.nf\nstrandline fsck disk.img  ", ".SH \"EXIT STATUS\"\n"] {
        assert!(fsck.contains(part), "{part} is missing: {fsck}");
    }
}

#[test]
fn every_shell_completes_every_command() {
    let scratch = Scratch::new("completions");
    for shell in ["bash", "zsh", "fish"] {
        let script = ok(&format!("completions {shell}"));
        for command in commands() {
            let name = command.split(' ').next_back().expect("a name");
            assert!(script.contains(name), "{shell}: {command} is missing");
        }
        assert!(script.contains("zone-capacity"), "{shell}: options are missing");
    }
    let file = scratch.path("strandline.bash");
    // What bash itself completes for `strandline drive cr`.
    let ask = "\nCOMP_WORDS=(strandline drive cr) COMP_CWORD=2\n\
               _strandline strandline cr drive\necho \"${COMPREPLY[@]}\"\n";
    fs::write(&file, ok("completions bash") + ask).unwrap();
    let out = Command::new("bash").arg(&file).output().expect("bash runs");
    assert_eq!(text(&out.stdout), "create\n", "{}", text(&out.stderr));
}
