//! Hash trees: every block in it once, every name where its hash belongs.

use rustc_hash::FxHashSet;

use super::Checker;
use crate::dir::entries::{block_count, dir_block};
use crate::dir::htree::{Level, root};
use crate::error::Result;
use crate::inode::cached::Inode;
use crate::ondisk::FileBlock;
use crate::ondisk::dirent::Dirents;
use crate::ondisk::hash::Hasher;
use crate::ondisk::inode::Flags;

/// A tree while it is walked.
struct Walk<'a> {
    dir: &'a Inode,
    hasher: Hasher,
    seen: FxHashSet<FileBlock>,
}

/// The hashes that a block may have: from `low`, up to `high` or, if the block that follows
/// continues this one's last hash, that one too.
#[derive(Clone, Copy)]
struct Span {
    low: u32,
    /// `None` at the end of the tree.
    high: Option<u32>,
}

impl Span {
    fn has(self, hash: u32) -> bool {
        hash >= self.low & !1
            && self.high.is_none_or(|high| hash < high & !1 || (hash == high & !1 && high & 1 == 1))
    }
}

impl Checker {
    /// Checks the hash tree of a directory, if it has one.
    pub(super) fn tree(&self, dir: &Inode) -> Result<()> {
        let flags = dir.flags();
        // These hash other forms of their names.
        if !flags.contains(Flags::INDEX) || flags.intersects(Flags::CASEFOLD | Flags::ENCRYPT) {
            return Ok(());
        }
        let (root, hasher, levels) = root(&self.reader, dir)?;
        let mut walk = Walk { dir, hasher, seen: FxHashSet::from_iter([0]) };
        self.node(&mut walk, &root, levels, Span { low: 0, high: None })?;
        let blocks = block_count(&self.reader.sb, dir) as usize;
        if walk.seen.len() != blocks {
            let allowed = format!("all {blocks} blocks of the directory");
            return Err(dir.corrupt("dx_root", format!("{} blocks", walk.seen.len()), allowed));
        }
        Ok(())
    }

    fn node(&self, walk: &mut Walk<'_>, level: &Level, levels: u8, span: Span) -> Result<()> {
        let sb = &self.reader.sb;
        let node = level.node(sb, walk.dir)?;
        for slot in 0..node.len() {
            let Some(child) = node.entry(slot) else { break };
            if !walk.seen.insert(child.block) {
                return Err(walk.dir.corrupt("dx_entry.block", child.block, "each block once"));
            }
            let low = if slot == 0 { span.low } else { child.hash };
            let high = node.entry(slot + 1).map(|next| next.hash).or(span.high);
            let span = Span { low, high };
            if levels > 0 {
                let below = Level::inner(&self.reader, walk.dir, child.block)?;
                self.node(walk, &below, levels - 1, span)?;
                continue;
            }
            let (at, block) = dir_block(&self.reader, walk.dir, child.block)?;
            for dirent in Dirents::new(sb.bytes(&block), at) {
                let dirent = dirent?;
                let hash = walk.hasher.hash(dirent.name).major;
                if dirent.ino != 0 && !span.has(hash) {
                    let name = String::from_utf8_lossy(dirent.name);
                    let found = format!("hash {hash:#x} of '{name}'");
                    let allowed = format!("{:#x} up to {:#x?}", span.low, span.high);
                    return Err(walk.dir.corrupt("dx_entry.hash", found, allowed));
                }
            }
        }
        Ok(())
    }
}
