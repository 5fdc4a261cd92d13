//! The log of an inode, in the designs that have one: a list of pages, each of a head and entries
//! of whole cache lines.
//!
//! The first page's head has the *tail*: the page and the line at which the log ends. It is one
//! word, and it is what commits entries. What lies behind it means nothing. So does the link to a
//! next page, once the tail's page is reached. An entry never crosses a page; a page that has no
//! room for the next entry ends with [`Kind::Skip`]. (NOVA, FAST 2016, section 4.3, has the tail in
//! the inode. Here a log can be replaced by a shorter one with one word, the inode's.)

use drive::pm::LINE;
use vfs::{FileKind, Ino};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::{kind_at, kind_number};
use super::extent::{Extent, run_word};
use super::inode::{FILE_SIZE_MAX, RawInode};
use super::superblock::Layout;
use super::{BLOCK, Corrupt};

/// Lines of a page; the first is its head.
pub(crate) const LINES: u64 = BLOCK / LINE;
/// Where in a page's head the next page's block is.
pub(crate) const NEXT_AT: u64 = 0;
/// Where in the first page's head the tail is.
pub(crate) const TAIL_AT: u64 = 8;
/// Bytes of attributes in an entry: all of an inode's but those in reserve.
const ATTR_SIZE: usize = 112;
/// No log gets that far.
const VERSION_MAX: u64 = 1 << 62;
/// Pages that a file may have.
const PAGES_MAX: u64 = FILE_SIZE_MAX / BLOCK;

/// Where a log ends: in which page, and how many of its lines are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) block: u64,
    pub(crate) lines: u64,
}

impl Tail {
    pub(crate) const fn word(self) -> u64 {
        self.block << 8 | self.lines
    }

    /// The tail in the head of the page at `at`.
    pub(crate) fn parse(at: u64, word: u64, layout: &Layout) -> Result<Self, Corrupt> {
        let tail = Self { block: word >> 8, lines: word & 0xff };
        let is_right = layout.data().contains(&tail.block) && (1..=LINES).contains(&tail.lines);
        let (structure, what) = ("log", "tail");
        let allowed = "a data block, 1 to 64 lines";
        is_right.then_some(tail).ok_or(Corrupt { structure, at, what, found: word, allowed })
    }
}

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// The rest of the page is not used.
    Skip = 1,
    Write = 2,
    Hole = 3,
    Attr = 4,
    Name = 5,
}

/// The beginning of every entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHead {
    kind: u8,
    /// Of the entry.
    lines: u8,
    name_len: u8,
    /// Of the inode that a name stands for.
    file_kind: u8,
    /// CRC32C of the entry with zero here.
    crc: U32,
    /// Of changes of one inode to the same bytes the one with the higher version is newer.
    version: U64,
}

/// [`Kind::Write`] and [`Kind::Hole`].
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawWrite {
    head: RawHead,
    page: U64,
    /// Blocks, as in an extent; of a hole how many pages.
    run: U64,
    /// Of the file, after the write.
    size: U64,
    mtime: I64,
    mtime_nanos: U32,
    reserved: U32,
    end: [u8; 8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAttr {
    head: RawHead,
    attributes: [u8; ATTR_SIZE],
}

/// The name follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawName {
    head: RawHead,
    cookie: U64,
    /// Zero if the name is removed.
    ino: U64,
}

const _: () = assert!(size_of::<RawWrite>() as u64 == LINE);
const _: () = assert!(size_of::<RawAttr>() as u64 == 2 * LINE);
const _: () = assert!(size_of::<RawName>() == 32);
const _: () = assert!(size_of::<RawInode>() == ATTR_SIZE + 16);

/// What an entry says.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// These pages are in these blocks; the file is that long, and was changed then.
    Write { extent: Extent, size: u64, mtime: (i64, u32) },
    /// These pages have no blocks.
    Hole { page: u64, pages: u64 },
    /// All attributes.
    Attr(Box<RawInode>),
    /// A name, by its cookie, now stands for this or for nothing.
    Name { cookie: u64, to: Option<(Ino, FileKind)>, name: Box<[u8]> },
}

/// Lines that a name's entry takes.
pub(crate) const fn name_lines(len: usize) -> u64 {
    (size_of::<RawName>() as u64 + len as u64).div_ceil(LINE)
}

fn head(kind: Kind, lines: u64, version: u64) -> RawHead {
    RawHead {
        kind: kind as u8,
        lines: lines as u8,
        version: version.into(),
        ..RawHead::new_zeroed()
    }
}

/// The line that says that a page has no more entries.
pub(crate) fn skip() -> [u8; LINE as usize] {
    let mut bytes = [0; LINE as usize];
    bytes[..16].copy_from_slice(head(Kind::Skip, 1, 0).as_bytes());
    seal(&mut bytes);
    bytes
}

/// Puts the checksum into an entry.
fn seal(entry: &mut [u8]) {
    let crc = crc32c::crc32c(entry);
    entry[4..8].copy_from_slice(&crc.to_le_bytes());
}

