//! The blocks of a fresh volume: superblock, tables, checkpoint packs, root directory.
//!
//! A pure function of geometry and options. `mod.rs` writes the result.

use std::ops::Range;

use cores::splitmix64;
use drive::Block;
use vfs::FileKind;
use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

use super::geometry::{Formula, Geometry};
use super::options::MkfsOptions;
use crate::error::Result;
use crate::ondisk::checkpoint::{Checkpoint, CpFlags};
use crate::ondisk::curseg::Curseg;
use crate::ondisk::dentry::{DentriesMut, slots_for};
use crate::ondisk::hash::dentry_hash;
use crate::ondisk::inode::{FileFlags, Inline, InodeLayout, RawInodeBlock};
use crate::ondisk::nat::{NatEntry, RawNatBlock};
use crate::ondisk::nat_bits::{self, NatBits};
use crate::ondisk::node::RawNodeFooter;
use crate::ondisk::quota::{self, QuotaType};
use crate::ondisk::sit::{LogType, SitEntry};
use crate::ondisk::summary::{RawSummary, RawSummaryBlock, pack_compact};
use crate::ondisk::superblock::{Features, RawSuperblock, Superblock};
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, Nid, bits};

const NODE_INO: Nid = 1;
const META_INO: Nid = 2;
const ROOT_INO: Nid = 3;
/// `checkpoint_ver` of a volume made with seed 0: the first `rand()` of glibc for that seed, so
/// that `-r` makes the same as `mkfs.f2fs -r`.
const SEED_0_VERSION: u64 = 0x6b8b_4567;
const LOST_FOUND: &[u8] = b"lost+found";
const VERSION: &str = concat!("strandline ", env!("CARGO_PKG_VERSION"));
/// `cp_ver` of the nodes of a fresh volume. No checkpoint has it, so no recovery takes these nodes.
const FIRST_CP_VER: u64 = 1;

/// What a fresh volume has besides tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Root,
    Quota(QuotaType),
    LostFound,
}

/// One of the inodes a fresh volume has.
struct Initial {
    what: What,
    ino: Nid,
    inode_addr: BlockAddr,
    data: Range<BlockAddr>,
}

impl Initial {
    fn is_dir(&self) -> bool {
        !matches!(self.what, What::Quota(_))
    }

    fn nat_entry(&self) -> NatEntry {
        NatEntry { version: 0, ino: self.ino, addr: self.inode_addr }
    }
}

/// The inodes, in the order of their numbers, each in one block of the hot node log, with contents
/// in the hot data log.
fn initial_inodes(features: Features, nodes: BlockAddr, data: BlockAddr) -> Vec<Initial> {
    let mut all = vec![What::Root];
    if features.contains(Features::QUOTA_INO) {
        all.extend([What::Quota(QuotaType::User), What::Quota(QuotaType::Group)]);
    }
    if features.contains(Features::PRJQUOTA) {
        all.push(What::Quota(QuotaType::Project));
    }
    if features.contains(Features::LOST_FOUND) {
        all.push(What::LostFound);
    }
    let mut at = data;
    let place = |(i, what)| {
        let start = at;
        at += if matches!(what, What::Quota(_)) { quota::FIRST_FS_BLOCKS } else { 1 };
        Initial { what, ino: ROOT_INO + i, inode_addr: nodes + i, data: start..at }
    };
    (0..).zip(all).map(place).collect()
}

/// A volume that exists only in memory so far.
pub(super) struct Image {
    /// Its superblock, raw and decoded.
    pub raw: RawSuperblock,
    /// Validated.
    pub sb: Superblock,
    geometry: Geometry,
    inodes: Vec<Initial>,
    trimmed: bool,
    large_nat_bitmap: bool,
    seed: u64,
}

