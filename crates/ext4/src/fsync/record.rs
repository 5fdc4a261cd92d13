//! What a record holds of a file: its inode, the nodes of its extent tree that are not committed,
//! and the names of itself and of its ancestors that are new.

use drive::Block;
use journal::ondisk::fast::Change;
use journal::{Entry, Id, Source, Tid};
use vfs::FileKind;

use crate::error::{Error, Result};
use crate::fsync::fast::Unsaid;
use crate::inode::cached::Cached;
use crate::mount::engine::Engine;
use crate::ondisk::extent::Node;
use crate::ondisk::{FsBlock, Ino};

/// Nodes in a record, at most: recovery applies a file's record in one transaction.
const NODES_MAX: usize = 32;

impl Source for Engine {
    type Error = Error;

    fn write_data(&self, ino: vfs::Ino) -> Result<()> {
        self.flush_in_turn(ino as Ino)
    }

    fn record(&self, ino: vfs::Ino, entries: &mut Vec<Entry>) -> bool {
        self.record_file(ino as Ino, entries).is_some()
    }

    fn changes(&self, tid: Tid) -> Option<Vec<Change>> {
        self.say_changes(tid)
    }

    fn not_recorded(&self) {
        self.unsaid.iter().for_each(Unsaid::give_up);
    }
}

impl Engine {
    /// Adds the file and its new ancestors. Nothing here waits: what is not committed is in memory.
    fn record_file(&self, ino: Ino, entries: &mut Vec<Entry>) -> Option<()> {
        let at = entries.len();
        let mut entry = {
            let shard = self.inodes.look(ino.into());
            let cached = shard.inodes.get(&ino)?;
            // Contents in the journal need its commit (`EXT4_FC_REASON_INODE_JOURNAL_DATA`).
            let needs_commit = self.journals_data(&cached.inode);
            let is_regular = cached.inode.kind() == FileKind::Regular;
            if needs_commit || !is_regular || !self.is_open(cached.id) {
                return None;
            }
            let mut entry = Entry { of: cached.id?, ..self.entry(ino, cached)? };
            self.open_nodes(&cached.inode.raw.block, None, 0, &mut entry.images)?;
            let sums = self.sums_of(cached);
            (entry.needs_flush, entry.sums) = (sums.is_none(), sums.unwrap_or_default());
            entry
        };
        // A file in the middle of a truncation is one.
        if self.orphans.lock().contains(ino) {
            return None;
        }
        while entry.is_new {
            let dir = entry.parent;
            let is_known = entries.iter().any(|known| known.ino == dir && known.is_new);
            entries.insert(at, entry);
            if is_known {
                return self.paths_are_durable().then_some(());
            }
            entry = self.parent(dir)?;
        }
        if entries.len() == at {
            entries.push(entry);
        }
        self.paths_are_durable().then_some(())
    }

    fn parent(&self, dir: Ino) -> Option<Entry> {
        let shard = self.inodes.look(dir.into());
        let cached = shard.inodes.get(&dir)?;
        if self.is_open(cached.recent.lost_name) {
            return None;
        }
        self.entry(dir, cached)
    }

    /// What is said of an inode, as of the transaction that made it.
    fn entry(&self, ino: Ino, cached: &Cached) -> Option<Entry> {
        let Cached { inode, recent, .. } = cached;
        let attributes = inode.raw.file_acl();
        let is_mixed =
            self.is_open(recent.mixed) || attributes != 0 && !self.journal.is_committed(attributes);
        if is_mixed || inode.links() == 0 {
            return None;
        }
        let born = self.open_birth(recent);
        let mut bytes = vec![0; self.inode_size()];
        inode.emit(&mut bytes, Some(0));
        Some(Entry {
            ino,
            of: born.map_or(Id::default(), |born| born.id),
            is_new: born.is_some(),
            parent: born.map_or(0, |born| born.parent),
            name: born.map_or(Box::default(), |born| (*born.name).into()),
            inode: bytes.into(),
            ..Entry::default()
        })
    }

    /// The nodes at and below the one in `bytes` that are not committed.
    fn open_nodes(
        &self,
        bytes: &[u8],
        depth: Option<u16>,
        at: FsBlock,
        images: &mut Vec<(FsBlock, Block)>,
    ) -> Option<()> {
        let node = Node::parse(bytes, depth, at).ok()?;
        if node.depth == 0 {
            return Some(());
        }
        for index in node.indexes() {
            let is_committed = self.journal.is_committed(index.child);
            match self.journal.peek(index.child) {
                Some(block) => {
                    self.open_nodes(&block[..], Some(node.depth - 1), index.child, images)?;
                    if !is_committed {
                        images.push((index.child, block));
                    }
                }
                // At home, as the drive has it; so are leaves.
                None if is_committed && node.depth == 1 => {}
                None => return None,
            }
            if images.len() > NODES_MAX {
                return None;
            }
        }
        Some(())
    }
}
