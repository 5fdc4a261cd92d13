//! Checksums of data for records that need no flush of it (`record_csum`).
//!
//! A record sums the data that would be missed: blocks that the file has gained, or up to which it
//! has grown, since its last fsync. Until that fsync's record is superseded by a commit or
//! by the next one that returns, recovery must find these sums again, whatever happens to the
//! blocks. So a write to one of them is checked first: more data behind what was summed, as
//! appends make it, does no harm; anything else waits for a commit, after which the record does not
//! count. Blocks that are freed are not used again before such a commit anyway.
//!
//! Blocks that are written again in place are not summed. A record holds without them.

use drive::Block;
use journal::{DataSum, Id};

use crate::error::Result;
use crate::file::write_back::Place;
use crate::inode::cached::{Cached, Inode};
use crate::inode::map::find;
use crate::mount::engine::Engine;
use crate::ondisk::{FileBlock, Ino};

/// Sums in a record, at most. A file that has gained more is flushed first.
const SUMS_MAX: usize = 256;

/// The sums of a file's data. They are changed in the file's turn.
#[derive(Default)]
pub(crate) struct Vouched {
    id: Option<Id>,
    /// Of data that no fsync has made durable, with the block of the file.
    open: Vec<(u64, DataSum)>,
    /// There is more than that.
    is_more: bool,
    /// Those in the last record that made the file durable.
    kept: Vec<DataSum>,
}

/// A block on its way to the drive, by its sum.
pub(crate) struct Written {
    index: u64,
    sum: DataSum,
    /// The file gains the block, or grows by it.
    is_new: bool,
}

impl Written {
    /// Block `place`, of `block_size` bytes, of a file of `size` bytes.
    pub(crate) fn new(place: &Place, block_size: u32, size: u64, is_new: bool) -> Self {
        let (index, at, contents) = place;
        let len = size.saturating_sub(index * u64::from(block_size)).min(block_size.into());
        Self { index: *index, sum: DataSum::of(*at, len as u32, contents.bytes()), is_new }
    }
}

impl Vouched {
    /// The transaction that mapped the last of it.
    pub(crate) fn id(&self) -> Option<Id> {
        self.id
    }

    fn note(&mut self, written: Vec<Written>, id: Option<Id>) {
        for Written { index, sum, is_new } in written {
            match self.open.iter().position(|(_, old)| old.block == sum.block) {
                Some(at) => self.open[at] = (index, sum),
                None if !is_new => continue,
                None if self.open.len() < SUMS_MAX => self.open.push((index, sum)),
                None => self.is_more = true,
            }
            self.id = id;
        }
    }

    /// Whether recovery would not find again what it must if `block` had these contents.
    fn is_spoiled_by(&self, block: u64, contents: &Block) -> bool {
        let kept = self.kept.iter().find(|sum| sum.block == block);
        kept.is_some_and(|sum| !sum.holds_for(contents.bytes()))
    }

    /// A record has made the file durable.
    fn recorded(&mut self) {
        self.kept = self.open.drain(..).map(|(_, sum)| sum).collect();
        self.is_more = false;
    }
}

impl Engine {
    /// The sums of a file's data for its record; `None` if that must be flushed first.
    pub(super) fn sums_of(&self, cached: &Cached) -> Option<Vec<DataSum>> {
        let vouched = &cached.vouched;
        if !self.record_csum || vouched.is_more {
            return None;
        }
        // A commit has flushed it.
        if !self.is_open(vouched.id) {
            return Some(Vec::new());
        }
        let (mut sums, block_size) = (Vec::with_capacity(vouched.open.len()), self.sb.block_size);
        for (index, sum) in &vouched.open {
            if self.is_at(&cached.inode, *index, sum.block)? {
                let end = index * u64::from(block_size) + u64::from(sum.len);
                if sum.len != block_size && end < cached.inode.raw.size() {
                    // The file has grown within the block since.
                    return None;
                }
                sums.push(*sum);
            }
        }
        Some(sums)
    }

    /// Whether block `index` of the file is still there; `None` if memory does not know.
    fn is_at(&self, inode: &Inode, index: u64, block: u64) -> Option<bool> {
        let index = FileBlock::try_from(index).ok()?;
        Some(find(self, inode, index).ok()?.at(index) == Some(block))
    }

    /// What is about to be written to a file in place must not spoil its last record. The caller
    /// has the file's turn and no locks.
    pub(crate) fn keep_vouched(&self, ino: Ino, places: &[Place]) -> Result<()> {
        if !self.record_csum {
            return Ok(());
        }
        let spoiled = {
            let shard = self.inodes.look(ino.into());
            let is_spoiled = |cached: &&Cached| {
                places.iter().any(|(_, at, page)| cached.vouched.is_spoiled_by(*at, page))
            };
            shard.inodes.get(&ino).filter(is_spoiled).and_then(|cached| cached.id)
        };
        if self.is_open(spoiled) {
            self.commit_inode(ino, spoiled)?;
        }
        if spoiled.is_some()
            && let Some(cached) = self.inodes.own(ino.into()).inodes.get_mut(&ino)
        {
            cached.vouched.kept.clear();
        }
        Ok(())
    }

    /// The drive has these blocks, and the file's map, too.
    pub(crate) fn note_written(&self, ino: Ino, written: Vec<Written>) {
        if let Some(cached) = self.inodes.own(ino.into()).inodes.get_mut(&ino)
            && !written.is_empty()
        {
            cached.vouched.note(written, cached.id);
        }
    }

    /// An fsync of the file returns.
    pub(super) fn note_fsynced(&self, cached: &mut Cached) {
        match self.is_open(cached.vouched.id) {
            true => cached.vouched.recorded(),
            false => cached.vouched = Vouched::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_spoil_nothing_and_what_differs_does() {
        let page = |text: &[u8]| Block::from_prefix(text);
        let mut vouched = Vouched::default();
        let write = |text: &[u8], is_new| {
            let size = 3 * 1024 + text.len() as u64;
            vec![Written::new(&(3, 77, page(text)), 1024, size, is_new)]
        };
        vouched.note(write(b"one", true), None);
        assert!(!vouched.is_spoiled_by(77, &page(b"two")), "no fsync has returned");
        vouched.recorded();
        assert!(!vouched.is_spoiled_by(77, &page(b"one, two")));
        assert!(vouched.is_spoiled_by(77, &page(b"two")) && !vouched.is_spoiled_by(78, &page(b"")));
        // An overwrite has no sum, and what was to be summed gets its new one.
        vouched.note(write(b"two", false), None);
        assert!(vouched.open.is_empty());
        vouched.note(write(b"one", true), None);
        vouched.note(write(b"six", false), None);
        assert!(vouched.open.len() == 1 && vouched.open[0].1.holds_for(page(b"six").bytes()));
    }
}