impl Image {
    /// Plans the volume. `joined` has the blocks of each device if there are several. `trimmed`
    /// says that the drive holds nothing else.
    pub(super) fn new(
        options: &MkfsOptions,
        geometry: &Geometry,
        block_count: u64,
        joined: &[u64],
        trimmed: bool,
    ) -> Result<Self> {
        let raw = superblock(options, geometry, block_count, joined);
        let sb = Superblock::parse(raw.to_block().bytes(), 0)?;
        let start = |log: LogType| sb.seg_start(geometry.cursegs[log.index()]);
        let (nodes, data) = (start(LogType::HotNode), start(LogType::HotData));
        let inodes = initial_inodes(options.features, nodes, data);
        let (large_nat_bitmap, seed) = (options.large_nat_bitmap, options.seed);
        Ok(Self { raw, sb, geometry: *geometry, inodes, trimmed, large_nat_bitmap, seed })
    }

    /// Where `log` begins.
    pub(super) fn log_start(&self, log: LogType) -> BlockAddr {
        self.sb.seg_start(self.geometry.cursegs[log.index()])
    }

    /// The first block of the NAT; all others of NAT and SIT are zero.
    pub(super) fn nat_block(&self) -> Block {
        let mut bytes = [0; BLOCK_SIZE];
        let nat = RawNatBlock::of_mut(&mut bytes);
        for reserved in [NODE_INO, META_INO] {
            nat.set_entry(reserved, NatEntry { version: 0, ino: reserved, addr: 1 });
        }
        // The checkpoint's journal has all of them, including `lost+found`.
        for initial in self.inodes.iter().filter(|i| i.what != What::LostFound) {
            nat.set_entry(initial.ino, initial.nat_entry());
        }
        Block::new(bytes)
    }

    /// The first inodes and their contents: each block with its address, in the order of writing.
    pub(super) fn initial_blocks(&self, options: &MkfsOptions) -> Vec<(BlockAddr, Block)> {
        let inodes = self.inodes.iter().map(|i| (i.inode_addr, self.inode(i, options)));
        let data = self.inodes.iter().flat_map(|i| i.data.clone().zip(self.contents(i, options)));
        inodes.chain(data).collect()
    }

    fn contents(&self, initial: &Initial, options: &MkfsOptions) -> Vec<Block> {
        let What::Quota(kind) = initial.what else { return vec![self.entries(initial)] };
        let (uid, gid) = options.root_owner;
        let id = match kind {
            QuotaType::User => uid,
            QuotaType::Group => gid,
            QuotaType::Project => 0,
        };
        // Quota files are not counted. Directories have one block each.
        let dirs = self.inodes.iter().filter(|i| i.is_dir()).count() as u64;
        quota::first_blocks(kind, id, dirs, dirs * BLOCK_SIZE as u64)
    }

    /// Both checkpoint packs, each block with its address.
    pub(super) fn checkpoint_blocks(&self) -> Vec<(BlockAddr, Block)> {
        let mut cp = self.checkpoint();
        let header = cp.encode(&self.sb);
        let mut pack = header.clone();
        pack.extend(self.summaries());
        pack.push(header[0].clone());
        debug_assert_eq!(pack.len(), cp.pack_total as usize);
        let at = self.sb.cp_pack(0);
        let mut blocks: Vec<_> = (at..).zip(pack).collect();
        if let Some(start) = self.nat_bits_start(&cp) {
            blocks.extend((at + start..).zip(self.nat_bits().encode(&cp)));
        }
        // The second pack is complete, but so old that it is never chosen.
        cp.version = 0;
        let old = cp.encode(&self.sb);
        let second = self.sb.cp_pack(1);
        blocks.push((second + cp.pack_total - 1, old[0].clone()));
        blocks.extend((second..).zip(old));
        blocks
    }

    fn nat_bits_start(&self, cp: &Checkpoint) -> Option<u32> {
        nat_bits::start(&self.sb, cp.pack_total)
    }

    fn nat_bits(&self) -> NatBits {
        let mut nat_bits = NatBits::new(&self.sb);
        nat_bits.empty.fill(0xff);
        bits::lsb::clear(&mut nat_bits.empty, 0);
        nat_bits
    }

