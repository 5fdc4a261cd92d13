//! Where the pages of a file are: what F2FS answers to [`vfs::file`].

use std::ops::Range;

use drive::{Block, Blocks, Lba};
use vfs::PageCache;
use vfs::file::Map;

use crate::error::{Error, Result};
use crate::inode::mapping::{Lookup, Mapping};
use crate::mount::engine::Engine;
use crate::mount::iostat::Moved;
use crate::ondisk::{ADDRS_PER_BLOCK, BlockAddr, NEW_ADDR, NULL_ADDR, Nid, is_data_addr};

impl Map for Engine {
    type File = Nid;
    type Error = Error;

    #[inline]
    fn pages(&mut self, ino: Nid) -> &mut PageCache {
        &mut self.inodes.of(ino).pages
    }

    #[inline]
    fn make_room(&mut self) {
        self.inodes.make_room();
    }

    fn locate(&mut self, ino: Nid, index: u64, most: u64) -> Result<Option<Range<Lba>>> {
        let caches = self.options.extent_cache;
        if caches && let Some((addr, len)) = self.inodes.of(ino).extents.look_up(ino, index) {
            return Ok(Some(addr.into()..Lba::from(addr) + len.min(most)));
        }
        self.read_nodes_ahead(ino, index)?;
        let addr = self.addr_of(ino, index)?;
        if addr == NULL_ADDR || addr == NEW_ADDR {
            return Ok(None);
        }
        if !is_data_addr(addr) {
            return Err(Error::corrupt("node.addr", ino, "COMPRESS_ADDR", "a block"));
        }
        let cluster = self.layout(ino)?.cluster().map(u64::from);
        let extent = self.extent_around(ino, index, addr)?;
        if caches && cluster.is_none() {
            self.note_extent(ino, extent.clone(), addr - (index - extent.start) as BlockAddr);
        }
        // The blocks behind a plain cluster may be those of a compressed one.
        let most = cluster.map_or(most, |blocks| most.min(blocks - index % blocks));
        let len = (extent.end - index).min(most);
        Ok(Some(addr.into()..Lba::from(addr) + len))
    }

    fn read_blocks(&mut self, blocks: Range<Lba>) -> Result<Blocks> {
        self.iostat.add_blocks(Moved::FsDataRead, (blocks.end - blocks.start) as usize);
        self.io.read_run(blocks.start as BlockAddr, (blocks.end - blocks.start) as u32)
    }

    fn reserve(&mut self, ino: Nid, index: u64) -> Result<()> {
        self.reserve_block(ino, index).map(drop)
    }

    fn reserve_run(&mut self, ino: Nid, pages: Range<u64>) -> Result<u64> {
        self.reserve_blocks(ino, pages)
    }

    #[inline]
    fn seen(&mut self, ino: Nid, index: u64) -> Result<Nid> {
        self.inode_of_page(ino, index)
    }

    fn load(&mut self, ino: Nid, index: u64) -> Result<bool> {
        self.load_cluster(ino, index)
    }

    fn unshare(&mut self, ino: Nid, index: u64) -> Result<()> {
        self.expand_cluster(ino, index)
    }

    fn below(&mut self, ino: Nid, index: u64) -> Result<Block> {
        self.page_below(ino, index)
    }
}

/// Bytes that an extent takes in memory, with its place in the tree (`struct extent_node`).
const EXTENT_BYTES: u64 = 64;
/// How many look-ups may miss between two looks at how much memory the extents take.
const LOOK_EVERY: u64 = 1024;

impl Engine {
    /// The blocks around block `index`, which is at `addr`, that lie side by side and that one node
    /// maps.
    fn extent_around(&mut self, ino: Nid, index: u64, addr: BlockAddr) -> Result<Range<u64>> {
        let Lookup::Slot(slot) = self.lookup_slot(ino, index)? else { return Ok(index..index + 1) };
        let before = usize::from(slot.ofs_in_node);
        let addrs = self.addrs_from(ino, index - before as u64, ADDRS_PER_BLOCK as usize)?;
        let (front, behind) = addrs.split_at(before.min(addrs.len()));
        let main = self.sb.main_blkaddr..self.sb.main_end();
        let run = |found: &mut dyn Iterator<Item = &BlockAddr>,
                   wanted: &mut dyn Iterator<Item = BlockAddr>| {
            found.zip(wanted).take_while(|(at, wanted)| *at == wanted && main.contains(at)).count()
                as u64
        };
        let follow = run(&mut behind.iter(), &mut (addr..));
        let precede = run(&mut front.iter().rev(), &mut (0..addr).rev());
        Ok(index - precede..index + follow)
    }

    /// Notes where blocks of a file are. Extents take half of what `ram_thresh` allows; beyond that
    /// all are forgotten.
    fn note_extent(&mut self, ino: Nid, blocks: Range<u64>, addr: BlockAddr) {
        self.extent_misses += 1;
        if self.extent_misses.is_multiple_of(LOOK_EVERY) {
            let bytes = self.inodes.extent_counts().extents * EXTENT_BYTES;
            if bytes > self.memory_for_tables() / 2 {
                self.inodes.all().for_each(|shard| shard.extents.clear());
            }
        }
        self.inodes.of(ino).extents.insert(ino, blocks, addr);
    }

    /// Bytes that tables in memory may take (`f2fs_available_free_memory`): `ram_thresh` percent of
    /// memory in Linux, and here as many hundredths of a hundred times the page cache.
    pub(crate) fn memory_for_tables(&self) -> u64 {
        self.options.cache_bytes.saturating_mul(self.knobs.ram_thresh)
    }
}
