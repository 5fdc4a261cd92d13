//! Directory entries: whole cache lines in the directory's pages.
//!
//! A page is cut into runs of lines, and each run begins with two words: the inode, or zero if the
//! run is free; and its length in lines, with kind and length of the name, which follows. What lies
//! within a run behind its first two words means nothing unless they say so. Therefore a name may
//! be written into a free run at any time, and two words make it count. A run never crosses a page.

use drive::pm::LINE;
use vfs::path::NAME_MAX;
use vfs::{FileKind, Ino};

use super::{BLOCK, Corrupt};

/// Lines in a page.
pub(crate) const LINES: u64 = BLOCK / LINE;
/// Where the name begins.
pub(crate) const NAME_AT: u64 = 16;

const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Fifo,
    FileKind::Socket,
];

/// The number of a kind on the medium.
pub(crate) fn kind_number(kind: FileKind) -> u8 {
    KINDS.iter().position(|&known| known == kind).unwrap_or(0) as u8
}

/// The kind with a number.
pub(crate) fn kind_at(number: u64) -> Option<FileKind> {
    KINDS.get(usize::try_from(number).ok()?).copied()
}

/// The first two words of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) lines: u64,
    pub(crate) entry: Option<Head>,
}

/// What an entry says besides its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) name_len: u64,
}

/// Lines that an entry with such a name takes.
pub(crate) const fn lines_of(name_len: u64) -> u64 {
    (NAME_AT + name_len).div_ceil(LINE)
}

impl Run {
    pub(crate) const fn free(lines: u64) -> Self {
        Self { lines, entry: None }
    }

    pub(crate) fn bytes(&self) -> [u8; NAME_AT as usize] {
        let (ino, rest) = match self.entry {
            None => (0, 0),
            Some(Head { ino, kind, name_len }) => {
                (ino, u64::from(kind_number(kind)) << 8 | name_len)
            }
        };
        let mut bytes = [0; NAME_AT as usize];
        bytes[..8].copy_from_slice(&ino.to_le_bytes());
        bytes[8..].copy_from_slice(&(self.lines << 16 | rest).to_le_bytes());
        bytes
    }

    /// The run at address `at`, which is line `line` of its page.
    pub(crate) fn parse(at: u64, line: u64, words: [u64; 2]) -> Result<Self, Corrupt> {
        let wrong = |what, found, allowed| {
            Err(Corrupt { structure: "directory entry", at, what, found, allowed })
        };
        let [ino, word] = words;
        let (name_len, kind, lines) = (word & 0xff, word >> 8 & 0xff, word >> 16);
        if lines == 0 || lines > LINES - line {
            return wrong("lines", lines, "1 and more, within the page");
        }
        if ino == 0 {
            return Ok(Self::free(lines));
        }
        let Some(kind) = kind_at(kind) else {
            return wrong("kind", kind, "0 to 6");
        };
        if name_len == 0 || name_len > NAME_MAX as u64 || lines_of(name_len) != lines {
            return wrong("length of the name", name_len, "as many bytes as its lines hold");
        }
        Ok(Self { lines, entry: Some(Head { ino, kind, name_len }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_round_trip() {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        for kind in KINDS {
            for name_len in [1, 48, 49, 255] {
                let entry = Some(Head { ino: 77, kind, name_len });
                let run = Run { lines: lines_of(name_len), entry };
                let bytes = run.bytes();
                let words = [word(&bytes[..8]), word(&bytes[8..])];
                assert_eq!(Run::parse(0, 0, words), Ok(run));
            }
        }
        assert_eq!((lines_of(48), lines_of(49), lines_of(255)), (1, 2, 5));
        assert!(Run::parse(0, 1, [0, 64 << 16]).is_err(), "it would cross the page");
        assert!(Run::parse(0, 0, [0, 0]).is_err());
        assert!(Run::parse(0, 0, [5, 1 << 16]).is_err(), "no name");
    }
}