    fn checkpoint(&self) -> Checkpoint {
        let g = &self.geometry;
        let mut flags = CpFlags::UMOUNT | CpFlags::COMPACT_SUM;
        flags.set(CpFlags::TRIMMED, self.trimmed);
        flags.set(CpFlags::LARGE_NAT_BITMAP, self.large_nat_bitmap);
        let used = self.inodes.len() as u32;
        let data = self.used_in(LogType::HotData) as u64;
        let start_sum = 1 + g.cp_payload;
        let mut cp = Checkpoint {
            version: first_version(self.seed),
            user_block_count: g.user_blocks,
            valid_block_count: u64::from(used) + data,
            rsvd_segment_count: g.reserved,
            overprov_segment_count: g.overprov,
            free_segment_count: g.free,
            cursegs: LogType::ALL.map(|log| Curseg {
                segno: g.cursegs[log.index()],
                blkoff: self.used_in(log) as u16,
                ssr: false,
            }),
            flags,
            // Header, compact summaries, three node summaries, tail.
            pack_total: start_sum + 1 + 3 + 1,
            start_sum,
            valid_node_count: used,
            valid_inode_count: used,
            next_free_nid: ROOT_INO + used,
            elapsed_time: 0,
            ours: false,
            sealed: false,
            sit_bitmap: vec![0; self.sb.sit_bitmap_size() as usize],
            nat_bitmap: vec![0; self.sb.nat_bitmap_size() as usize],
            crc: 0,
        };
        let room = self.nat_bits_start(&cp).is_some();
        cp.flags.set(CpFlags::NAT_BITS, room);
        cp
    }

    /// How many blocks of `log` the fresh volume uses.
    fn used_in(&self, log: LogType) -> usize {
        match log {
            LogType::HotData => self.inodes.iter().map(|i| i.data.len()).sum(),
            LogType::HotNode => self.inodes.len(),
            _ => 0,
        }
    }

    /// Compact data summaries with both journals, then the node logs' summaries.
    fn summaries(&self) -> Vec<Block> {
        let mut logs = LogType::ALL.map(RawSummaryBlock::empty);
        let [hot_data, _, cold_data, hot_node, ..] = &mut logs;
        let owners = self.inodes.iter().flat_map(|i| (0..i.data.len()).map(|slot| (i.ino, slot)));
        for (entry, (ino, slot)) in hot_data.entries.iter_mut().zip(owners) {
            *entry = RawSummary::data(ino, 0, slot as u16);
        }
        for (entry, initial) in hot_node.entries.iter_mut().zip(&self.inodes) {
            *entry = RawSummary::node(initial.ino);
            let journalled = hot_data.nat_journal_mut().put(initial.ino, initial.nat_entry());
            debug_assert!(journalled);
        }
        let (data, nodes) = LogType::ALL.split_at(3);
        for &log in nodes.iter().chain(data) {
            let mut entry = SitEntry::empty(log);
            entry.valid = self.used_in(log) as u16;
            for i in 0..self.used_in(log) {
                bits::msb::set(&mut entry.map, i);
            }
            let segno = self.geometry.cursegs[log.index()];
            let journalled = cold_data.sit_journal_mut().put(segno, &entry);
            debug_assert!(journalled);
        }
        let data = [LogType::HotData, LogType::WarmData, LogType::ColdData];
        let counts = data.map(|log| self.used_in(log));
        let mut blocks = pack_compact([&logs[0], &logs[1], &logs[2]], counts);
        blocks.extend(logs[3..].iter().map(|s| Block::from_prefix(s.as_bytes())));
        blocks
    }

