//! What host and agent say to each other: a line of text, and bytes after it if the line says so.
//!
//! ```text
//! # strandline 0a3de1b5 1 0 {"mount":{"device":"/dev/nvme0n1","kind":"f2fs","options":""}}
//! # strandline 5cf0a7d8 1 0 "done"
//! # strandline 8b2ffc69 2 4096 {"write":{"path":"pattern","offset":8192}}
//! <4096 bytes>
//! # strandline c51e7ab0 2 0 {"count":4096}
//! ```
//!
//! After the mark, which a shell takes for a comment: a checksum of all the rest, the question's
//! number, how many bytes follow. The host asks, the agent answers, one thing at a time. A path is
//! below the mount, `#n` a file opened as `n`. Both sides bound what they take.
//!
//! What is no such line, or does not agree with its checksum, is noise and passed over. So what was
//! asked or answered may be lost: then the host asks again by the same number, and the agent, which
//! does nothing twice, says again what it answered.

use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, Read};
use std::net::IpAddr;

use crc32fast::Hasher as Crc;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Begins a message.
pub(crate) const MARK: &str = "# strandline ";
/// Bytes of a line.
const LINE_MAX: u64 = 16 << 20;
/// Bytes after a line.
const BYTES_MAX: usize = 4 << 20;

/// A question; what is in it names the system call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Whoever asked before is gone: all is as in the beginning.
    Hello,
    /// Nobody will ask any more.
    Bye,
    /// Which kernel is this?
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
    Lstat {
        path: String,
    },
    /// A file, directory, fifo, socket or device, by `mode`.
    Mknod {
        path: String,
        mode: u32,
        rdev: u64,
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
    /// The times of the last access and the last change; `None` leaves one as it is.
    Utimens {
        path: String,
        atime: Option<(i64, u32)>,
        mtime: Option<(i64, u32)>,
    },
    /// The flags as chattr(1) sets them: the answer is a count.
    Getflags {
        path: String,
    },
    Setflags {
        path: String,
        flags: u32,
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

/// One thing that came.
#[derive(Debug)]
pub(crate) enum Heard<T> {
    /// A message: its number, what it says, the bytes with it.
    Message(u64, T, Vec<u8>),
    /// None, in text that may say why.
    Noise(String),
    /// The other side has gone.
    End,
}

/// A message as it is sent.
pub(crate) fn frame(number: u64, message: &impl Serialize, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let message = serde_json::to_string(message)?;
    let rest = format!("{number} {} {message}\n", bytes.len());
    // Whatever came before it, a message begins a line.
    let mut frame = format!("\n{MARK}").into_bytes();
    frame.extend_from_slice(format!("{:08x} ", checksum(rest.as_bytes(), bytes)).as_bytes());
    frame.extend_from_slice(rest.as_bytes());
    frame.extend_from_slice(bytes);
    Ok(frame)
}

/// Waits for a message, or for a line that is none.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Heard<T>> {
    let mut line = Vec::new();
    if from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
        return Ok(Heard::End);
    }
    let noise = || Heard::Noise(String::from_utf8_lossy(&line).into_owned());
    let Some((sum, number, count)) = line.strip_prefix(MARK.as_bytes()).and_then(head) else {
        return Ok(noise());
    };
    let mut bytes = vec![0; count];
    match from.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Heard::End),
        read => read?,
    }
    let rest = &line[MARK.len() + 9..];
    let message = rest.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default();
    match serde_json::from_slice(message) {
        Ok(message) if checksum(rest, &bytes) == sum => Ok(Heard::Message(number, message, bytes)),
        _ => Ok(noise()),
    }
}

/// Checksum, number, and count of bytes of a line that says them.
fn head(line: &[u8]) -> Option<(u32, u64, usize)> {
    let mut words = line.splitn(4, |byte| *byte == b' ').map(|word| str::from_utf8(word).ok());
    let mut word = || words.next().flatten();
    let sum = word().filter(|sum| sum.len() == 8)?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    let (number, count) = (word()?.parse().ok()?, word()?.parse().ok()?);
    (count <= BYTES_MAX).then_some((sum, number, count))
}

fn checksum(rest: &[u8], bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(rest);
    crc.update(bytes);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is heard of `bytes`, as text.
    fn heard(mut bytes: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            all.push(match receive::<Ask>(&mut bytes).expect("memory") {
                Heard::Message(number, ask, bytes) => {
                    format!("{number} {ask:?} {}", String::from_utf8_lossy(&bytes))
                }
                Heard::Noise(_) => continue,
                Heard::End => return all,
            });
        }
    }

    fn write() -> Vec<u8> {
        let ask = Ask::Write { path: "a b\n".into(), offset: 7 };
        frame(3, &ask, b"12\n3").expect("memory")
    }

    #[test]
    fn what_is_sent_arrives_through_noise() {
        let bye = frame(u64::MAX, &Ask::Bye, b"").expect("memory");
        let wanted = ["3 Write { path: \"a b\\n\", offset: 7 } 12\n3", "18446744073709551615 Bye "];
        assert_eq!(heard(&[write(), bye.clone()].concat()), wanted);
        let login = b"\0\xff\x1b[0m# strandline\nhost login: # strandline 1 2 3".to_vec();
        assert_eq!(heard(&[login.clone(), write(), login, bye].concat()), wanted);
    }

    #[test]
    fn what_is_garbled_is_noise_and_what_follows_arrives() {
        let (frame, again) = (write(), write());
        for at in 1..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 4;
            let mut lost = frame.clone();
            lost.remove(at);
            for bytes in [changed, lost] {
                // What is lost may take the beginning of the next with it, so there are two.
                let all = heard(&[bytes.clone(), again.clone(), again.clone()].concat());
                assert!((1..=2).contains(&all.len()), "{}", String::from_utf8_lossy(&bytes));
            }
        }
        for bad in ["00000000 0 9999999999 \"bye\"", "0 0 \"bye\"", "zzzzzzzz 0 0 \"bye\"", ""] {
            assert!(heard(format!("\n# strandline {bad}\n").as_bytes()).is_empty(), "{bad}");
        }
    }
}
