//! The text form: one operation on each line, words separated by blanks, the verb first.
//!
//! ```text
//! mkdir d0 755
//! create d0/f1 644
//! write d0/f1 4096+100 seed=7
//! fallocate d0/f1 punch_hole|keep_size 0+4096
//! rename d0/f1 f2 noreplace
//! fsync f2
//! ```
//!
//! Numbers are decimal, modes octal, ranges `offset+length`, times seconds with nine decimals, or
//! `omit`. In a name, blanks, `%` and control characters are written as `%` and two hexadecimal
//! digits. Empty lines and those that begin with `;` or `#` are skipped. A line written by hand may
//! leave out at its end: the mode of `create` (644) and `mkdir` (755), the flags of `rename`
//! (none), the mode of `setxattr` (set), and a seed: each such line gets its own bytes.

use std::fmt::{self, Display, Write};
use std::str::FromStr;

use thiserror::Error;

use super::Op;
use crate::{FileKind, RenameFlags, Timespec, XattrMode};

const NO_FLAGS: &str = "none";
const NO_TIME: &str = "omit";

/// A line that is not an operation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what} in '{text}'")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// The line.
    pub text: String,
}

/// The operations in a text.
pub fn parse(text: &str) -> Result<Vec<Op>, ParseError> {
    let mut ops = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if !is_comment(line) {
            let number = number + 1;
            let op = Op::parse_line(line, number);
            ops.push(op.map_err(|what| ParseError { line: number, what, text: line.into() })?);
        }
    }
    Ok(ops)
}

/// Whether a line, without blanks around it, is empty or a comment.
pub fn is_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with([';', '#'])
}

/// The text of a sequence, one line for each operation.
pub fn print(ops: &[Op]) -> String {
    ops.iter().fold(String::new(), |mut text, op| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{op}");
        text
    })
}

impl Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create { path, perm } => write!(f, "create {} {perm:o}", Name(path)),
            Op::Mkdir { path, perm } => write!(f, "mkdir {} {perm:o}", Name(path)),
            Op::Mknod { path, kind, perm, rdev } => {
                write!(f, "mknod {} {} {perm:o} {rdev}", Name(path), kind_word(*kind))
            }
            Op::Symlink { target, path } => write!(f, "symlink {} {}", Name(target), Name(path)),
            Op::Link { from, path } => write!(f, "link {} {}", Name(from), Name(path)),
            Op::Unlink { path } => write!(f, "unlink {}", Name(path)),
            Op::Rmdir { path } => write!(f, "rmdir {}", Name(path)),
            Op::Rename { from, path, flags } => {
                write!(f, "rename {} {} {}", Name(from), Name(path), flags_text(*flags))
            }
            Op::Open { path, handle } => write!(f, "open {} {}", Name(path), Name(handle)),
            Op::Close { handle } => write!(f, "close {}", Name(handle)),
            Op::Chmod { path, perm } => write!(f, "chmod {} {perm:o}", Name(path)),
            Op::Chown { path, uid, gid } => write!(f, "chown {} {uid} {gid}", Name(path)),
            Op::Utimens { path, atime, mtime } => {
                write!(f, "utimens {} {} {}", Name(path), Time(*atime), Time(*mtime))
            }
            Op::Chattr { path, flags } => write!(f, "chattr {} {}", Name(path), flags_text(*flags)),
            Op::SetXattr { path, name, len, seed, mode } => {
                let mode = xattr_mode_word(*mode);
                write!(f, "setxattr {} {} {len} seed={seed} {mode}", Name(path), Name(name))
            }
            Op::GetXattr { path, name } => write!(f, "getxattr {} {}", Name(path), Name(name)),
            Op::RemoveXattr { path, name } => {
                write!(f, "removexattr {} {}", Name(path), Name(name))
            }
            Op::Stat { path } => write!(f, "stat {}", Name(path)),
            Op::List { path } => write!(f, "list {}", Name(path)),
            Op::Fsync { path } => write!(f, "fsync {}", Name(path)),
            Op::Fdatasync { path } => write!(f, "fdatasync {}", Name(path)),
            Op::Sync => f.write_str("sync"),
            _ => self.fmt_data(f),
        }
    }
}