    fn inode(&self, initial: &Initial, options: &MkfsOptions) -> Block {
        let mut bytes = [0; BLOCK_SIZE];
        let inode = RawInodeBlock::of_mut(&mut bytes);
        let i = &mut inode.i;
        i.uid.set(options.root_owner.0);
        i.gid.set(options.root_owner.1);
        for time in [&mut i.atime, &mut i.ctime, &mut i.mtime] {
            time.set(options.time);
        }
        let (mode, links) = match initial.what {
            What::Root => {
                let dirs = self.inodes.iter().filter(|i| i.is_dir()).count() as u32;
                (0o040_755, 2 + dirs - 1)
            }
            What::LostFound => {
                i.set_name(ROOT_INO, LOST_FOUND);
                (0o040_700, 2)
            }
            What::Quota(_) => (0o100_600, 1),
        };
        i.mode.set(mode);
        i.links.set(links);
        if initial.is_dir() {
            i.size.set(BLOCK_SIZE as u64);
            i.current_depth.set(1);
        } else {
            i.size.set(quota::FIRST_SIZE);
            i.flags.set(FileFlags::IMMUTABLE.bits());
        }
        i.blocks.set(1 + initial.data.len() as u64);
        let extra_isize = extra_isize(self.sb.features);
        if extra_isize > 0 {
            i.set_inline(Inline::EXTRA_ATTR);
        }
        if let Some(extra) = i.extra_mut() {
            extra.extra_isize.set(extra_isize);
            if self.sb.features.contains(Features::INODE_CRTIME) && initial.is_dir() {
                extra.crtime.set(options.time);
            }
        }
        let layout = InodeLayout::new(extra_isize, 0);
        for (slot, addr) in initial.data.clone().enumerate() {
            i.addr[layout.slot(slot)] = U32::new(addr);
        }
        inode.footer = RawNodeFooter::new(initial.ino, initial.ino, 0);
        inode.footer.cp_ver.set(FIRST_CP_VER);
        inode.footer.next_blkaddr.set(initial.inode_addr + 1);
        inode.seal(&self.sb);
        Block::new(bytes)
    }

    /// The block of entries of a directory.
    fn entries(&self, initial: &Initial) -> Block {
        let mut bytes = [0; BLOCK_SIZE];
        let mut dir = DentriesMut::block(&mut bytes);
        dir.insert(0, b".", 0, initial.ino, FileKind::Directory);
        dir.insert(1, b"..", 0, ROOT_INO, FileKind::Directory);
        let lost_found = self.inodes.iter().find(|i| i.what == What::LostFound);
        if let (What::Root, Some(lost_found)) = (initial.what, lost_found) {
            debug_assert_eq!(dir.view().find_free(slots_for(LOST_FOUND.len())), Some(2));
            let hash = dentry_hash(LOST_FOUND);
            dir.insert(2, LOST_FOUND, hash, lost_found.ino, FileKind::Directory);
        }
        Block::new(bytes)
    }
}

/// `checkpoint_ver`: odd, so never 0.
fn first_version(seed: u64) -> u64 {
    if seed == 0 { SEED_0_VERSION } else { splitmix64(seed) & 0x7fff_ffff | 1 }
}

/// Bytes of extra attributes that the features require, as in `mkfs.f2fs`.
fn extra_isize(features: Features) -> u16 {
    if features.contains(Features::COMPRESSION) {
        36
    } else if features.contains(Features::INODE_CRTIME) {
        24
    } else if features.contains(Features::INODE_CHKSUM) {
        12
    } else if features.contains(Features::PRJQUOTA) {
        8
    } else if features.contains(Features::EXTRA_ATTR) {
        4
    } else {
        0
    }
}

