//! The log of one inode (NOVA, FAST 2016, section 4.3): entries are staged while a call changes the
//! inode in memory, put behind the tail as part of the call's change, and made to count by the
//! tail's word, which the change patches.
//!
//! Space for them is reserved before anything changes, so that staging cannot fail.

mod clean;
pub(crate) mod cores;
mod replay;

use drive::pm::LINE;
use vfs::Errno;

use crate::alloc::Space;
use crate::commit::Change;
use crate::inode::node::Inode;
use crate::mount::Pmfs;
use crate::ondisk::BLOCK;
use crate::ondisk::log::{Entry, LINES, NEXT_AT, TAIL_AT, Tail, skip};

pub(crate) use clean::written;
pub(crate) use replay::{replay, replay_all};

/// Lines that a page has for entries, less what the longest entry may leave at its end.
const PAGE_ROOM: u64 = LINES - 1 - 4;
/// More lines than a call that makes, moves or removes names puts into one log.
pub(crate) const NAMES_ROOM: u64 = 20;

/// The log of an inode, in memory.
pub(crate) struct Log {
    /// Where the word is that points to the first page.
    slot_at: u64,
    /// Blocks of its pages, in order.
    pages: Vec<u64>,
    /// Lines of the last page that are used.
    lines: u64,
    /// Blocks for the next pages.
    spare: Vec<u64>,
    /// Entries of the call under way.
    staged: Vec<u8>,
    /// The version of the last entry.
    pub(crate) version: u64,
    /// The attributes have changed in the call under way.
    pub(crate) is_touched: bool,
    /// Pages that it had after it was cleaned.
    cleaned: usize,
}

impl Log {
    /// An empty log, to which the word at `slot_at` will point.
    pub(crate) const fn new(slot_at: u64) -> Self {
        Self {
            slot_at,
            pages: Vec::new(),
            lines: LINES,
            spare: Vec::new(),
            staged: Vec::new(),
            version: 0,
            is_touched: false,
            cleaned: 0,
        }
    }

    /// Every block that it has, on the medium or for its next pages.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().chain(&self.spare).copied()
    }

    pub(crate) fn pages(&self) -> &[u64] {
        &self.pages
    }

    /// Makes sure that `lines` more lines have a place. `urgent` if they are needed to free
    /// something.
    pub(crate) fn reserve(&mut self, space: &Space, lines: u64, urgent: bool) -> Result<(), Errno> {
        if LINES - self.lines >= lines {
            return Ok(());
        }
        let want = lines.div_ceil(PAGE_ROOM) as usize;
        while self.spare.len() < want {
            let missing = (want - self.spare.len()) as u64;
            let taken = if urgent { space.take_urgent(missing) } else { space.take(missing, None) };
            if taken.runs().is_empty() {
                return Err(Errno::NOSPC);
            }
            self.spare.extend(taken.keep().into_iter().flat_map(|(start, len)| start..start + len));
        }
        Ok(())
    }

    /// Adds an entry to the call under way. There is room for it.
    pub(crate) fn stage(&mut self, entry: &Entry) {
        self.version += 1;
        entry.print(self.version, &mut self.staged);
    }

    /// Puts what is staged behind the tail, as part of `change`.
    pub(crate) fn flush(&mut self, change: &mut Change<'_>) {
        let staged = std::mem::take(&mut self.staged);
        let had = self.pages.len();
        let mut rest = &staged[..];
        while !rest.is_empty() {
            let fits = fitting(rest, LINES - self.lines);
            if let (Some(&page), 1..) = (self.pages.last(), fits) {
                let (now, later) = rest.split_at((fits * LINE) as usize);
                change.store(page * BLOCK + self.lines * LINE, now);
                self.lines += fits;
                rest = later;
            } else if !self.grow(change) {
                debug_assert!(false, "a log without the room that was reserved");
                return;
            }
        }
        let (Some(&first), Some(&last)) = (self.pages.first(), self.pages.last()) else { return };
        let tail = Tail { block: last, lines: self.lines }.word().to_le_bytes();
        if had == 0 {
            change.store(first * BLOCK + TAIL_AT, &tail);
            change.patch(self.slot_at, &first.to_le_bytes());
        } else if !staged.is_empty() {
            change.patch(first * BLOCK + TAIL_AT, &tail);
        }
    }

    /// Adds an empty page. The link to it means nothing before the tail is there.
    fn grow(&mut self, change: &mut Change<'_>) -> bool {
        let Some(block) = self.spare.pop() else { return false };
        if let Some(&last) = self.pages.last() {
            if self.lines < LINES {
                change.store(last * BLOCK + self.lines * LINE, &skip());
            }
            change.store(last * BLOCK + NEXT_AT, &block.to_le_bytes());
        }
        change.store(block * BLOCK, &[0; LINE as usize]);
        self.pages.push(block);
        self.lines = 1;
        true
    }
}

/// Lines of the first entries of `staged` that fit into `room` lines.
fn fitting(staged: &[u8], room: u64) -> u64 {
    let mut fits = 0;
    while let Some(&lines) = staged.get((fits * LINE) as usize + 1)
        && fits + u64::from(lines) <= room
    {
        fits += u64::from(lines);
    }
    fits
}

impl Pmfs {
    /// Makes sure that the logs have room for a call that changes names or attributes. Nothing has
    /// changed yet.
    pub(crate) fn reserve<'i>(
        &self,
        inodes: impl IntoIterator<Item = &'i mut Inode>,
        urgent: bool,
    ) -> Result<(), Errno> {
        for log in inodes.into_iter().filter_map(|inode| inode.log.as_mut()) {
            log.reserve(&self.space, NAMES_ROOM, urgent)?;
        }
        Ok(())
    }
}

impl Inode {
    /// Makes what is staged part of `change`. An inode that was freed needs no log any more: the
    /// first word of its place in the table says so.
    pub(crate) fn flush(&mut self, change: &mut Change<'_>) {
        let Some(log) = &mut self.log else { return };
        let is_touched = std::mem::take(&mut log.is_touched);
        if self.raw.mode.get() == 0 {
            log.staged.clear();
            if is_touched {
                change.patch(self.at, &[0; 8]);
            }
            return;
        }
        if is_touched {
            log.stage(&Entry::Attr(Box::new(self.raw)));
        }
        log.flush(change);
    }
}
