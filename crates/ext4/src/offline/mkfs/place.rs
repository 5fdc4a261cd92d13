//! Where everything of a new volume lies.
//!
//! The places are those that mke2fs chooses (`ext2fs_allocate_group_table`, `ext2fs_mkdir`,
//! `ext2fs_create_resize_inode`, `ext2fs_add_journal_inode3`, in this order).

use std::ops::Range;

use zerocopy::FromZeros;

use super::geometry::{journal_blocks, layout, orphan_blocks};
use super::options::MkfsOptions;
use super::space::Space;
use super::tree::nodes_for;
use crate::error::{Error, Result};
use crate::ondisk::checksum::Checksums;
use crate::ondisk::extent::{Extent, LEN_MAX};
use crate::ondisk::features::Compat;
use crate::ondisk::group::{BLOCK_UNINIT, INODE_UNINIT, RawGroupDesc};
use crate::ondisk::superblock::Superblock;
use crate::ondisk::{FIRST_INO, FsBlock, Group, Ino, JOURNAL_INO, RESIZE_INO, ROOT_INO};

pub(super) const LOST_FOUND_INO: Ino = FIRST_INO;
pub(super) const ORPHAN_INO: Ino = FIRST_INO + 1;
/// Bytes of `lost+found`, so that e2fsck need not allocate while it repairs.
const LOST_FOUND_BYTES: u32 = 16 << 10;
/// Blocks of a file that need no map of their own outside the inode (`EXT2_NDIR_BLOCKS`).
const DIRECT: u32 = 12;

/// The blocks of a file: its contents, and the nodes of its map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    pub(super) extents: Vec<Extent>,
    pub(super) nodes: Vec<FsBlock>,
}

impl File {
    /// Blocks of its contents.
    pub(super) fn len(&self) -> u64 {
        self.extents.last().map_or(0, Extent::end)
    }

    /// The blocks of its contents, in order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = FsBlock> + '_ {
        self.extents.iter().flat_map(Extent::home)
    }
}

/// A volume of which every block has its place.
pub(super) struct Plan<'a> {
    pub(super) options: &'a MkfsOptions,
    /// Until [`Plan::finish`] without free space and journal. The first one, but for
    /// [`Plan::superblock`].
    pub(super) sb: Superblock,
    /// One for each group, until [`Plan::finish`] without counts and checksums.
    pub(super) groups: Vec<RawGroupDesc>,
    pub(super) space: Space,
    /// In the order in which they were placed. The resize inode's only block is that of its map.
    pub(super) files: Vec<(Ino, File)>,
}

impl<'a> Plan<'a> {
    /// Places a volume on a drive of `device` bytes.
    pub(super) fn new(options: &'a MkfsOptions, device: u64) -> Result<Self> {
        let sb = layout(options, device)?;
        let journal = journal_blocks(options, &sb)?;
        let mut plan = Self {
            options,
            groups: vec![RawGroupDesc::new_zeroed(); sb.groups as usize],
            space: Space::new(sb.blocks),
            files: Vec::new(),
            sb,
        };
        plan.place_base();
        plan.place_tables()?;
        plan.place_files(journal)?;
        Ok(plan)
    }

    /// Superblocks and descriptors; which groups can be left uninitialized.
    fn place_base(&mut self) {
        let first = self.sb.first_data_block();
        // What lies before group 0 belongs to no group.
        self.space.take(0..first);
        let has_flags = self.sb.checksums != Checksums::None;
        let last = self.sb.groups - 1;
        for group in 0..self.sb.groups {
            let start = self.sb.group_start(group);
            self.space.take(start..start + u64::from(self.sb.base_meta_blocks(group)));
            let mut flags = 0;
            if has_flags && group > 0 {
                flags = INODE_UNINIT | if group < last { BLOCK_UNINIT } else { 0 };
            }
            self.groups[group as usize].flags = flags.into();
        }
    }

    fn place_tables(&mut self) -> Result<()> {
        let flex = 1 << self.sb.raw.log_groups_per_flex;
        let table = u64::from(self.sb.table_blocks());
        for group in 0..self.sb.groups {
            let first = group / flex * flex;
            let end = first.saturating_add(flex).min(self.sb.groups);
            let before = group.checked_sub(1).filter(|before| *before >= first);
            let before = before.map(|before| self.groups[before as usize]);
            // Room is left for the same of the other groups; mke2fs leaves it for a whole flexible
            // group if this is its only group.
            let gap = u64::from(if end - first == 1 { flex } else { end - first });
            let goal = before.map(|before| before.block_bitmap() + 1);
            let block_bitmap = self.place(group, first..end, goal, 1)?;
            let goal = before.map_or(block_bitmap + gap, |before| before.inode_bitmap() + 1);
            let inode_bitmap = self.place(group, first..end, Some(goal), 1)?;
            let goal = before.map_or(inode_bitmap + gap, |before| before.inode_table() + table);
            let inode_table = self.place(group, first..end, Some(goal), table)?;
            let desc = &mut self.groups[group as usize];
            desc.set_block_bitmap(block_bitmap);
            desc.set_inode_bitmap(inode_bitmap);
            desc.set_inode_table(inode_table);
        }
        Ok(())
    }

