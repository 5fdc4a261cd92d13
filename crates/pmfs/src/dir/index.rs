//! The names of a directory, in memory, and the runs of lines that hold them on the medium.
//!
//! Without a log: a name is added in two parts: its bytes are stored into a free run, where they
//! mean nothing, and the run's first two words are patched. To remove it, one patch makes its run
//! part of the free runs around it. Changes of the index are made together with the change of the
//! medium, while the directory is locked.
//!
//! With a log names are entries of it, and their positions are only numbers, each used once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drive::pm::{LINE, Pm};
use rustc_hash::FxHashMap;
use vfs::{FileKind, Ino};

use crate::commit::Change;
use crate::file::map::Map;
use crate::ondisk::entry::{Head, LINES, NAME_AT, Run, lines_of};
use crate::ondisk::log::name_lines;
use crate::ondisk::{BLOCK, Corrupt};

/// A line of a directory: 64 to a page.
type Pos = u64;

/// What a directory holds.
#[derive(Default)]
pub(crate) struct Index {
    names: FxHashMap<Arc<[u8]>, Pos>,
    entries: BTreeMap<Pos, (Ino, FileKind, Arc<[u8]>)>,
    /// Lines of each free run.
    free: BTreeMap<Pos, u64>,
    /// The same by length.
    by_lines: BTreeSet<(u64, Pos)>,
    /// With a log: a position that no name has or had.
    next: Pos,
}

impl Index {
    /// Reads the pages of the directory whose inode is at `inode_at`.
    pub(crate) fn load(pm: &dyn Pm, inode_at: u64, map: &Map, size: u64) -> Result<Self, Corrupt> {
        let mut index = Self::default();
        for extent in map.within(0, size.div_ceil(BLOCK)) {
            for (page, block) in (extent.page..extent.end()).zip(extent.block..) {
                index.load_page(pm, page, block)?;
            }
        }
        if index.names.len() < index.entries.len() {
            let found = (index.entries.len() - index.names.len()) as u64;
            let (structure, what, allowed) = ("directory", "equal names", "0");
            return Err(Corrupt { structure, at: inode_at, what, found, allowed });
        }
        Ok(index)
    }

