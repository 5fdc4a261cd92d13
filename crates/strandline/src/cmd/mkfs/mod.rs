//! `strandline mkfs`: each file system has the letters, the words and the `--help` of its own mkfs.
//!
//! The default's are those of `strandline mkfs`. Another file system is one file here, one
//! subcommand `mkfs.NAME` in `main.rs`, and its name in [`KINDS`].

mod ext4;
mod f2fs;
mod pmfs;

use std::ffi::OsString;

pub(crate) use ext4::Mkfs as MkfsExt4;
pub(crate) use f2fs::Mkfs as MkfsF2fs;
pub(crate) use pmfs::Mkfs as MkfsPmfs;

use crate::failure::{Failure, Outcome};

/// What `--fs` takes; the first is the default.
pub(crate) const KINDS: [&str; 3] = ["f2fs", "ext4", "pmfs"];

/// Turns `mkfs --fs NAME` into the subcommand `mkfs.NAME`. This comes before clap parses, because
/// the name decides what the letters mean.
pub(crate) fn choose(words: &mut [OsString]) {
    let [_, command, options @ ..] = words else { return };
    if command == "mkfs"
        && let Some(kind) = named(options)
        && KINDS[1..].contains(&kind)
    {
        *command = format!("mkfs.{kind}").into();
    }
}

/// The value of `--fs`.
fn named(options: &[OsString]) -> Option<&str> {
    let options = options.iter().map(|word| word.to_str().unwrap_or_default());
    let mut options = options.take_while(|word| *word != "--");
    while let Some(word) = options.next() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("--fs" | "--fs-type", "") => return options.next(),
            ("--fs" | "--fs-type", kind) => return Some(kind),
            _ => {}
        }
    }
    None
}

/// Effective user and group of this process.
fn caller() -> (u32, u32) {
    use rustix::process::{getegid, geteuid};
    (geteuid().as_raw(), getegid().as_raw())
}

/// `UID:GID`, which `option` takes.
fn parse_owner(option: &str, text: &str) -> Outcome<(u32, u32)> {
    let parsed = text.split_once(':').and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
    parsed.ok_or_else(|| Failure::Usage(format!("{option} {text}: expected UID:GID")))
}

/// A UUID, which `option` takes.
fn parse_uuid(option: &str, text: &str) -> Outcome<[u8; 16]> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    let wrong = || Failure::Usage(format!("{option} {text}: not a UUID"));
    if digits.len() != 32 || !digits.is_ascii() {
        return Err(wrong());
    }
    u128::from_str_radix(&digits, 16).map(u128::to_be_bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_found_among_the_options() {
        for (line, kind) in [
            ("--fs ext4 -q x", Some("ext4")),
            ("-q --fs-type=ext4 x", Some("ext4")),
            ("x --fs", None),
            ("x -- --fs ext4", None),
            ("-l --fsx x", None),
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(named(&words), kind, "{line}");
        }
    }

    #[test]
    fn only_mkfs_is_turned_into_another_command() {
        for (line, turned) in [
            ("strandline mkfs --fs f2fs x", "mkfs"),
            ("strandline mkfs --fs ext4 x", "mkfs.ext4"),
            ("strandline mkfs --fs nothing x", "mkfs"),
            ("strandline fsck --fs ext4 x", "fsck"),
        ] {
            let mut words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            choose(&mut words);
            assert_eq!(words[1], turned, "{line}");
        }
    }
}
