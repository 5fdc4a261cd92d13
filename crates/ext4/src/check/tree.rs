//! Hash trees: every block in it once, every name where its hash belongs.

use rustc_hash::FxHashSet;

use super::Checker;
use crate::error::Result;
use crate::ondisk::FileBlock;
use crate::ondisk::dirent::Dirents;
use crate::ondisk::hash::Hasher;
use crate::ondisk::htree::{self, Node, Place};
use crate::ondisk::inode::Flags;
use crate::reader::inode::Inode;

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
        let (root, at) = self.reader.tree_block(dir, 0)?;
        let info = htree::info(&root, self.reader.deepest_tree(), at)?;
        let hasher = self.reader.hasher(info.hash_version);
        if hasher.hash(b"").is_none() {
            let found = info.hash_version;
            return Err(dir.corrupt("dx_root_info.hash_version", found, "0, 1 or 2"));
        }
        let mut walk = Walk { dir, hasher, seen: FxHashSet::from_iter([0]) };
        let node = Node::parse(&root, Place::Root, self.reader.has_checksums(), at)?;
        let all = Span { low: 0, high: None };
        self.node(&mut walk, &node, info.indirect_levels, all)?;
        let blocks = self.reader.dir_blocks(dir) as usize;
        if walk.seen.len() != blocks {
            let allowed = format!("all {blocks} blocks of the directory");
            return Err(dir.corrupt("dx_root", format!("{} blocks", walk.seen.len()), allowed));
        }
        Ok(())
    }

    fn node(&self, walk: &mut Walk<'_>, node: &Node<'_>, levels: u8, span: Span) -> Result<()> {
        for slot in 0..node.len() {
            let Some(child) = node.entry(slot) else { break };
            if !walk.seen.insert(child.block) {
                return Err(walk.dir.corrupt("dx_entry.block", child.block, "each block once"));
            }
            let low = if slot == 0 { span.low } else { child.hash };
            let high = node.entry(slot + 1).map(|next| next.hash).or(span.high);
            let span = Span { low, high };
            let (below, at) = self.reader.tree_block(walk.dir, child.block)?;
            if levels > 0 {
                let node = Node::parse(&below, Place::Node, self.reader.has_checksums(), at)?;
                self.node(walk, &node, levels - 1, span)?;
                continue;
            }
            for dirent in Dirents::new(&below, at) {
                let dirent = dirent?;
                let hash = walk.hasher.hash(dirent.name).filter(|_| dirent.ino != 0);
                if let Some(hash) = hash.filter(|hash| !span.has(hash.major)) {
                    let name = String::from_utf8_lossy(dirent.name);
                    let found = format!("hash {:#x} of '{name}'", hash.major);
                    let allowed = format!("{:#x} up to {:#x?}", span.low, span.high);
                    return Err(walk.dir.corrupt("dx_entry.hash", found, allowed));
                }
            }
        }
        Ok(())
    }
}
