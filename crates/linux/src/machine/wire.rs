//! Messages between host and agent: a line of text, followed by as many bytes as it says.
//!
//! ```text
//! 0 {"mount":{"device":"/dev/strandline-1","kind":"f2fs","options":""}}
//! 0 "done"
//! 4096 {"apply":{"op":"write pattern 8192+4096 seed=0"}}
//! <4096 bytes>
//! 0 {"count":4096}
//! ```
//!
//! The host asks, the agent answers, one thing at a time. A path is below the mount, `#n` a file
//! opened as `n`. Both sides bound what they take, and hang up on anything else.

use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest message that is taken.
pub(crate) struct Longest {
    /// Bytes of its line.
    pub(crate) line: u64,
    /// Bytes after that.
    pub(crate) bytes: usize,
}

/// Of an agent, or of the host to it.
pub(crate) const LONGEST: Longest = Longest { line: 16 << 20, bytes: 4 << 20 };

/// A question; what is in it names the system call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Which kernel is this? The first question, by which an agent is known.
    Uname,
    /// Runs a program to its end: `ran` and what it printed.
    Run {
        argv: Vec<String>,
    },
    /// Connects to a drive over NVMe/TCP: `devices`, in order of their `namespaces`. Without an
    /// address, to where the question comes from.
    Connect {
        address: Option<IpAddr>,
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
    /// An operation in the language of [`vfs::ops`]. What it writes comes with it, what it reads
    /// with the answer.
    Apply {
        op: String,
    },
    Lstat {
        path: String,
    },
    Readlink {
        path: String,
    },
    /// What [`digest`] makes of each block of 4 KiB, from block `first` on, little endian.
    Digests {
        path: String,
        first: u64,
        blocks: u32,
    },
    /// The flags as lsattr(1) shows them: the answer is a count.
    Getflags {
        path: String,
    },
    List {
        path: String,
    },
    Getxattr {
        path: String,
        name: String,
    },
    Listxattr {
        path: String,
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
    pub(crate) rdev: u64,
    pub(crate) atime: (i64, u32),
    pub(crate) mtime: (i64, u32),
    pub(crate) ctime: (i64, u32),
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

/// Sends a message.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize, bytes: &[u8]) -> io::Result<()> {
    let message = serde_json::to_string(message)?;
    let mut frame = format!("{} {message}\n", bytes.len()).into_bytes();
    frame.extend_from_slice(bytes);
    to.write_all(&frame)
}

/// Waits for a message and the bytes with it; `None` if the other side has gone.
pub(crate) fn receive<T: DeserializeOwned>(
    from: &mut impl BufRead,
    longest: &Longest,
) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut line = Vec::new();
    if from.by_ref().take(longest.line).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let (count, message) = head(&line).ok_or(ErrorKind::InvalidData)?;
    if count > longest.bytes {
        return Err(ErrorKind::InvalidData.into());
    }
    let message = serde_json::from_slice(message)?;
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes)?;
    Ok(Some((message, bytes)))
}

/// How many bytes follow a line, and what it says.
fn head(line: &[u8]) -> Option<(usize, &[u8])> {
    let line = line.strip_suffix(b"\n")?;
    let (count, message) = line.split_at_checked(line.iter().position(|byte| *byte == b' ')?)?;
    Some((str::from_utf8(count).ok()?.parse().ok()?, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write() -> Vec<u8> {
        let mut frame = Vec::new();
        let ask = Ask::Readlink { path: "a b\n".into() };
        send(&mut frame, &ask, b"12\n3").expect("memory");
        frame
    }

    #[test]
    fn what_is_sent_arrives() {
        let two = [write(), write()].concat();
        let mut from = two.as_slice();
        for _ in 0..2 {
            let (ask, bytes) =
                receive::<Ask>(&mut from, &LONGEST).expect("a message").expect("another");
            assert_eq!(format!("{ask:?}"), r#"Readlink { path: "a b\n" }"#);
            assert_eq!(bytes, b"12\n3");
        }
        assert!(receive::<Ask>(&mut from, &LONGEST).expect("no more").is_none());
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let frame = write();
        for end in 1..frame.len() {
            assert!(receive::<Ask>(&mut &frame[..end], &LONGEST).is_err(), "{end} bytes");
        }
        for bad in ["9999999999 \"uname\"", "0\"uname\"", "-1 \"uname\"", "0 what", "", "SSH-2.0"] {
            let line = format!("{bad}\n");
            let error = receive::<Ask>(&mut line.as_bytes(), &LONGEST).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{bad}");
        }
    }
}
