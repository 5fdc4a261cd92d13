//! Every structure, one field wrong at a time: the check reports it. And any bit wrong anywhere:
//! whatever the check reports, it does not panic or hang.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use drive::BLOCK_SIZE;
use f2fs::check::{CheckOptions, check};
use f2fs::ondisk::checkpoint::{Checkpoint, RawCheckpoint};
use f2fs::ondisk::dentry::Dentries;
use f2fs::ondisk::hash::dentry_hash;
use f2fs::ondisk::inode::RawInodeBlock;
use f2fs::ondisk::nat::{self, NatEntry, RawNatBlock};
use f2fs::ondisk::node::{FOOTER_OFFSET, RawDirectNode};
use f2fs::ondisk::sit::{self, LogType};
use f2fs::ondisk::summary::{RawSummaryBlock, unpack_compact};
use f2fs::ondisk::superblock::Superblock;
use f2fs::ondisk::{MAGIC, Nid, crc32};
use f2fs::{F2fs, MountOptions};
use vfs::{Creator, FileSystem};

use crate::judge::{Scratch, assert_stock_mkfs, open_image, tool};

const INLINE_NAME: &str = "small";
const LARGE_NAME: &str = "large";

/// A small volume of f2fs-tools, its parts' addresses, and its bytes.
struct Specimen {
    path: PathBuf,
    file: File,
    sb: Superblock,
    cp: Checkpoint,
    pack: u32,
    root: u32,
    dentries: u32,
    small: u32,
    large: u32,
    direct: u32,
    indirect: u32,
    nat_block: u32,
    sit_block: u32,
    large_ino: Nid,
}

type Bytes = [u8; BLOCK_SIZE];

fn read(file: &File, addr: u32) -> Bytes {
    let mut bytes = [0; BLOCK_SIZE];
    file.read_exact_at(&mut bytes, u64::from(addr) * 4096).expect("a block");
    bytes
}

impl Specimen {
    fn new(scratch: &Scratch) -> Self {
        let path = scratch.image("specimen", 128 << 20);
        assert_stock_mkfs(&path, &["-r"]);
        let tree = scratch.dir().join("tree");
        fs::create_dir_all(tree.join("dir/sub")).expect("directories");
        fs::write(tree.join(INLINE_NAME), b"inline").expect("a file");
        fs::write(tree.join(LARGE_NAME), vec![7; 13 << 20]).expect("a file");
        std::os::unix::fs::symlink("dir/sub", tree.join("link")).expect("a link");
        let text = |p: &Path| p.to_str().expect("a plain path").to_owned();
        let out = tool("sload.f2fs", &["-f", &text(&tree), &text(&path)]);
        assert!(out.status.success());
        let file = File::options().read(true).write(true).open(&path).expect("the image");
        Self::locate(path, file)
    }

    fn locate(path: PathBuf, file: File) -> Self {
        let block = |addr| Ok(drive::Block::new(read(&file, addr)));
        let (sb, _) = Superblock::select(block).expect("a superblock");
        let selected = Checkpoint::select(&sb, block).expect("a checkpoint");
        let (cp, pack) = (selected.checkpoint, sb.cp_pack(selected.pack));
        let journal = data_summary(&file, &cp, pack, LogType::HotData);
        let address = |nid: Nid| -> u32 {
            let from_table = || {
                let at = nat::block_addr(&sb, &cp.nat_bitmap, nat::block_index(nid));
                RawNatBlock::of(&read(&file, at)).entry(nid)
            };
            let NatEntry { addr, .. } = journal.nat_journal().get(nid).unwrap_or_else(from_table);
            addr
        };
        let root = address(3);
        let dentries = RawInodeBlock::of(&read(&file, root)).i.addr[0].get();
        let bytes = read(&file, dentries);
        let ino = |name: &str| {
            let hash = dentry_hash(name.as_bytes());
            let found =
                Dentries::block(&bytes, dentries).find(hash, |other| other == name.as_bytes());
            found.expect("sound entries").expect("the entry").ino
        };
        let (small, large_ino) = (address(ino(INLINE_NAME)), ino(LARGE_NAME));
        let large = address(large_ino);
        let nids =
            RawInodeBlock::of(&read(&file, large)).i.nid.map(zerocopy::little_endian::U32::get);
        let (direct, indirect) = (address(nids[0]), address(nids[2]));
        let nat_block = nat::block_addr(&sb, &cp.nat_bitmap, 0);
        let sit_block = sit::block_addr(&sb, &cp.sit_bitmap, 0);
        Self {
            path,
            file,
            sb,
            cp,
            pack,
            root,
            dentries,
            small,
            large,
            direct,
            indirect,
            nat_block,
            sit_block,
            large_ino,
        }
    }

