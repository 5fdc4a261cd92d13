//! Compressed files (`compress.c`): reading their clusters, and taking a cluster out of compression
//! before anything in it changes.
//!
//! Nothing is compressed here. A cluster that is written to, truncated or punched is expanded: its
//! contents become plain blocks, which the format allows for any cluster at any time. The expanded
//! blocks are written at once, so that a checkpoint never has the slots without the data. Only a
//! file whose saved blocks were given back (`F2FS_IOC_RELEASE_COMPRESS_BLOCKS`) cannot change: to
//! the kernel too it is read-only.

mod codec;
#[cfg(feature = "foreign")]
mod lzo;

use std::ops::Range;

use drive::{BLOCK_SIZE, Block};
use queue::WriteSet;
use vfs::{Errno, Ino};
use zerocopy::FromBytes;

use self::codec::Decoder;
use crate::alloc::gc::Hands;
use crate::error::{Error, Result};
use crate::file::writeback::WritePages;
use crate::inode::change::Change;
use crate::inode::mapping::{Lookup, Mapping, Slot};
use crate::mount::engine::Engine;
use crate::ondisk::compress::{Compression, HEADER_SIZE, RawCompressHeader};
use crate::ondisk::inode::RawInodeBlock;
use crate::ondisk::sit::LogType;
use crate::ondisk::{
    BlockAddr, COMPRESS_ADDR, MAGIC, NEW_ADDR, NULL_ADDR, Nid, crc32, is_data_addr,
};

/// A compressed cluster of a file.
pub(crate) struct Cluster {
    /// First block of the file in it.
    pub(crate) start: u64,
    /// The slots of all its blocks begin here; all are in one node.
    slot: Slot,
    /// What is in them, `COMPRESS_ADDR` first.
    addrs: Vec<BlockAddr>,
}

impl Cluster {
    /// Where header and data are, in order.
    fn data(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        self.addrs[1..].iter().copied().take_while(|&addr| is_data_addr(addr))
    }
}

impl Engine {
    /// The cluster of `ino` that block `index` is in, if that is compressed.
    pub(crate) fn compressed_cluster(&mut self, ino: Nid, index: u64) -> Result<Option<Cluster>> {
        let Some(blocks) = self.layout(ino)?.cluster() else { return Ok(None) };
        let start = index - index % u64::from(blocks);
        let Lookup::Slot(slot) = self.lookup_slot(ino, start)? else { return Ok(None) };
        if self.addr_in(slot)? != COMPRESS_ADDR {
            return Ok(None);
        }
        let addrs = slot.addrs_in(&self.node(ino, slot.nid)?.block, blocks.into());
        Ok(Some(Cluster { start, slot, addrs }))
    }

    /// Brings the cluster that block `wanted` is in into the cache, if it is compressed; returns
    /// whether it was. The requested page goes in last: in a full cache each may push out one
    /// before it.
    pub(crate) fn load_cluster(&mut self, ino: Nid, wanted: u64) -> Result<bool> {
        let Some(cluster) = self.compressed_cluster(ino, wanted)? else { return Ok(false) };
        let key = Ino::from(ino);
        let pages = self.decompress(ino, &cluster)?;
        let mut last = None;
        for (index, page) in (cluster.start..).zip(pages) {
            if index == wanted {
                last = Some(page);
            } else if self.inodes.of(ino).pages.peek(key, index).is_none() {
                self.inodes.make_room();
                self.inodes.of(ino).pages.insert_clean(key, index, page);
            }
        }
        if let Some(page) = last {
            self.inodes.of(ino).pages.insert_clean(key, wanted, page);
        }
        Ok(true)
    }

    /// The pages of a cluster that lie within the file.
    fn decompress(&mut self, ino: Nid, cluster: &Cluster) -> Result<Vec<Block>> {
        let how = self.compression(ino)?;
        let decoder = Decoder::of(how.algorithm)?;
        let mut bytes = Vec::with_capacity(how.cluster_bytes());
        for addr in cluster.data() {
            if !self.sb.in_main(addr) {
                let allowed = format!("{:#x}..{:#x}", self.sb.main_blkaddr, self.sb.main_end());
                let found = format!("{addr:#x}");
                return Err(Error::corrupt("node.addr", cluster.slot.nid, found, allowed));
            }
            bytes.extend_from_slice(&self.io.read(addr)?[..]);
        }
        let at = cluster.data().next().unwrap_or(cluster.slot.nid);
        let mut contents = vec![0; how.cluster_bytes()];
        decoder
            .decode(data_of(&bytes, how, at)?, &mut contents)
            .map_err(|damage| Error::corrupt("cluster", at, damage.0, how_named(how)))?;
        let size = self.inode(ino)?.size.get();
        let within = size.div_ceil(BLOCK_SIZE as u64).saturating_sub(cluster.start);
        let (pages, _) = contents.as_chunks::<BLOCK_SIZE>();
        Ok(pages
            .iter()
            .take(usize::try_from(within).unwrap_or(usize::MAX))
            .map(Block::copy_of)
            .collect())
    }

    fn compression(&mut self, ino: Nid) -> Result<Compression> {
        let inode = self.inode(ino)?;
        let compression = RawInodeBlock::of(inode.block()).compression(&self.sb, ino)?;
        compression.ok_or_else(|| Error::corrupt("inode.i_flags", ino, "plain", "compressed"))
    }

