//! The first step: which transactions of a log are committed, and what they hold (`do_one_pass`
//! with `PASS_SCAN`).
//!
//! The log is read from its tail as long as blocks carry the magic and the number of the
//! transaction that is due. A wrong checksum there has two reasons. If the next commit block is
//! older than the one before, these are blocks of an earlier round, and the log ended here. If it
//! is newer, a transaction that was committed cannot be read: that is [`Damage`].

use std::ops::Range;

use crate::error::{Error, Result};
use crate::ondisk::areas::{Span, TABLES, Table};
use crate::ondisk::commit::Link;
use crate::ondisk::descriptor::Format;
use crate::ondisk::header::{BlockType, Tid, parse};
use crate::ondisk::superblock::Incompat;
use crate::ondisk::{commit, revoke};
use crate::transaction::Stamp;
use crate::volume::Log;

/// An image of a block in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// The block whose image it is.
    pub home: u64,
    /// The block of the log that has it.
    pub at: u32,
    /// Its first four bytes are the journal's magic, and zeroes in the log.
    pub escaped: bool,
    /// Its checksum is right.
    pub sound: bool,
}

/// A transaction that is complete in the log.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// Its number.
    pub tid: Tid,
    /// Where it begins in the log.
    pub start: u32,
    /// Blocks of the log from there, with its commit block.
    pub blocks: u32,
    /// When it was committed, in seconds and nanoseconds since 1970.
    pub time: (u64, u32),
    /// Its images, in the order of the log.
    pub images: Vec<Image>,
    /// Blocks whose images in it and in older transactions do not count.
    pub revoked: Vec<u64>,
    /// Its place among those of other areas, and whom it names. Without areas, its place in the
    /// log.
    pub link: Link,
}

/// Why a committed transaction cannot be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The checksum of its commit block, or of a block of tags or revokes, is wrong. The log ends
    /// before it.
    Log {
        /// The transaction.
        tid: Tid,
        /// The file system's block that holds the commit block.
        block: u64,
    },
    /// The checksum of an image is wrong.
    Image {
        /// The transaction.
        tid: Tid,
        /// The block whose image it is.
        home: u64,
    },
}

impl Damage {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Log { tid, block } => Error::checksum(
                "log block",
                block,
                format_args!("wrong checksum in transaction {tid}"),
                "the right one",
            ),
            Self::Image { tid, home } => Error::checksum(
                "image of a block",
                home,
                format_args!("wrong checksum in transaction {tid}"),
                "the right one",
            ),
        }
    }
}

/// What a log holds, or one area of it.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// The complete transactions, oldest first.
    pub transactions: Vec<Transaction>,
    /// Number of the first transaction that is not complete.
    pub end: Tid,
    /// The log was not closed in good order.
    pub was_open: bool,
    /// Why the log ends where it does, if a transaction that was committed cannot be read.
    pub damage: Option<Damage>,
}

/// What a block of the log means for the scan.
enum Next {
    Continue,
    Stop,
}

struct Scan<'a, 'b> {
    log: &'a mut Log<'b>,
    format: Format,
    found: Scanned,
    open: Transaction,
    /// Where the log circulates.
    ring: Range<u32>,
    has_areas: bool,
    at: u32,
    /// Blocks that have not been read. What is left when the log has been gone around once is not
    /// part of it.
    left: u32,
    /// A block of tags or revokes had a wrong checksum; its commit block's time says why.
    doubtful: bool,
}

impl Log<'_> {
    /// Reads each area of the log, or the only one, from its tail to its end. Finds nothing in a
    /// log closed in good order.
    pub fn scan(&mut self) -> Result<Vec<Scanned>> {
        let (sequence, ring) = (self.superblock().sequence(), self.superblock().ring());
        let Some(start) = self.superblock().start() else {
            let nothing = Scanned { end: sequence, ..Scanned::default() };
            return Ok(vec![nothing]);
        };
        if !self.superblock().incompat().contains(Incompat::AREAS) {
            return Ok(vec![self.scan_span(Span { ring, start, sequence }, false)?]);
        }
        let spans = self.areas()?;
        spans.into_iter().map(|span| self.scan_span(span, true)).collect()
    }

    /// The areas of a log in use, from the newer one of its tables.
    pub fn areas(&mut self) -> Result<Vec<Span>> {
        let (sequence, ring) = (self.superblock().sequence(), self.superblock().ring());
        let mut newest: Option<Table> = None;
        for at in ring.start..ring.end.min(ring.start + TABLES) {
            let (block, range) = self.read(at)?;
            let home = self.home(at)?;
            if let Some(table) = Table::parse(&block[range], home, &ring, sequence)?
                && newest.as_ref().is_none_or(|newest| newest.version < table.version)
            {
                newest = Some(table);
            }
        }
        let Some(table) = newest else {
            let at = self.home(ring.start)?;
            return Err(Error::corrupt("table of areas", at, "two bad ones", "a sound one"));
        };
        Ok(table.areas)
    }

    fn scan_span(&mut self, span: Span, has_areas: bool) -> Result<Scanned> {
        let Span { ring, start, sequence } = span;
        let format = Format::new(self.superblock().incompat(), self.superblock().seed());
        let found = Scanned { end: sequence, was_open: true, ..Scanned::default() };
        let mut scan = Scan {
            format,
            found,
            open: Transaction { tid: sequence, start, ..Transaction::default() },
            at: start,
            left: ring.end - ring.start,
            ring,
            has_areas,
            doubtful: false,
            log: self,
        };
        while scan.left > 0 {
            if let Next::Stop = scan.block()? {
                break;
            }
        }
        Ok(scan.found)
    }
}

