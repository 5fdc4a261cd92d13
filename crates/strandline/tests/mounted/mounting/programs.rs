//! Other people's programs that judge a mounted volume.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program that `cargo install` brings; fails unless it is there.
pub(crate) fn installed(program: &str, version: &str) -> PathBuf {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&search).collect();
    let home = std::env::var_os("HOME").unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    places.push(cargo.unwrap_or_else(|| Path::new(&home).join(".cargo")).join("bin"));
    places.iter().map(|dir| dir.join(program)).find(|path| path.exists()).unwrap_or_else(|| {
        panic!("{program} is missing: cargo install {program} --version {version} --locked")
    })
}

/// Runs a command that must succeed; returns what it printed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Both outputs of a program, the end of each.
pub(crate) fn said(output: &Output) -> String {
    let end = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    };
    format!("{}\n{}", end(&output.stdout), end(&output.stderr))
}

/// Runs a shell script that has to succeed, in `dir`.
pub(crate) fn shell(script: &str, dir: &Path) -> String {
    succeed(Command::new("sh").args(["-eu", "-c", script]).current_dir(dir))
}

/// Runs the command where mount(8) calls this build for our volumes: in a mount namespace of its
/// own, in which a script that calls it as `mount.strandline` lies over the helper that is
/// installed. Outside, and afterwards, nothing has changed.
pub(crate) fn with_mount_helper(program: &Path, scratch: &Path) -> Command {
    super::require("unshare", "util-linux");
    super::require("mount.fuse3", "fuse3");
    let helper = scratch.join("mount.strandline");
    if !helper.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_strandline"), &helper).unwrap();
    }
    let script = scratch.join("helper");
    std::fs::write(&script, format!("#!/bin/sh\nexec '{}' \"$@\"\n", helper.display())).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", OVER_THE_HELPER, "sh"]).arg(script).arg(program);
    command
}

/// mount(8) looks for `mount.fuse.strandline`, and without it for `mount.fuse`.
const OVER_THE_HELPER: &str = "\
script=$1; shift; helper=/sbin/mount.fuse.strandline
[ -e $helper ] || helper=/sbin/mount.fuse
mount --bind \"$script\" \"$(readlink -f $helper)\"
exec \"$@\"";
