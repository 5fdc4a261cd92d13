//! `cargo xtask package`: the Debian package of the `strandline` command.
//!
//! `package.metadata.deb` in `crates/strandline/Cargo.toml` says what goes where. Files that are
//! not in the tree are made here first, in `release/package` of the target directory: manual pages
//! and completions, which the command itself prints, and the links through which mount(8) calls it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The names for which mount(8) and umount(8) look, for the type `strandline` and for the type
/// under which the kernel shows such a mount.
const HELPERS: [&str; 4] =
    ["mount.strandline", "mount.fuse.strandline", "umount.strandline", "umount.fuse.strandline"];

/// Shells, and the names under which they look for completions.
const SHELLS: [(&str, &str); 3] =
    [("bash", "strandline"), ("zsh", "_strandline"), ("fish", "strandline.fish")];

/// Builds the package of the workspace in `root`; returns its path.
pub(crate) fn run(root: &Path) -> io::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let cargo = |words: &[&str]| {
        let mut command = Command::new(&cargo);
        command.args(words).current_dir(root);
        command
    };
    call(&mut cargo(&["build", "--release", "--package", "strandline"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |dir| root.join(dir));
    let made = target.join("release/package");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    generate(&target.join("release/strandline"), &made)?;
    let deb = target.join("debian/strandline.deb");
    let mut package = cargo(&["deb", "--no-build", "--strip", "--package", "strandline"]);
    call(package.arg("--output").arg(&deb).stdout(Stdio::null()))
        .map_err(|error| io::Error::other(format!("{error}; `make deb` installs cargo-deb")))?;
    Ok(deb)
}

fn generate(strandline: &Path, to: &Path) -> io::Result<()> {
    let (man, sbin) = (to.join("man"), to.join("sbin"));
    call(Command::new(strandline).arg("man").arg(&man))?;
    fs::create_dir_all(&sbin)?;
    for name in HELPERS {
        symlink("../bin/strandline", sbin.join(name))?;
        let page = man.join(format!("{name}.8"));
        if !page.exists() {
            fs::write(page, format!(".so man8/{}.8\n", name.replace(".fuse", "")))?;
        }
    }
    // -n: no time, so that the same tree makes the same package.
    let pages: Result<Vec<PathBuf>, io::Error> =
        fs::read_dir(&man)?.map(|entry| Ok(entry?.path())).collect();
    call(Command::new("gzip").arg("-9n").args(pages?))?;
    for (shell, name) in SHELLS {
        let dir = to.join(shell);
        fs::create_dir_all(&dir)?;
        let file = File::create(dir.join(name))?;
        call(Command::new(strandline).args(["completions", shell]).stdout(file))?;
    }
    Ok(())
}

/// Runs a program that must succeed.
fn call(command: &mut Command) -> io::Result<()> {
    let status = command.stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(io::Error::other(format!("{command:?}: {status}"))),
        Err(error) => Err(io::Error::other(format!("{command:?}: {error}"))),
    }
}