    /// Makes block `index` of a file, with its whole cluster, plain, so that it may change.
    pub(crate) fn expand_cluster(&mut self, ino: Nid, index: u64) -> Result<()> {
        let Some(cluster) = self.compressed_cluster(ino, index)? else { return Ok(()) };
        if self.is_released(ino)? {
            return Err(Errno::PERM.into());
        }
        let pages = self.decompress(ino, &cluster)?;
        self.forget_cluster(ino, cluster.slot)?;
        for (i, addr) in (0..).zip(&cluster.addrs) {
            let slot = cluster.slot.behind(i);
            if is_data_addr(*addr) {
                self.logs.get_mut().invalidate(self.segments.get_mut(), *addr)?;
            }
            let keep = i < pages.len() as u64;
            match (*addr != NULL_ADDR, keep) {
                (false, true) => {
                    self.take_blocks(ino, 1)?;
                    self.add_blocks(ino, 1)?;
                }
                (true, false) => {
                    self.space.give_block();
                    self.give_quota(ino, 1)?;
                    self.add_blocks(ino, -1)?;
                }
                _ => {}
            }
            self.set_addr(ino, slot, if keep { NEW_ADDR } else { NULL_ADDR })?;
        }
        let mut set = WriteSet::default();
        let mut written = Ok(());
        for (index, page) in (cluster.start..).zip(pages) {
            self.inodes.of(ino).pages.insert_dirty(ino.into(), index, page);
            written = written
                .and_then(|()| self.write_page(ino, index, LogType::ColdData.into(), &mut set));
        }
        self.finish(set, written)
    }

    /// Expands the clusters that a change of `range` would leave in pieces.
    pub(crate) fn expand_cut_clusters(&mut self, ino: Nid, range: &Range<u64>) -> Result<()> {
        let Some(blocks) = self.layout(ino)?.cluster() else { return Ok(()) };
        for end in [range.start, range.end] {
            if !end.is_multiple_of(blocks.into()) {
                self.expand_cluster(ino, end)?;
            }
        }
        Ok(())
    }

    /// Whether the blocks that compression saved were given back (`FI_COMPRESS_RELEASED`).
    fn is_released(&mut self, ino: Nid) -> Result<bool> {
        let inode = self.raw_inode(ino)?;
        Ok(inode.extra().is_none_or(|extra| extra.compr_blocks.get() == 0))
    }

    /// The cluster whose slots begin at `slot` is no longer compressed: the saved blocks no longer
    /// count (`f2fs_i_compr_blocks_update`). True if its first slot counts as a block.
    pub(crate) fn forget_cluster(&mut self, ino: Nid, slot: Slot) -> Result<bool> {
        let Some(blocks) = self.layout(ino)?.cluster() else {
            let found = "COMPRESS_ADDR";
            return Err(Error::corrupt("node.addr", slot.nid, found, "a block, in a plain file"));
        };
        if self.is_released(ino)? {
            return Ok(false);
        }
        let addrs = slot.addrs_in(&self.node(ino, slot.nid)?.block, blocks.into());
        let used = addrs.iter().filter(|addr| is_data_addr(**addr)).count() as u64;
        if let Some(extra) = self.inode_mut(ino)?.extra_mut() {
            let saved = extra.compr_blocks.get();
            extra.compr_blocks.set(saved.saturating_sub(u64::from(blocks).saturating_sub(used)));
        }
        Ok(true)
    }

    /// Sets those of `addrs`, which begin at block `index`, to `COMPRESS_ADDR` that lie in
    /// compressed clusters: all of such a cluster is data, whatever its slots hold.
    pub(crate) fn fill_clusters(
        &mut self,
        ino: Nid,
        index: u64,
        addrs: &mut [BlockAddr],
    ) -> Result<()> {
        let Some(blocks) = self.layout(ino)?.cluster() else { return Ok(()) };
        let lead = (index % u64::from(blocks)) as usize;
        let (head, rest) = addrs.split_at_mut(if lead == 0 {
            0
        } else {
            (usize::from(blocks) - lead).min(addrs.len())
        });
        if lead > 0 && self.compressed_cluster(ino, index)?.is_some() {
            head.fill(COMPRESS_ADDR);
        }
        for cluster in rest.chunks_mut(blocks.into()) {
            if cluster.first() == Some(&COMPRESS_ADDR) {
                cluster.fill(COMPRESS_ADDR);
            }
        }
        Ok(())
    }
}

/// The compressed data in the blocks of a cluster, whose header is checked.
fn data_of(bytes: &[u8], how: Compression, at: BlockAddr) -> Result<&[u8]> {
    let Ok((header, rest)) = RawCompressHeader::ref_from_prefix(bytes) else {
        return Err(Error::corrupt("cluster", at, "no blocks", "blocks behind COMPRESS_ADDR"));
    };
    let clen = header.clen.get();
    let Some(data) = rest.get(..clen as usize) else {
        let allowed = format!("0..={}", bytes.len() - HEADER_SIZE);
        return Err(Error::corrupt("compress_data.clen", at, clen, allowed));
    };
    let (found, allowed) = (header.chksum.get(), crc32(MAGIC, data));
    if how.has_checksum && found != allowed {
        let (found, allowed) = (format!("{found:#010x}"), format!("{allowed:#010x}"));
        return Err(Error::corrupt("compress_data.chksum", at, found, allowed));
    }
    Ok(data)
}

fn how_named(how: Compression) -> String {
    format!("{} bytes of {:?}", how.cluster_bytes(), how.algorithm)
}