impl Scan<'_, '_> {
    fn advance(&mut self) {
        self.at = if self.at + 1 >= self.ring.end { self.ring.start } else { self.at + 1 };
        self.left = self.left.saturating_sub(1);
        self.open.blocks += 1;
    }

    fn block(&mut self) -> Result<Next> {
        let at = self.at;
        let (block, range) = self.log.read(at)?;
        let bytes = &block[range];
        let Some((kind, _)) = parse(bytes).filter(|(_, tid)| *tid == self.open.tid) else {
            return Ok(Next::Stop);
        };
        self.advance();
        match kind {
            BlockType::Descriptor => self.descriptor(bytes)?,
            BlockType::Commit => return self.commit(bytes, at),
            BlockType::Revoke => self.revoke(bytes, at)?,
            BlockType::Other(_) => return Ok(Next::Stop),
        }
        Ok(Next::Continue)
    }

    fn descriptor(&mut self, bytes: &[u8]) -> Result<()> {
        let sound = self.format.is_sound(bytes);
        self.doubtful |= !sound;
        for tag in self.format.tags(bytes) {
            if self.left == 0 {
                break;
            }
            let at = self.at;
            self.advance();
            if sound {
                let (image, range) = self.log.read(at)?;
                let sound = self.format.fits(&tag, self.open.tid, &image[range]);
                let (home, escaped) = (tag.home, tag.escaped);
                self.open.images.push(Image { home, at, escaped, sound });
            }
        }
        Ok(())
    }

    fn revoke(&mut self, bytes: &[u8], at: u32) -> Result<()> {
        self.doubtful |= !self.format.is_sound(bytes);
        if self.doubtful {
            return Ok(());
        }
        let incompat = self.log.superblock().incompat();
        match revoke::parse(bytes, incompat) {
            Ok(homes) => self.open.revoked.extend(homes),
            Err(count) => {
                let (block, max) = (self.log.home(at)?, bytes.len());
                return Err(Error::corrupt("r_count", block, count, format_args!("up to {max}")));
            }
        }
        Ok(())
    }

    fn commit(&mut self, bytes: &[u8], at: u32) -> Result<Next> {
        let superblock = self.log.superblock();
        let time = commit::time(bytes);
        let is_sound =
            !superblock.incompat().has_sums() || commit::is_sound(bytes, superblock.seed());
        if self.doubtful || !is_sound {
            let last = self.found.transactions.last().map_or(0, |last| last.time.0);
            if time.0 >= last {
                let (tid, block) = (self.open.tid, self.log.home(at)?);
                self.found.damage = Some(Damage::Log { tid, block });
            }
            return Ok(Next::Stop);
        }
        let link = self.link(bytes, at)?;
        let next =
            Transaction { tid: self.open.tid.next(), start: self.at, ..Transaction::default() };
        let done = std::mem::replace(&mut self.open, next);
        self.found.end = self.open.tid;
        self.found.transactions.push(Transaction { time, link, ..done });
        Ok(Next::Continue)
    }

    fn link(&self, bytes: &[u8], at: u32) -> Result<Link> {
        if !self.has_areas {
            let stamp = Stamp(self.found.transactions.len() as u64);
            return Ok(Link { stamp, marks: Vec::new() });
        }
        commit::link(bytes).or_else(|count| {
            let (block, max) = (self.log.home(at)?, commit::marks_max(bytes.len()));
            Err(Error::corrupt("marks", block, count, format_args!("up to {max}")))
        })
    }
}