impl Entry {
    /// Appends the entry's lines to `to`.
    pub(crate) fn print(&self, version: u64, to: &mut Vec<u8>) {
        let from = to.len();
        match self {
            Self::Write { extent, size, mtime } => {
                let mut raw = RawWrite::new_zeroed();
                raw.head = head(Kind::Write, 1, version);
                raw.page = extent.page.into();
                raw.run = run_word(extent.block, extent.len).into();
                raw.size = (*size).into();
                (raw.mtime, raw.mtime_nanos) = (mtime.0.into(), mtime.1.into());
                to.extend_from_slice(raw.as_bytes());
            }
            Self::Hole { page, pages } => {
                let mut raw = RawWrite::new_zeroed();
                raw.head = head(Kind::Hole, 1, version);
                (raw.page, raw.run) = ((*page).into(), (*pages).into());
                to.extend_from_slice(raw.as_bytes());
            }
            Self::Attr(raw) => {
                to.extend_from_slice(head(Kind::Attr, 2, version).as_bytes());
                to.extend_from_slice(&raw.as_bytes()[..ATTR_SIZE]);
            }
            Self::Name { cookie, to: target, name } => {
                let mut raw = RawName::new_zeroed();
                let lines = name_lines(name.len());
                raw.head = head(Kind::Name, lines, version);
                raw.head.name_len = name.len() as u8;
                raw.cookie = (*cookie).into();
                if let Some((ino, kind)) = target {
                    (raw.ino, raw.head.file_kind) = ((*ino).into(), kind_number(*kind));
                }
                to.extend_from_slice(raw.as_bytes());
                to.extend_from_slice(name);
                to.resize(from + (lines * LINE) as usize, 0);
            }
        }
        seal(&mut to[from..]);
    }

    /// The entry at line `line` of a page, with its version and lines; `None` if the page has no
    /// more. `at` is the page's address.
    pub(crate) fn parse(
        at: u64,
        page: &[u8; BLOCK as usize],
        line: u64,
        layout: &Layout,
    ) -> Result<Option<(Self, u64, u64)>, Corrupt> {
        let (offset, at) = ((line * LINE) as usize, at + line * LINE);
        let wrong = |what, found, allowed| {
            Err(Corrupt { structure: "log entry", at, what, found, allowed })
        };
        let rest = page.get(offset..).unwrap_or(&[]);
        let Ok((head, _)) = RawHead::read_from_prefix(rest) else {
            return wrong("line", line, "in the page");
        };
        let lines = u64::from(head.lines);
        let bytes = rest.get(..(lines * LINE) as usize).unwrap_or(&[]);
        let Some((first, more)) = bytes.split_first_chunk::<{ LINE as usize }>() else {
            return wrong("lines", lines, "1 and more, within the page");
        };
        // In one piece, which for a line takes half the time of three.
        let mut first = *first;
        first[4..8].fill(0);
        if crc32c::crc32c_append(crc32c::crc32c(&first), more) != head.crc.get() {
            return wrong("checksum", head.crc.get().into(), "that of its bytes");
        }
        // The next ones are counted on from it.
        if head.version.get() > VERSION_MAX {
            return wrong("version", head.version.get(), "less than 2^62");
        }
        let kinds = [Kind::Write, Kind::Hole, Kind::Attr, Kind::Name];
        let entry = match kinds.into_iter().find(|kind| *kind as u8 == head.kind) {
            None if head.kind == Kind::Skip as u8 => return Ok(None),
            Some(Kind::Write) => write(at, bytes, layout)?,
            Some(Kind::Hole) => hole(at, bytes)?,
            Some(Kind::Attr) => attributes(at, bytes)?,
            Some(Kind::Name) => name(at, &head, bytes)?,
            _ => return wrong("kind", head.kind.into(), "1 to 5"),
        };
        Ok(Some((entry, head.version.get(), lines)))
    }
}

fn cut(at: u64) -> Corrupt {
    let (structure, what, allowed) = ("log entry", "length", "that of its kind");
    Corrupt { structure, at, what, found: 0, allowed }
}

fn write(at: u64, bytes: &[u8], layout: &Layout) -> Result<Entry, Corrupt> {
    let raw = RawWrite::read_from_bytes(bytes).map_err(|_| cut(at))?;
    let words = [raw.page.get(), raw.run.get()];
    let extent = Extent::parse(at, words, layout)?.ok_or_else(|| cut(at))?;
    let mtime = (raw.mtime.get(), raw.mtime_nanos.get());
    Ok(Entry::Write { extent, size: raw.size.get(), mtime })
}

fn hole(at: u64, bytes: &[u8]) -> Result<Entry, Corrupt> {
    let raw = RawWrite::read_from_bytes(bytes).map_err(|_| cut(at))?;
    let (page, pages) = (raw.page.get(), raw.run.get());
    if page.checked_add(pages).is_none_or(|end| end > PAGES_MAX) {
        let (structure, what, allowed) = ("log entry", "pages", "within 16 TiB");
        return Err(Corrupt { structure, at, what, found: pages, allowed });
    }
    Ok(Entry::Hole { page, pages })
}

fn attributes(at: u64, bytes: &[u8]) -> Result<Entry, Corrupt> {
    let raw = RawAttr::read_from_bytes(bytes).map_err(|_| cut(at))?;
    let mut inode = RawInode::new_zeroed();
    inode.as_mut_bytes()[..ATTR_SIZE].copy_from_slice(&raw.attributes);
    inode.check(at)?;
    Ok(Entry::Attr(Box::new(inode)))
}

fn name(at: u64, head: &RawHead, bytes: &[u8]) -> Result<Entry, Corrupt> {
    let (raw, rest) = RawName::read_from_prefix(bytes).map_err(|_| cut(at))?;
    let wrong = |what, found| {
        let allowed = "a name in as many lines as it needs, a kind from 0 to 6";
        Corrupt { structure: "log entry", at, what, found, allowed }
    };
    let len = usize::from(head.name_len);
    if len == 0 || name_lines(len) != u64::from(head.lines) {
        return Err(wrong("length of the name", len as u64));
    }
    let name = rest.get(..len).ok_or_else(|| cut(at))?.into();
    let to = match raw.ino.get() {
        0 => None,
        ino => {
            let kind = kind_at(head.file_kind.into());
            Some((ino, kind.ok_or_else(|| wrong("kind", head.file_kind.into()))?))
        }
    };
    Ok(Entry::Name { cookie: raw.cookie.get(), to, name })
}
