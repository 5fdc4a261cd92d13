//! What a command is answered over a socket: one JSON object.

use lab::record::harness::{NameChange, UnsyncedFile};
use serde::Serialize;

use super::{BLOCK_BYTES, commands};
use crate::out::lossy;

/// See the module's header.
#[derive(Serialize)]
pub(super) struct Answer {
    /// It was done.
    ok: bool,
    #[serde(flatten)]
    what: What,
}

#[derive(Serialize)]
#[serde(untagged)]
enum What {
    Done {},
    /// How often the mount has lost what was not durable, this time included.
    Lost {
        losses: u64,
    },
    Usage {
        bytes: u64,
        percent: f64,
    },
    Unsynced {
        bytes: u64,
        files: Vec<File>,
        names: Vec<Name>,
    },
    Help {
        commands: Vec<About>,
    },
    Refused {
        errors: Vec<String>,
    },
}

/// A file with changes that no fsync has covered.
#[derive(Serialize)]
struct File {
    inode: u64,
    paths: Vec<String>,
    ranges: Vec<Range>,
}

/// Blocks of 4 KiB, and bytes; the ends are within.
#[derive(Serialize)]
struct Range {
    first_block: u64,
    last_block: u64,
    first_byte: u64,
    last_byte: u64,
}

#[derive(Serialize)]
struct Name {
    path: String,
    change: &'static str,
}

#[derive(Serialize)]
struct About {
    command: &'static str,
    about: &'static str,
}

impl Answer {
    fn of(what: What) -> Self {
        Self { ok: true, what }
    }

    pub(super) fn done() -> Self {
        Self::of(What::Done {})
    }

    pub(super) fn lost(losses: u64) -> Self {
        Self::of(What::Lost { losses })
    }

    pub(super) fn usage(bytes: u64, percent: f64) -> Self {
        Self::of(What::Usage { bytes, percent })
    }

    pub(super) fn help() -> Self {
        let commands = commands::HELP.map(|(command, about)| About { command, about });
        Self::of(What::Help { commands: commands.into() })
    }

    pub(super) fn refused<T: Into<String>>(errors: impl IntoIterator<Item = T>) -> Self {
        let errors = errors.into_iter().map(Into::into).collect();
        Self { ok: false, what: What::Refused { errors } }
    }

    pub(super) fn unsynced(files: &[UnsyncedFile], names: &[NameChange]) -> Self {
        let ranges = files.iter().flat_map(|file| &file.ranges);
        let bytes = ranges.map(|range| range.end - range.start).sum();
        let range = |range: &std::ops::Range<u64>| Range {
            first_block: range.start / BLOCK_BYTES,
            last_block: (range.end - 1) / BLOCK_BYTES,
            first_byte: range.start,
            last_byte: range.end - 1,
        };
        let file = |file: &UnsyncedFile| File {
            inode: file.ino,
            paths: file.paths.iter().map(|path| lossy(path)).collect(),
            ranges: file.ranges.iter().map(range).collect(),
        };
        let name = |name: &NameChange| Name {
            path: lossy(&name.path),
            change: if name.added { "new" } else { "removed" },
        };
        let files = files.iter().map(file).collect();
        Self::of(What::Unsynced { bytes, files, names: names.iter().map(name).collect() })
    }

    /// As a line.
    pub(super) fn line(&self) -> String {
        let text = serde_json::to_string(self);
        // Numbers and text always have a form in JSON.
        text.unwrap_or_else(|error| format!("{{\"ok\":false,\"errors\":[\"{error}\"]}}")) + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_lines_of_json() {
        assert_eq!(Answer::done().line(), "{\"ok\":true}\n");
        assert_eq!(Answer::lost(2).line(), "{\"ok\":true,\"losses\":2}\n");
        let refused = Answer::refused(["no\nsuch"]).line();
        assert_eq!(refused, "{\"ok\":false,\"errors\":[\"no\\nsuch\"]}\n");
        let (paths, ranges) = (vec![b"/a\xff".to_vec()], Vec::from_iter(Some(4000..9000)));
        let file = UnsyncedFile { ino: 7, paths, ranges };
        let name = NameChange { path: b"/b".to_vec(), added: false };
        let said: serde_json::Value =
            serde_json::from_str(&Answer::unsynced(&[file], &[name]).line()).unwrap();
        let expected = serde_json::json!({
            "ok": true,
            "bytes": 5000,
            "files": [{
                "inode": 7,
                "paths": ["/a\u{fffd}"],
                "ranges": [
                    {"first_block": 0, "last_block": 2, "first_byte": 4000, "last_byte": 8999}
                ],
            }],
            "names": [{"path": "/b", "change": "removed"}],
        });
        assert_eq!(said, expected);
    }
}
