//! What host and agent say to each other: a line of text, and bytes after it if the line says so.
//!
//! ```text
//! 0 {"mount":{"device":"/dev/nvme0n1","kind":"f2fs","options":"fsync_mode=posix"}}
//! 0 "done"
//! 4096 {"write":{"path":"pattern","offset":8192}}
//! <4096 bytes>
//! 0 {"count":4096}
//! ```
//!
//! The host asks, the agent answers, one thing at a time. A path is below the mount, `#n` a file
//! opened as `n`. Both sides bound what they take.

use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of a line.
const LINE_MAX: u64 = 16 << 20;
/// Bytes after a line.
const BYTES_MAX: usize = 4 << 20;

/// A question; what is in it names the system call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Which kernel is this?
    Uname,
    /// Runs a program to its end: `ran` and what it printed.
    Run {
        argv: Vec<String>,
    },
    /// Connects to a drive over NVMe/TCP: `devices`, in order of their `namespaces`.
    Connect {
        address: String,
        port: u16,
        nqn: String,
        namespaces: usize,
    },
    /// Ends that connection.
    Disconnect,
    Mount {
        device: String,
        kind: String,
        options: String,
    },
    Unmount,
    Lstat {
        path: String,
    },
    /// A file, directory, fifo or socket, by `mode`.
    Mknod {
        path: String,
        mode: u32,
    },
    Symlink {
        path: String,
        target: String,
    },
    Readlink {
        path: String,
    },
    Link {
        from: String,
        path: String,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Rename {
        from: String,
        path: String,
        flags: u32,
    },
    /// Keeps a file open as `handle` until `close`.
    Open {
        path: String,
        handle: u64,
    },
    Close {
        handle: u64,
    },
    Read {
        path: String,
        offset: u64,
        len: u32,
    },
    /// What [`digest`] makes of each block of 4 KiB, from block `first` on, little endian.
    Digests {
        path: String,
        first: u64,
        blocks: u32,
    },
    Write {
        path: String,
        offset: u64,
    },
    Fallocate {
        path: String,
        mode: u32,
        offset: u64,
        len: u64,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Chmod {
        path: String,
        perm: u16,
    },
    Chown {
        path: String,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    /// The modification time.
    Utimens {
        path: String,
        secs: i64,
        nanos: u32,
    },
    Fsync {
        path: String,
        data_only: bool,
    },
    Syncfs,
    List {
        path: String,
    },
    Getxattr {
        path: String,
        name: String,
    },
    Setxattr {
        path: String,
        name: String,
    },
    Listxattr {
        path: String,
    },
    Removexattr {
        path: String,
        name: String,
    },
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It is done; what was asked for follows as bytes.
    Done,
    Count(u64),
    Stat(Stat),
    Entries(Vec<Entry>),
    Names(Vec<String>),
    Devices(Vec<String>),
    Ran {
        status: i32,
    },
    /// It failed; the number is errno.
    Failed {
        errno: i32,
        what: String,
    },
}

/// What is needed of `struct stat`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Stat {
    pub(crate) ino: u64,
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) mtime: (i64, u32),
}

/// One name in a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) ino: u64,
    /// Type bits of its mode.
    pub(crate) mode: u32,
}

/// What stands for a block on the wire. Both sides are this program.
pub(crate) fn digest(block: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(block);
    hasher.finish()
}

/// Sends one message.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize, bytes: &[u8]) -> io::Result<()> {
    let mut frame = format!("{} {}\n", bytes.len(), serde_json::to_string(message)?).into_bytes();
    frame.extend_from_slice(bytes);
    to.write_all(&frame)?;
    to.flush()
}

/// Takes one message; `None` when the other side has gone in good order.
pub(crate) fn receive<T: DeserializeOwned>(
    from: &mut impl BufRead,
) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut line = String::new();
    if from.by_ref().take(LINE_MAX).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("agent: {what}"));
    let line = line.strip_suffix('\n').ok_or_else(|| bad("a line without an end"))?;
    let (count, message) = line.split_once(' ').ok_or_else(|| bad("a line of one word"))?;
    let count = count.parse().ok().filter(|count| *count <= BYTES_MAX);
    let mut bytes = vec![0; count.ok_or_else(|| bad("a wrong number of bytes"))?];
    let message = serde_json::from_str(message)?;
    from.read_exact(&mut bytes)?;
    Ok(Some((message, bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_arrives() {
        let mut pipe = Vec::new();
        let ask = Ask::Write { path: "a b\n".into(), offset: 7 };
        send(&mut pipe, &ask, b"12\n3").expect("memory");
        send(&mut pipe, &Answer::Done, b"").expect("memory");
        let mut from = pipe.as_slice();
        let (ask, bytes) = receive::<Ask>(&mut from).expect("right").expect("there");
        assert!(matches!(ask, Ask::Write { path, offset: 7 } if path == "a b\n"));
        assert_eq!(bytes, b"12\n3");
        let (answer, bytes) = receive::<Answer>(&mut from).expect("right").expect("there");
        assert!(matches!(answer, Answer::Done) && bytes.is_empty());
        assert!(receive::<Answer>(&mut from).expect("an end").is_none());
    }

    #[test]
    fn what_is_wrong_is_an_error() {
        for bad in ["0", "x \"done\"\n", "0 \"gone\"\n", "9999999999 \"done\"\n", "5 \"done\"\nabc"]
        {
            assert!(receive::<Answer>(&mut bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