fn superblock(
    options: &MkfsOptions,
    g: &Geometry,
    block_count: u64,
    joined: &[u64],
) -> RawSuperblock {
    let mut sb = RawSuperblock::new_zeroed();
    sb.magic.set(crate::ondisk::MAGIC);
    sb.major_ver.set(1);
    sb.minor_ver.set(match options.formula {
        Formula::V1_15 => 15,
        Formula::V1_16 => 16,
    });
    let sector_log = options.sector_size.trailing_zeros();
    sb.log_sectorsize.set(sector_log);
    sb.log_sectors_per_block.set(12 - sector_log);
    sb.log_blocksize.set(12);
    sb.log_blocks_per_seg.set(9);
    sb.segs_per_sec.set(options.segs_per_sec);
    sb.secs_per_zone.set(options.secs_per_zone);
    sb.block_count.set(block_count);
    sb.section_count.set(g.sections);
    sb.segment_count.set(g.segments);
    sb.segment_count_ckpt.set(2);
    sb.segment_count_sit.set(g.sit);
    sb.segment_count_nat.set(g.nat);
    sb.segment_count_ssa.set(g.ssa);
    sb.segment_count_main.set(g.main);
    set_areas(&mut sb, g);
    sb.root_ino.set(ROOT_INO);
    sb.node_ino.set(NODE_INO);
    sb.meta_ino.set(META_INO);
    sb.uuid = options.uuid.unwrap_or_else(|| derived_uuid(options.seed));
    sb.set_label(&options.label);
    sb.cp_payload.set(g.cp_payload);
    let (cold, hot) = (options.all_cold(), options.all_hot());
    sb.extension_count.set(cold.len() as u32);
    sb.hot_ext_count = hot.len() as u8;
    for (slot, extension) in sb.extension_list.iter_mut().zip(cold.iter().chain(&hot)) {
        slot[..extension.len()].copy_from_slice(extension.as_bytes());
    }
    set_devices(&mut sb, options, g, joined);
    sb.version[..VERSION.len()].copy_from_slice(VERSION.as_bytes());
    sb.init_version[..VERSION.len()].copy_from_slice(VERSION.as_bytes());
    // A project quota file is a quota inode, though the other two are not asked for.
    let quota = Features::QUOTA_INO | Features::PRJQUOTA;
    let implied = options.features.intersects(quota).then_some(Features::QUOTA_INO);
    sb.feature.set((options.features | implied.unwrap_or_default()).bits());
    let (encoding, flags) = options.raw_encoding();
    sb.s_encoding.set(encoding);
    sb.s_encoding_flags.set(flags);
    for initial in initial_inodes(options.features, 0, 0) {
        if let What::Quota(kind) = initial.what {
            sb.qf_ino[kind as usize].set(initial.ino);
        }
    }
    sb.seal();
    sb
}

fn set_areas(sb: &mut RawSuperblock, g: &Geometry) {
    let segments = |n: u32| n * crate::ondisk::BLOCKS_PER_SEGMENT;
    sb.segment0_blkaddr.set(g.segment0);
    sb.cp_blkaddr.set(g.segment0);
    let sit = g.segment0 + segments(2);
    let nat = sit + segments(g.sit);
    sb.sit_blkaddr.set(sit);
    sb.nat_blkaddr.set(nat);
    sb.ssa_blkaddr.set(nat + segments(g.nat));
    sb.main_blkaddr.set(g.main_blkaddr);
}

/// Devices are whole zones, so their segments add up to the volume's, as the kernel requires.
fn set_devices(sb: &mut RawSuperblock, options: &MkfsOptions, g: &Geometry, joined: &[u64]) {
    let before_segment0 = std::iter::once(u64::from(g.segment0)).chain(std::iter::repeat(0));
    let devices = joined.iter().zip(before_segment0).zip(&options.devices);
    for (raw, ((blocks, before), name)) in sb.devs.iter_mut().zip(devices) {
        raw.path[..name.len()].copy_from_slice(name.as_bytes());
        let segments = blocks.saturating_sub(before) / u64::from(BLOCKS_PER_SEGMENT);
        raw.total_segments.set(u32::try_from(segments).unwrap_or(u32::MAX));
    }
}

/// A version 4 UUID that is a function of the seed.
fn derived_uuid(seed: u64) -> [u8; 16] {
    let halves = [1, 2].map(|half| splitmix64(seed ^ half).to_be_bytes()).concat();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&halves);
    uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes()
}