    /// What the check reports with `bytes` at `offset` of block `addr`; the block is restored.
    fn with(&self, addr: u32, change: impl FnOnce(&mut Bytes)) -> Result<(), String> {
        let before = read(&self.file, addr);
        let mut after = before;
        change(&mut after);
        assert!(after != before, "the change changes nothing");
        let at = u64::from(addr) * 4096;
        self.file.write_all_at(&after, at).expect("a write");
        let verdict = self.verdict();
        self.file.write_all_at(&before, at).expect("a write");
        verdict
    }

    /// `Err` with what is wrong.
    fn verdict(&self) -> Result<(), String> {
        let options = CheckOptions { max_findings: 20 };
        let report = check(&open_image(&self.path), &options).map_err(|e| e.to_string())?;
        let lines: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        if lines.is_empty() { Ok(()) } else { Err(lines.join("; ")) }
    }

    fn assert_found(&self, what: &str, addr: u32, change: impl FnOnce(&mut Bytes)) {
        assert!(self.with(addr, change).is_err(), "{what}: not found");
    }
}

fn data_summary(file: &File, cp: &Checkpoint, pack: u32, log: LogType) -> Box<RawSummaryBlock> {
    use f2fs::ondisk::checkpoint::CpFlags;
    if cp.flags.contains(CpFlags::COMPACT_SUM) {
        let counts = [0, 1, 2].map(|i| usize::from(cp.cursegs[i].blkoff));
        let block = |i| Ok(drive::Block::new(read(file, pack + cp.start_sum + i)));
        let [hot, warm, cold] = unpack_compact(counts, block).expect("summaries");
        return match log {
            LogType::HotData => hot,
            LogType::WarmData => warm,
            _ => cold,
        };
    }
    let at = pack + cp.summary_block(log).expect("a summary");
    Box::new(RawSummaryBlock::of(&read(file, at)).clone())
}