    fn load_page(&mut self, pm: &dyn Pm, page: u64, block: u64) -> Result<(), Corrupt> {
        let mut line = 0;
        while line < LINES {
            let (at, pos) = (block * BLOCK + line * LINE, page * LINES + line);
            let run = Run::parse(at, line, [pm.load(at), pm.load(at + 8)])?;
            match run.entry {
                None => self.put_free(pos, run.lines),
                Some(Head { ino, kind, name_len }) => {
                    let mut name = vec![0; name_len as usize];
                    pm.read(at + NAME_AT, &mut name);
                    self.insert_at(pos, name.into(), (ino, kind));
                }
            }
            line += run.lines;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<(Ino, FileKind)> {
        let (ino, kind, _) = self.entries.get(self.names.get(name)?)?;
        Some((*ino, *kind))
    }

    fn insert_at(&mut self, pos: Pos, name: Arc<[u8]>, (ino, kind): (Ino, FileKind)) {
        self.names.insert(name.clone(), pos);
        self.entries.insert(pos, (ino, kind, name));
    }

    /// Adds a name, or lets it stand for something else. Returns the cookie for its log entry.
    pub(crate) fn insert_logged(&mut self, name: &[u8], to: (Ino, FileKind)) -> u64 {
        let last = self.entries.last_key_value().map_or(0, |(pos, _)| pos + 1);
        self.next = self.next.max(last);
        let pos = self.names.get(name).copied().unwrap_or(self.next);
        self.next = self.next.max(pos + 1);
        self.insert_at(pos, name.into(), to);
        pos
    }

    /// Removes a name. Returns its cookie.
    pub(crate) fn remove_logged(&mut self, name: &[u8]) -> Option<u64> {
        let pos = self.names.remove(name)?;
        self.entries.remove(&pos);
        self.next = self.next.max(pos + 1);
        Some(pos)
    }

    /// Does what a log entry says.
    pub(crate) fn replay(&mut self, cookie: u64, to: Option<(Ino, FileKind)>, name: Box<[u8]>) {
        // A position is listed with those of the dots before it.
        let pos = cookie.min(u64::MAX >> 2);
        self.next = self.next.max(pos + 1);
        match to {
            Some(to) => self.insert_at(pos, name.into(), to),
            None => drop(self.remove_logged(&name)),
        }
    }

    /// The entries that a log of what is would have.
    pub(crate) fn log_entries(&self) -> impl Iterator<Item = (u64, Ino, FileKind, &[u8])> {
        self.entries.iter().map(|(pos, (ino, kind, name))| (*pos, *ino, *kind, &name[..]))
    }

    /// How many lines these take.
    pub(crate) fn log_lines(&self) -> u64 {
        self.entries.values().map(|(_, _, name)| name_lines(name.len())).sum()
    }

    /// Entries behind cookie `from`, with their own cookies.
    pub(crate) fn list(&self, from: u64) -> impl Iterator<Item = (u64, Ino, FileKind, &[u8])> {
        // Cookies 1 and 2 are those of `.` and `..`.
        let first = from.saturating_sub(COOKIE_BASE - 1);
        let entries = self.entries.range(first..);
        entries.map(|(pos, (ino, kind, name))| (pos + COOKIE_BASE, *ino, *kind, &name[..]))
    }

    /// All names with what they stand for, in the order of the medium.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&[u8], Ino, FileKind)> {
        self.entries.values().map(|(ino, kind, name)| (&name[..], *ino, *kind))
    }

    /// Whether there is a free run for such a name.
    pub(crate) fn has_room(&self, name_len: usize) -> bool {
        self.fitting(lines_of(name_len as u64)).is_some()
    }

    fn fitting(&self, lines: u64) -> Option<(u64, Pos)> {
        self.by_lines.range((lines, 0)..).next().copied()
    }

    /// A new page, all of it one free run.
    pub(crate) fn add_page(&mut self, change: &mut Change<'_>, page: u64, block: u64) {
        change.store(block * BLOCK, &Run::free(LINES).bytes());
        self.put_free(page * LINES, LINES);
    }

    /// Adds a name, for which there must be room.
    pub(crate) fn put(
        &mut self,
        change: &mut Change<'_>,
        map: &Map,
        name: &[u8],
        (ino, kind): (Ino, FileKind),
    ) {
        let need = lines_of(name.len() as u64);
        let Some((lines, pos)) = self.fitting(need) else { return };
        let Some(at) = address(map, pos) else { return };
        self.take_free(pos);
        // The name's last word is stored whole.
        let mut bytes = name.to_vec();
        bytes.resize(name.len().next_multiple_of(8), 0);
        change.store(at + NAME_AT, &bytes);
        if lines > need {
            change.store(at + need * LINE, &Run::free(lines - need).bytes());
            self.put_free(pos + need, lines - need);
        }
        let entry = Some(Head { ino, kind, name_len: name.len() as u64 });
        change.patch(at, &Run { lines: need, entry }.bytes());
        self.insert_at(pos, name.into(), (ino, kind));
    }

    /// Lets a name that is there stand for another inode.
    pub(crate) fn set(
        &mut self,
        change: &mut Change<'_>,
        map: &Map,
        name: &[u8],
        (ino, kind): (Ino, FileKind),
    ) {
        let Some(&pos) = self.names.get(name) else { return };
        let Some(at) = address(map, pos) else { return };
        let name_len = name.len() as u64;
        let entry = Some(Head { ino, kind, name_len });
        change.patch(at, &Run { lines: lines_of(name_len), entry }.bytes());
        self.insert_at(pos, name.into(), (ino, kind));
    }

    /// Removes a name. Its run and the free ones on both sides become one.
    pub(crate) fn take(&mut self, change: &mut Change<'_>, map: &Map, name: &[u8]) {
        let Some(pos) = self.names.remove(name) else { return };
        self.entries.remove(&pos);
        let (mut first, mut lines) = (pos, lines_of(name.len() as u64));
        if let Some(behind) = self.free.get(&(pos + lines)).copied()
            && (pos + lines) / LINES == pos / LINES
        {
            self.take_free(pos + lines);
            lines += behind;
        }
        if let Some((&before, &before_lines)) = self.free.range(..pos).next_back()
            && before + before_lines == pos
            && before / LINES == pos / LINES
        {
            self.take_free(before);
            (first, lines) = (before, before_lines + lines);
        }
        self.put_free(first, lines);
        if let Some(at) = address(map, first) {
            change.patch(at, &Run::free(lines).bytes());
        }
    }

    fn put_free(&mut self, pos: Pos, lines: u64) {
        self.free.insert(pos, lines);
        self.by_lines.insert((lines, pos));
    }

    fn take_free(&mut self, pos: Pos) {
        if let Some(lines) = self.free.remove(&pos) {
            self.by_lines.remove(&(lines, pos));
        }
    }
}

/// Cookie of the first entry.
const COOKIE_BASE: u64 = 3;

fn address(map: &Map, pos: Pos) -> Option<u64> {
    Some(map.block(pos / LINES)? * BLOCK + pos % LINES * LINE)
}