impl Op {
    fn fmt_data(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Write { path, offset, len, seed } => {
                write!(f, "write {} {offset}+{len} seed={seed}", Name(path))
            }
            Op::Append { path, len, seed } => write!(f, "append {} {len} seed={seed}", Name(path)),
            Op::Read { path, offset, len } => write!(f, "read {} {offset}+{len}", Name(path)),
            Op::Truncate { path, size } => write!(f, "truncate {} {size}", Name(path)),
            Op::Fallocate { path, mode, offset, len } => {
                write!(f, "fallocate {} {} {offset}+{len}", Name(path), flags_text(*mode))
            }
            Op::Copy { from, from_offset, path, offset, len } => {
                write!(f, "copy {} {from_offset}+{len} {} {offset}", Name(from), Name(path))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Op {
    /// What is wrong with the line.
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        Self::parse_line(line, 1)
    }
}

impl Op {
    /// The operation of line `number`, counted from 1; an error says what is wrong with it.
    pub fn parse_line(line: &str, number: usize) -> Result<Self, String> {
        let seed = u32::try_from(number).unwrap_or(u32::MAX);
        let mut words = Words { left: line.split_ascii_whitespace().peekable(), seed };
        let verb = words.next("verb")?;
        let op = match verb {
            "create" => Op::Create { path: words.name()?, perm: words.octal_or(0o644)? },
            "mkdir" => Op::Mkdir { path: words.name()?, perm: words.octal_or(0o755)? },
            "mknod" => Op::Mknod {
                path: words.name()?,
                kind: words.one_of("kind", kind_word, &KINDS)?,
                perm: words.octal()?,
                rdev: words.number()?,
            },
            "symlink" => Op::Symlink { target: words.name()?, path: words.name()? },
            "link" => Op::Link { from: words.name()?, path: words.name()? },
            "unlink" => Op::Unlink { path: words.name()? },
            "rmdir" => Op::Rmdir { path: words.name()? },
            "rename" => {
                let (from, path) = (words.name()?, words.name()?);
                let flags = if words.is_end() { RenameFlags::empty() } else { words.flags()? };
                Op::Rename { from, path, flags }
            }
            "open" => Op::Open { path: words.name()?, handle: words.name()? },
            "close" => Op::Close { handle: words.name()? },
            "chmod" => Op::Chmod { path: words.name()?, perm: words.octal()? },
            "chown" => {
                Op::Chown { path: words.name()?, uid: words.number()?, gid: words.number()? }
            }
            "utimens" => {
                Op::Utimens { path: words.name()?, atime: words.time()?, mtime: words.time()? }
            }
            "chattr" => Op::Chattr { path: words.name()?, flags: words.flags()? },
            "getxattr" => Op::GetXattr { path: words.name()?, name: words.name()? },
            "removexattr" => Op::RemoveXattr { path: words.name()?, name: words.name()? },
            "stat" => Op::Stat { path: words.name()? },
            "list" => Op::List { path: words.name()? },
            "fsync" => Op::Fsync { path: words.name()? },
            "fdatasync" => Op::Fdatasync { path: words.name()? },
            "sync" => Op::Sync,
            _ => parse_data(verb, &mut words)?,
        };
        match words.left.next() {
            Some(word) => Err(format!("unexpected '{word}'")),
            None => Ok(op),
        }
    }
}

fn parse_data(verb: &str, words: &mut Words<'_>) -> Result<Op, String> {
    Ok(match verb {
        "write" => {
            let (path, (offset, len)) = (words.name()?, words.range()?);
            Op::Write { path, offset, len, seed: words.seed()? }
        }
        "append" => Op::Append { path: words.name()?, len: words.number()?, seed: words.seed()? },
        "read" => {
            let (path, (offset, len)) = (words.name()?, words.range()?);
            Op::Read { path, offset, len }
        }
        "truncate" => Op::Truncate { path: words.name()?, size: words.number()? },
        "fallocate" => {
            let (path, mode, (offset, len)) = (words.name()?, words.flags()?, words.range()?);
            Op::Fallocate { path, mode, offset, len }
        }
        "copy" => {
            let (from, (from_offset, len)) = (words.name()?, words.range()?);
            Op::Copy { from, from_offset, path: words.name()?, offset: words.number()?, len }
        }
        "setxattr" => {
            let (path, name) = (words.name()?, words.name()?);
            let (len, seed) = (words.number()?, words.seed()?);
            let mode = if words.is_end() {
                XattrMode::Set
            } else {
                words.one_of("mode", xattr_mode_word, &XATTR_MODES)?
            };
            Op::SetXattr { path, name, len, seed, mode }
        }
        _ => return Err(format!("unknown verb '{verb}'")),
    })
}

/// The words of a line; each is parsed as what is expected there.
struct Words<'l> {
    left: std::iter::Peekable<std::str::SplitAsciiWhitespace<'l>>,
    /// The seed where none is given.
    seed: u32,
}

impl<'l> Words<'l> {
    fn next(&mut self, what: &str) -> Result<&'l str, String> {
        self.left.next().ok_or_else(|| format!("missing {what}"))
    }

