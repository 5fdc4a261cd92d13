//! Quota files: what they say that owners, groups and projects use is what the walk has counted.

use std::collections::BTreeMap;

use super::{Checker, Place};
use crate::error::{Error, Result};
use crate::ondisk::checkpoint::CpFlags;
use crate::ondisk::inode::RawInode;
use crate::ondisk::quota::{MAX_SIZE, QuotaFile, QuotaType, Usage};
use crate::ondisk::{BLOCK_SIZE, BlockAddr, Nid};

/// Inodes and bytes by id.
type Used = BTreeMap<u32, (u64, u64)>;

/// All ids in a file or in use, and what of the latter.
fn all_ids(file: &QuotaFile, used: &Used) -> Used {
    let listed = file.all().map(|(id, _)| (id, (0, 0)));
    listed.chain(used.iter().map(|(id, counted)| (*id, *counted))).collect()
}

/// What the walk has counted, and where the quota files are.
#[derive(Default)]
pub(super) struct Counted {
    /// What is in use, for each type.
    used: [Used; 3],
    /// The blocks of each quota file, by index.
    pub(super) files: BTreeMap<Nid, Vec<(u64, BlockAddr)>>,
}

impl Counted {
    /// Counts an inode with so many blocks, its own among them.
    pub(super) fn count(&mut self, inode: &RawInode, blocks: u64) {
        let ids = [inode.uid.get(), inode.gid.get(), inode.projid().unwrap_or(0)];
        for (used, id) in self.used.iter_mut().zip(ids) {
            let (inodes, bytes) = used.entry(id).or_default();
            *inodes += 1;
            *bytes += blocks.saturating_sub(1) * BLOCK_SIZE as u64;
        }
    }
}

impl Checker {
    /// Compares the quota files of a volume that was unmounted. Otherwise they are as old as the
    /// checkpoint, and recovery brings them up to date. For a repair they become what was counted,
    /// in either case.
    pub(super) fn check_quotas(&mut self) {
        if !self.report.clean_unmount && !self.mending() {
            return;
        }
        let distrusted = self.volume.cp.flags.contains(CpFlags::QUOTA_NEED_FSCK);
        if distrusted && self.report.clean_unmount {
            let place = Place::Checkpoint { pack: self.volume.pack };
            self.find(place, "quota", "marked as not to be relied on", "right");
        }
        for (kind, ino) in QuotaType::ALL.into_iter().zip(self.volume.sb.quota_inos) {
            let Some(blocks) = self.quota.files.remove(&ino) else { continue };
            let file = self.read_quota_file(kind, ino, &blocks);
            let file = self.keep(|| Place::Inode { ino }, file);
            let used = std::mem::take(&mut self.quota.used[kind as usize]);
            if let Some(file) = file.as_ref().filter(|_| self.report.clean_unmount) {
                self.compare_quota(kind, ino, file, &used);
            }
            if self.mending() {
                // Limits are lost with a file that cannot be read.
                let file = file.unwrap_or_else(|| QuotaFile::new(kind));
                self.mend_quota(kind, ino, file, &used);
            }
        }
    }

    /// Makes `file` say what was counted.
    fn mend_quota(&mut self, kind: QuotaType, ino: Nid, mut file: QuotaFile, used: &Used) {
        let mut mended = Ok(());
        for (id, (inodes, bytes)) in all_ids(&file, used) {
            let usage = file.get(id);
            if (usage.inodes, usage.bytes) != (inodes, bytes) {
                mended = mended.and(file.set(id, &Usage { inodes, bytes, ..usage }));
            }
        }
        self.keep(|| Place::Inode { ino }, mended);
        if let Some(mend) = &mut self.mend {
            mend.quotas.push((kind, file));
        }
    }

    fn read_quota_file(
        &self,
        kind: QuotaType,
        ino: Nid,
        blocks: &[(u64, BlockAddr)],
    ) -> Result<QuotaFile> {
        let count = blocks.iter().map(|(index, _)| index + 1).max().unwrap_or(0);
        if count > MAX_SIZE / BLOCK_SIZE as u64 {
            return Err(Error::corrupt("quota inode", ino, format!("{count} blocks"), "64 MiB"));
        }
        let mut bytes = vec![0; count as usize * BLOCK_SIZE];
        for (index, addr) in blocks {
            let at = *index as usize * BLOCK_SIZE;
            bytes[at..at + BLOCK_SIZE].copy_from_slice(&self.volume.read(*addr)?[..]);
        }
        QuotaFile::parse(kind, bytes)
    }

    fn compare_quota(&mut self, kind: QuotaType, ino: Nid, file: &QuotaFile, used: &Used) {
        for (id, counted) in all_ids(file, used) {
            let Usage { inodes, bytes, .. } = file.get(id);
            if (inodes, bytes) != counted {
                let show = |(inodes, bytes): (u64, u64)| {
                    format!("{} {id}: {inodes} inodes, {bytes} bytes", kind.name())
                };
                let found = show((inodes, bytes));
                self.find(Place::Inode { ino }, "quota", found, show(counted));
            }
        }
    }
}
