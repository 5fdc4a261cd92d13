//! README's commands as a newcomer types them: every line of its `sh` blocks, in order, in a fresh
//! shell. What builds or tests the project itself is left out, since running this test does both.
//! Its `console` blocks are replayed by the tests of the documents (`it/docs/`).

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{program, text};
use crate::mounting::{Rig, require};

/// The lines of all `sh` blocks.
fn typed(readme: &str) -> Vec<&str> {
    let blocks = readme.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix("sh\n")).flat_map(str::lines).collect()
}

/// The line for a test: /mnt is a directory of its own; a server, which README leaves running by
/// another terminal, is in the background and takes any port.
fn here(line: &str, point: &Path) -> String {
    let line = line.replace("/mnt", &point.display().to_string());
    match line.strip_prefix("strandline drive serve ") {
        Some(image) => format!(
            "strandline drive serve --listen 127.0.0.1:0 {image} >served & server=$!\n\
             until grep -q control: served; do kill -0 $server || exit; sleep 0.01; done"
        ),
        None => line,
    }
}

#[test]
fn what_readme_says_to_type_runs() {
    require("fusermount3", "fuse3");
    let rig = Rig::empty();
    let home = rig.point().with_file_name("home");
    std::fs::create_dir(&home).unwrap();
    let readme = include_str!("../../../../README.md");
    let lines = typed(readme);
    let own = lines.iter().filter(|line| line.starts_with("strandline ")).count();
    assert!(own > 5 && lines.len() > own + 3, "{lines:?}");

    // The first line that fails ends the shell, which takes its server along.
    let mut script =
        String::from("set -eux\nserver=\ntrap 'test -z $server || kill $server' EXIT\n");
    for line in lines {
        let is_build = line.starts_with("cargo ") || line.starts_with("make ");
        if !is_build && !line.starts_with("PATH=") {
            script += &here(line, &rig.point());
            script.push('\n');
        }
    }
    let dir = program().parent().unwrap().display().to_string();
    let path = format!("{dir}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(&home).env("PATH", path).stdin(Stdio::null());
    let out = shell.output().expect("a shell");
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("fsync_mode=strict"), "status: {}", text(&out.stdout));
    assert!(!rig.is_mounted(), "README unmounts what it mounts");
}