    fn is_end(&mut self) -> bool {
        self.left.peek().is_none()
    }

    fn name(&mut self) -> Result<String, String> {
        let word = self.next("name")?;
        let mut name = Vec::new();
        let mut bytes = word.bytes();
        while let Some(byte) = bytes.next() {
            name.push(match byte {
                b'%' => {
                    let mut digit = || char::from(bytes.next()?).to_digit(16);
                    let code = digit().and_then(|high| Some(high * 16 + digit()?));
                    code.ok_or_else(|| format!("bad escape in '{word}'"))? as u8
                }
                _ => byte,
            });
        }
        String::from_utf8(name).map_err(|_| format!("'{word}' is not UTF-8"))
    }

    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.next("number")?;
        word.parse().map_err(|_| format!("'{word}' is not a number that fits"))
    }

    fn time(&mut self) -> Result<Option<Timespec>, String> {
        let word = self.next("time")?;
        if word == NO_TIME {
            return Ok(None);
        }
        let time = word.split_once('.').and_then(|(secs, nanos)| {
            let digits = nanos.len() == 9 && nanos.bytes().all(|digit| digit.is_ascii_digit());
            let nanos = digits.then(|| nanos.parse().ok()).flatten()?;
            Some(Timespec { secs: secs.parse().ok()?, nanos })
        });
        time.map(Some).ok_or_else(|| format!("'{word}' is not a time"))
    }

    fn octal(&mut self) -> Result<u16, String> {
        let word = self.next("mode")?;
        u16::from_str_radix(word, 8).map_err(|_| format!("'{word}' is not a mode"))
    }

    fn octal_or(&mut self, default: u16) -> Result<u16, String> {
        if self.is_end() { Ok(default) } else { self.octal() }
    }

    fn seed(&mut self) -> Result<u32, String> {
        if self.is_end() {
            return Ok(self.seed);
        }
        let word = self.next("seed")?;
        let seed = word.strip_prefix("seed=").and_then(|n| n.parse().ok());
        seed.ok_or_else(|| format!("'{word}' is not a seed"))
    }

    fn range(&mut self) -> Result<(u64, u64), String> {
        let word = self.next("range")?;
        let range = word.split_once('+');
        range
            .and_then(|(offset, len)| Some((offset.parse().ok()?, len.parse().ok()?)))
            .ok_or_else(|| format!("'{word}' is not a range"))
    }

    fn flags<F: bitflags::Flags>(&mut self) -> Result<F, String> {
        let word = self.next("flags")?;
        if word == NO_FLAGS {
            return Ok(F::empty());
        }
        word.split('|').try_fold(F::empty(), |all, name| {
            let flag = F::from_name(&name.to_ascii_uppercase());
            flag.map(|flag| all.union(flag)).ok_or_else(|| format!("unknown flag '{name}'"))
        })
    }

    fn one_of<T: Copy>(
        &mut self,
        what: &str,
        word_of: fn(T) -> &'static str,
        all: &[T],
    ) -> Result<T, String> {
        let word = self.next(what)?;
        let found = all.iter().copied().find(|&value| word_of(value) == word);
        found.ok_or_else(|| format!("unknown {what} '{word}'"))
    }
}

/// A name, with everything escaped that would break the line.
struct Name<'n>(&'n str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '%' | ' ' | '\0'..='\x1f' | '\x7f' => write!(f, "%{:02x}", u32::from(c)),
            _ => f.write_char(c),
        })
    }
}

/// Seconds, which may be negative, and nanoseconds, which are added to them.
struct Time(Option<Timespec>);

impl Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Timespec { secs, nanos }) => write!(f, "{secs}.{nanos:09}"),
            None => f.write_str(NO_TIME),
        }
    }
}

fn flags_text<F: bitflags::Flags>(flags: F) -> String {
    let names: Vec<String> =
        flags.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    if names.is_empty() { NO_FLAGS.into() } else { names.join("|") }
}

const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Fifo,
    FileKind::Socket,
];

fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "dir",
        FileKind::Symlink => "symlink",
        FileKind::CharDevice => "char",
        FileKind::BlockDevice => "block",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

const XATTR_MODES: [XattrMode; 3] = [XattrMode::Set, XattrMode::Create, XattrMode::Replace];

fn xattr_mode_word(mode: XattrMode) -> &'static str {
    match mode {
        XattrMode::Set => "set",
        XattrMode::Create => "create",
        XattrMode::Replace => "replace",
    }
}