    /// `len` blocks in a row for a group's bitmap or table: at `goal` if they are free, else where
    /// those of the other groups of its flexible group fit as well.
    fn place(
        &mut self,
        group: Group,
        flexible: Range<Group>,
        goal: Option<FsBlock>,
        len: u64,
    ) -> Result<FsBlock> {
        let is_flexible = self.sb.raw.log_groups_per_flex > 0;
        let end = self.sb.group_blocks(flexible.end - 1).end;
        let range = self.sb.group_start(flexible.start)..end;
        let rest = u64::from(flexible.end - group);
        let all = (rest * len).min(u64::from(self.sb.blocks_per_group) / 4).max(len);
        let at = goal
            .filter(|goal| self.space.is_free(*goal, len) && range.contains(goal))
            .or_else(|| self.space.find(range.clone(), all))
            .or_else(|| self.space.find(range, len))
            .or_else(|| self.space.find(0..self.sb.blocks, len).filter(|_| is_flexible));
        let at = at.ok_or_else(|| {
            Error::usage(format!("no room for the {len} blocks that group {group} needs"))
        })?;
        self.space.take(at..at + len);
        if is_flexible {
            self.initialize(at..at + len);
        }
        Ok(at)
    }

    /// The bitmaps of the groups of `blocks` can no longer be derived from the descriptors.
    fn initialize(&mut self, blocks: Range<FsBlock>) {
        for group in self.sb.group_of(blocks.start)..=self.sb.group_of(blocks.end - 1) {
            let flags = &mut self.groups[group as usize].flags;
            *flags = (flags.get() & !BLOCK_UNINIT).into();
        }
    }

    fn place_files(&mut self, journal: Option<u32>) -> Result<()> {
        let start = self.sb.group_start(0);
        self.place_file(ROOT_INO, 1, start)?;
        let blocks = LOST_FOUND_BYTES / self.sb.block_size;
        self.place_file(LOST_FOUND_INO, blocks.min(DIRECT), start)?;
        if self.sb.compat.contains(Compat::RESIZE_INODE) {
            let goal = self.groups[0].inode_table() + u64::from(self.sb.table_blocks());
            self.place_file(RESIZE_INO, 1, goal)?;
        }
        let Some(blocks) = journal else { return Ok(()) };
        self.place_file(JOURNAL_INO, blocks, self.journal_goal())?;
        if self.sb.compat.contains(Compat::ORPHAN_FILE) {
            self.place_file(ORPHAN_INO, orphan_blocks(&self.sb), start)?;
        }
        Ok(())
    }

    fn take_near(&mut self, goal: FsBlock, len: u64) -> Result<Range<FsBlock>> {
        let found = self.space.near(goal, len);
        let found = found.ok_or_else(|| {
            Error::usage(format!("{} blocks have no room for journal and files", self.sb.blocks))
        })?;
        self.space.take(found.clone());
        self.initialize(found.clone());
        Ok(found)
    }

    /// Places a file of `len` blocks: the free ones from `goal` on.
    fn place_file(&mut self, ino: Ino, len: u32, goal: FsBlock) -> Result<()> {
        let (mut file, mut at) = (File::default(), goal);
        let mut block = 0;
        while block < len {
            let found = self.take_near(at, u64::from(len - block).min(LEN_MAX.into()))?;
            let run = (found.end - found.start) as u32;
            file.extents.push(Extent { block, len: run, start: found.start, unwritten: false });
            (block, at) = (block + run, found.end);
            // Each node where it is in front of the contents, if there is room.
            while file.nodes.len() < nodes_for(file.extents.len(), self.sb.block_size) {
                let goal = file.extents[0].start.saturating_sub(1);
                file.nodes.push(self.take_near(goal, 1)?.start);
            }
        }
        self.files.push((ino, file));
        Ok(())
    }

    /// A file of the volume, if it has that.
    pub(super) fn file(&self, ino: Ino) -> Option<&File> {
        self.files.iter().find(|(known, _)| *known == ino).map(|(_, file)| file)
    }

    /// Blocks of the journal.
    pub(super) fn journal_len(&self) -> u64 {
        self.file(JOURNAL_INO).map_or(0, File::len)
    }

    /// Where the journal should begin: in the middle of the volume, so that the way to it is short
    /// (`get_midpoint_journal_block`).
    fn journal_goal(&self) -> FsBlock {
        let first = self.sb.first_data_block();
        let middle = self.sb.group_of(first + (self.sb.blocks - first) / 2);
        let flex = 1_u32 << self.sb.raw.log_groups_per_flex;
        let (group, start) = if flex > 1 && middle > flex {
            let group = (middle / flex * flex..self.sb.groups).find(|group| self.free(*group) > 0);
            let group = group.unwrap_or(0);
            (group, group)
        } else {
            (middle, middle.saturating_sub(1))
        };
        let last = (group + 1).min(self.sb.groups - 1);
        // Of several with as much room, the first.
        let most = (start..=last).rev().max_by_key(|group| self.free(*group));
        self.sb.group_start(most.unwrap_or(start))
    }

    /// The groups that begin with a copy of the superblock, and where.
    pub(super) fn backups(&self) -> impl Iterator<Item = (Group, FsBlock)> + '_ {
        let copies = (1..self.sb.groups).filter(|group| self.sb.has_super(*group));
        copies.map(|group| (group, self.sb.group_start(group)))
    }

    /// Free blocks of a group.
    pub(super) fn free(&self, group: Group) -> u64 {
        self.space.free_in(self.sb.group_blocks(group))
    }

    /// Inodes in use, which are the first ones: reserved, `lost+found`, and the orphan file.
    pub(super) fn inodes(&self) -> u32 {
        self.file(ORPHAN_INO).map_or(LOST_FOUND_INO, |_| ORPHAN_INO)
    }

    /// Blocks that can never hold files (`s_overhead_clusters`).
    pub(super) fn overhead(&self) -> u64 {
        let each = u64::from(2 + self.sb.table_blocks()) * u64::from(self.sb.groups);
        let base = (0..self.sb.groups).map(|group| u64::from(self.sb.base_meta_blocks(group)));
        self.sb.first_data_block() + each + base.sum::<u64>() + self.journal_len()
    }
}