fn put32(bytes: &mut Bytes, offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

fn add32(bytes: &mut Bytes, offset: usize, delta: u32) {
    let old = u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"));
    put32(bytes, offset, old.wrapping_add(delta));
}

#[test]
fn every_field_of_the_superblock() {
    let scratch = Scratch::new();
    let s = Specimen::new(&scratch);
    assert_eq!(s.verdict(), Ok(()));
    // Geometry, but not names, UUID and versions; offsets of section 2 of the format.
    let fields = [0, 8, 0xc, 0x10, 0x14, 0x18, 0x1c, 0x24, 0x2c, 0x30, 0x34, 0x38, 0x3c, 0x40]
        .into_iter()
        .chain([0x44, 0x48, 0x4c, 0x50, 0x54, 0x58, 0x5c, 0x60, 0x64, 0x68, 0x47c, 0x680, 0x884]);
    for field in fields {
        for value in [0xffff_ffff, 0x7fff_fff1] {
            let change = |b: &mut Bytes| put32(b, 1024 + field, value);
            s.assert_found(&format!("first copy {field:#x}"), 0, change);
            s.assert_found(&format!("second copy {field:#x}"), 1, change);
        }
    }
    // Both copies wrong in the same way: not a volume.
    let second = read(&s.file, 1);
    let mut wrong = second;
    add32(&mut wrong, 1024 + 0x5c, 512);
    s.file.write_all_at(&wrong, 4096).unwrap();
    s.assert_found("both", 0, |b| add32(b, 1024 + 0x5c, 512));
    s.file.write_all_at(&second, 4096).unwrap();
    assert_eq!(s.verdict(), Ok(()));
}

#[test]
fn every_field_of_the_checkpoint() {
    let scratch = Scratch::new();
    let s = Specimen::new(&scratch);
    let tail = s.pack + s.cp.pack_total - 1;
    let header = read(&s.file, s.pack);
    // The checksum covers every byte: without a new one, the other pack or none is taken.
    let other = s.sb.cp_pack(0) + s.sb.cp_pack(1) - s.pack;
    let zero = [0; BLOCK_SIZE];
    let kept = read(&s.file, other);
    s.file.write_all_at(&zero, u64::from(other) * 4096).unwrap();
    for at in [0, 8, 0x18, 0x84, 0xa4, 0xc0, 0xffc] {
        s.assert_found(&format!("checksum over {at:#x}"), s.pack, |b| b[at] ^= 1);
        s.assert_found(&format!("checksum over {at:#x} of the tail"), tail, |b| b[at] ^= 1);
    }
    let fields = [
        (0x08, 1 << 30),     // user_block_count
        (0x10, 1),           // valid_block_count
        (0x18, 1 << 30),     // rsvd_segment_count
        (0x1c, 1 << 30),     // overprov_segment_count
        (0x20, 1),           // free_segment_count
        (0x24, 1),           // cur_node_segno
        (0x54, 7777),        // cur_data_segno
        (0x44, 600),         // cur_node_blkoff
        (0x88, 1000),        // cp_pack_total_block_count
        (0x8c, 600),         // cp_pack_start_sum
        (0x90, 1),           // valid_node_count
        (0x94, 0xffff_ffff), // valid_inode_count
        (0x9c, 64),          // sit_ver_bitmap_bytesize
        (0xa0, 64),          // nat_ver_bitmap_bytesize
        (0xb0, 2),           // alloc_type
    ];
    assert_eq!(size_of::<RawCheckpoint>(), 0xc0);
    for (field, delta) in fields {
        let mut wrong = header;
        add32(&mut wrong, field, delta);
        let crc = crc32(MAGIC, &wrong[..4092]);
        put32(&mut wrong, 4092, crc);
        let before = read(&s.file, tail);
        s.file.write_all_at(&wrong, u64::from(tail) * 4096).unwrap();
        s.assert_found(&format!("checkpoint {field:#x}"), s.pack, |b| *b = wrong);
        s.file.write_all_at(&before, u64::from(tail) * 4096).unwrap();
    }
    s.file.write_all_at(&kept, u64::from(other) * 4096).unwrap();
    assert_eq!(s.verdict(), Ok(()));
}

/// After a cut, a kernel leaves a checkpoint that says it has nat_bits, and those of its last
/// unmount. `fsck.f2fs` rewrites them and finds no fault.
#[test]
fn nat_bits_of_an_older_checkpoint_are_no_fault() {
    use f2fs::ondisk::checkpoint::CpFlags;
    let scratch = Scratch::new();
    let unmounted = Specimen::new(&scratch);
    let says = |s: &Specimen, field: usize, change: u32| {
        let tail = s.pack + s.cp.pack_total - 1;
        let mut header = read(&s.file, s.pack);
        let value = u32::from_le_bytes(header[field..field + 4].try_into().unwrap());
        put32(&mut header, field, value ^ change);
        let crc = crc32(MAGIC, &header[..4092]);
        put32(&mut header, 4092, crc);
        let before = read(&s.file, tail);
        s.file.write_all_at(&header, u64::from(tail) * 4096).unwrap();
        let said = s.with(s.pack, |block| *block = header);
        s.file.write_all_at(&before, u64::from(tail) * 4096).unwrap();
        said
    };
    assert!(unmounted.cp.flags.contains(CpFlags::NAT_BITS | CpFlags::UMOUNT));
    // elapsed_time makes another checkpoint of it.
    let said = says(&unmounted, 0xa8, 1).expect_err("other nat_bits than its own");
    assert!(said.contains("nat_bits: found another checkpoint's"), "{said}");
    let fs = F2fs::mount(open_image(&unmounted.path), &MountOptions::default()).unwrap();
    fs.create(fs.root(), b"new", 0o644, Creator::default()).unwrap();
    fs.sync().unwrap();
    drop(fs);
    let cut = Specimen::locate(unmounted.path, unmounted.file);
    assert!(!cut.cp.flags.intersects(CpFlags::NAT_BITS | CpFlags::UMOUNT));
    assert_eq!(says(&cut, 0x84, CpFlags::NAT_BITS.bits()), Ok(()));
}

#[test]
fn tables_and_summaries() {
    let scratch = Scratch::new();
    let s = Specimen::new(&scratch);
    let nat = |nid: u32, field: usize| nid as usize * 9 + field;
    s.assert_found("NAT 0 in use", s.nat_block, |b| put32(b, nat(0, 5), 9));
    s.assert_found("NAT 1 elsewhere", s.nat_block, |b| put32(b, nat(1, 5), 9));
    s.assert_found("NAT without a file", s.nat_block, |b| put32(b, nat(300, 5), 5000));
    let ino = s.large_ino;
    let in_table = RawNatBlock::of(&read(&s.file, s.nat_block)).entry(ino).addr == s.large;
    if in_table {
        s.assert_found("NAT version", s.nat_block, |b| b[nat(ino, 0)] ^= 1);
        s.assert_found("NAT ino", s.nat_block, |b| put32(b, nat(ino, 1), 3));
        s.assert_found("NAT free", s.nat_block, |b| put32(b, nat(ino, 5), 0));
        s.assert_found("NAT elsewhere", s.nat_block, |b| put32(b, nat(ino, 5), s.root));
        s.assert_found("NAT beyond", s.nat_block, |b| put32(b, nat(ino, 5), u32::MAX - 9));
    }
    // A segment of data that no log holds and no journal overrides.
    let addr = RawInodeBlock::of(&read(&s.file, s.large)).i.addr[0].get();
    let (segno, offset) = s.sb.locate(addr).unwrap();
    assert!(s.cp.cursegs.iter().all(|log| log.segno != segno), "not an open segment");
    let block = sit::block_addr(&s.sb, &s.cp.sit_bitmap, sit::block_index(segno));
    let entry = segno as usize % sit::ENTRIES_PER_BLOCK * 74;
    s.assert_found("SIT count", block, |b| b[entry] ^= 1);
    s.assert_found("SIT type", block, |b| b[entry + 1] |= 0xfc);
    s.assert_found("SIT type node", block, |b| b[entry + 1] = b[entry + 1] & 3 | 4 << 2);
    s.assert_found("SIT bit", block, |b| b[entry + 2 + offset / 8] ^= 0x80 >> (offset % 8));
    s.assert_found("SIT block", s.sit_block, |b| b.fill(0xff));
    let ssa = s.sb.ssa_block(segno);
    for (what, at) in [("nid", 0), ("version", 4), ("ofs_in_node", 5)] {
        s.assert_found(&format!("summary {what}"), ssa, |b| b[offset * 7 + at] ^= 1);
    }
    s.assert_found("summary type", ssa, |b| b[4091] ^= 1);
    let sums = s.pack + s.cp.start_sum;
    s.assert_found("NAT journal count", sums, |b| b[..2].copy_from_slice(&[39, 0]));
    let cold = s.cp.summary_block(LogType::ColdData).filter(|_| s.cp.pack_total > 6);
    let sit_journal = cold.map_or((sums, 507), |block| (s.pack + block, 3584));
    s.assert_found("SIT journal count", sit_journal.0, |b| b[sit_journal.1] = 7);
    let node_sum = s.pack + s.cp.summary_block(LogType::WarmNode).unwrap();
    s.assert_found("node summary", node_sum, |b| b[0] ^= 1);
    s.assert_found("node summary type", node_sum, |b| b[4091] ^= 1);
}

#[test]
fn nodes() {
    let scratch = Scratch::new();
    let s = Specimen::new(&scratch);
    for (what, addr) in
        [("inode", s.large), ("root", s.root), ("direct", s.direct), ("indirect", s.indirect)]
    {
        for (field, at) in [("nid", 0), ("ino", 4), ("offset", 8)] {
            let change = |b: &mut Bytes| b[FOOTER_OFFSET + at] ^= 8;
            s.assert_found(&format!("{what} footer {field}"), addr, change);
        }
    }
    let some = RawDirectNode::of(&read(&s.file, s.direct)).addr[0].get();
    for (what, value) in
        [("beyond", 0xffff_fff0), ("reserved", u32::MAX), ("hole", 0), ("shared", some + 1)]
    {
        s.assert_found(&format!("address {what}"), s.direct, |b| put32(b, 0, value));
        if what != "reserved" {
            s.assert_found(&format!("child {what}"), s.indirect, |b| put32(b, 0, value));
        }
    }
    s.assert_found("a node its own child", s.indirect, |b| {
        let own = b[FOOTER_OFFSET..FOOTER_OFFSET + 4].to_vec();
        b[..4].copy_from_slice(&own);
    });
}

#[test]
fn inodes() {
    let scratch = Scratch::new();
    let s = Specimen::new(&scratch);
    for (field, at, value) in [
        ("i_mode none", 0, 0),
        ("i_mode other", 0, 0x41ed),
        ("i_links 0", 0xc, 0),
        ("i_links 2", 0xc, 2),
        ("i_blocks 0", 0x18, 0),
        ("i_blocks", 0x18, 77),
        ("i_xattr_nid", 0x4c, 1),
        ("i_xattr_nid shared", 0x4c, 3),
        ("i_namelen", 0x58, 256),
        ("i_ext outside", 0x160, 5),
        ("i_ext.len", 0x164, 4000),
        ("i_addr", 0x168, 1),
        ("i_nid", 0xfd4, u32::MAX),
        ("i_nid none", 0xfd4, 0),
    ] {
        if field == "i_ext outside" {
            s.assert_found(field, s.large, |b| {
                put32(b, at, value);
                put32(b, at + 4, 1);
            });
        } else {
            s.assert_found(field, s.large, |b| put32(b, at, value));
        }
    }
    for bit in [2, 4, 0x20] {
        s.assert_found(&format!("i_inline {bit:#x}"), s.large, |b| b[3] |= bit);
        s.assert_found(&format!("i_inline {bit:#x} of a directory"), s.root, |b| b[3] |= bit);
    }
    s.assert_found("i_flags casefold", s.root, |b| b[0x53] |= 0x40);
    s.assert_found("i_current_depth", s.root, |b| put32(b, 0x48, 99));
    s.assert_found("i_current_depth 0", s.root, |b| put32(b, 0x48, 0));
    s.assert_found("i_size of a directory", s.root, |b| put32(b, 0x10, 10));
    s.assert_found("i_links of a directory", s.root, |b| add32(b, 0xc, 1));
    s.assert_found("inline size", s.small, |b| put32(b, 0x10, 4000));
    s.assert_found("inline reserved slot", s.small, |b| put32(b, 0x168, 1));
    s.assert_found("inline data that is not there", s.small, |b| b[3] &= !8);
}

#[test]
fn directory_entries() {
    let scratch = Scratch::new();
    let s = Specimen::new(&scratch);
    let entry = |slot: usize| 30 + slot * 11;
    for slot in 0..3 {
        s.assert_found(&format!("bitmap {slot}"), s.dentries, |b| b[0] ^= 1 << slot);
        s.assert_found(&format!("hash {slot}"), s.dentries, |b| b[entry(slot)] ^= 1);
        s.assert_found(&format!("ino {slot}"), s.dentries, |b| b[entry(slot) + 4] ^= 0x40);
        s.assert_found(&format!("free ino {slot}"), s.dentries, |b| put32(b, entry(slot) + 4, 400));
        s.assert_found(&format!("far ino {slot}"), s.dentries, |b| {
            put32(b, entry(slot) + 4, 1 << 30);
        });
        s.assert_found(&format!("no name {slot}"), s.dentries, |b| b[entry(slot) + 8] = 0);
        s.assert_found(&format!("long name {slot}"), s.dentries, |b| b[entry(slot) + 9] = 2);
        s.assert_found(&format!("type {slot}"), s.dentries, |b| b[entry(slot) + 10] = 9);
        s.assert_found(&format!("other type {slot}"), s.dentries, |b| b[entry(slot) + 10] = 6);
        let name = 30 + 214 * 11 + slot * 8;
        s.assert_found(&format!("name {slot}"), s.dentries, |b| b[name] = b'/');
    }
    s.assert_found("more entries", s.dentries, |b| b[26] |= 0x20);
}

/// Any bit of the metadata: no panic, and it ends.
#[test]
fn single_bits() {
    let scratch = Scratch::new();
    let s = Specimen::new(&scratch);
    let cp = s.pack + s.cp.start_sum;
    let blocks = [0, s.pack, cp, s.nat_block, s.sit_block, s.root, s.dentries, s.small, s.large];
    let blocks: Vec<u32> = blocks.into_iter().chain([s.direct, s.indirect]).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..220 {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let (byte, bit) = ((state >> 33) as usize % BLOCK_SIZE, (state >> 60) as u8 & 7);
        let _ = s.with(blocks[round % blocks.len()], |b| b[byte] ^= 1 << bit);
    }
    assert_eq!(s.verdict(), Ok(()));
}
