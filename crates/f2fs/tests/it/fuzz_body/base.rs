//! The volumes that cases damage: small, with something of everything in them, in four states.

use std::sync::Arc;

use drive::{BLOCK_SIZE, Drive, ZoneGeometry};
use f2fs::F2fs;
use f2fs::mkfs::{MkfsOptions, format};
use f2fs::ondisk::checkpoint::Checkpoint;
use f2fs::ondisk::node::RawNodeFooter;
use f2fs::ondisk::superblock::{Features, Superblock};
use vfs::{Creator, FileKind, FileSystem, Ino, XattrMode};

use super::memory_drive::{MemoryDrive, Snapshot};

/// How a volume was made and left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Conventional, all optional features, unmounted.
    Clean,
    /// Conventional, all optional features, left with fsyncs to recover and an orphan.
    Crashed,
    /// Conventional, no optional feature, left in the same state: only the format's own checks.
    Plain,
    /// Zoned, left like that.
    Zoned,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Clean, Self::Crashed, Self::Plain, Self::Zoned];

    pub fn is_zoned(self) -> bool {
        self == Self::Zoned
    }

    fn empty(self) -> Snapshot {
        if !self.is_zoned() {
            return Snapshot::new(16 * 1024, None);
        }
        let geometry = ZoneGeometry {
            size: 1024,
            capacity: 768,
            count: 32,
            conventional: 5,
            max_open: None,
            max_active: None,
        };
        Snapshot::new(32 * 1024, Some(geometry))
    }

    fn features(self) -> Features {
        if self == Self::Plain {
            return Features::empty();
        }
        Features::EXTRA_ATTR
            | Features::INODE_CHKSUM
            | Features::INODE_CRTIME
            | Features::SB_CHKSUM
            | Features::FLEXIBLE_INLINE_XATTR
    }
}

/// Blocks of one part of the format, so that damage can be aimed.
pub struct Part {
    pub area: Area,
    pub blocks: Vec<u32>,
}

/// Parts of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    Super,
    Checkpoint,
    Sit,
    Nat,
    Ssa,
    Node,
    Data,
}

/// A volume, and where its parts are.
pub struct Base {
    pub kind: Kind,
    pub snapshot: Snapshot,
    pub sb: Superblock,
    pub checkpoint: Checkpoint,
    pub parts: Vec<Part>,
    /// Nodes that roll-forward would read.
    pub chain: Vec<u32>,
}

impl Base {
    pub fn new(kind: Kind) -> Self {
        let memory = MemoryDrive::on(kind.empty());
        let drive: Arc<dyn Drive> = memory.clone();
        let options = MkfsOptions { features: kind.features(), ..MkfsOptions::default() };
        format(&drive, &options).expect("a new volume");
        let options = "nodiscard".parse().expect("options");
        let fs = F2fs::mount(Arc::clone(&drive), &options).expect("a mount");
        fill(&fs).expect("files");
        fs.sync().expect("a checkpoint");
        if kind == Kind::Clean {
            fs.unmount().expect("an unmount");
        } else {
            leave_work_for_recovery(&fs).expect("fsyncs");
        }
        Self::explore(kind, memory.snapshot())
    }

    fn explore(kind: Kind, snapshot: Snapshot) -> Self {
        let read = |addr: u32| Ok(snapshot.media.read(addr.into()));
        let (sb, _) = Superblock::select(read).expect("a superblock");
        let selected = Checkpoint::select(&sb, read).expect("a checkpoint");
        let checkpoint = selected.checkpoint;
        let areas = [
            Area::Super,
            Area::Checkpoint,
            Area::Sit,
            Area::Nat,
            Area::Ssa,
            Area::Node,
            Area::Data,
        ];
        let mut parts: Vec<Part> =
            areas.into_iter().map(|area| Part { area, blocks: Vec::new() }).collect();
        let mut chain = Vec::new();
        let tables = [sb.sit_blkaddr, sb.sit_blkaddr + sb.sit_blocks(), sb.nat_blkaddr];
        for addr in 0..u32::try_from(snapshot.blocks).expect("a small drive") {
            let block = snapshot.media.read(addr.into());
            // File contents made here are one byte over and over: nothing to damage.
            let uniform = block.iter().all(|byte| *byte == block[0]);
            if uniform && !tables.contains(&addr) {
                continue;
            }
            let area = area_of(&sb, addr, &block);
            parts.iter_mut().filter(|p| p.area == area).for_each(|p| p.blocks.push(addr));
            let version = RawNodeFooter::of(&block).cp_ver.get();
            if area == Area::Node && checkpoint.owns_node(version) {
                chain.push(addr);
            }
        }
        for part in &parts {
            assert!(!part.blocks.is_empty(), "{kind:?} has no {:?}", part.area);
        }
        assert_eq!(chain.is_empty(), kind == Kind::Clean, "fsyncs leave a chain");
        Self { kind, snapshot, sb, checkpoint, parts, chain }
    }

    pub fn part(&self, area: Area) -> &Part {
        self.parts.iter().find(|part| part.area == area).expect("every area has its part")
    }
}

fn area_of(sb: &Superblock, addr: u32, block: &[u8; BLOCK_SIZE]) -> Area {
    match addr {
        a if a < sb.cp_blkaddr => Area::Super,
        a if a < sb.sit_blkaddr => Area::Checkpoint,
        a if a < sb.nat_blkaddr => Area::Sit,
        a if a < sb.ssa_blkaddr => Area::Nat,
        a if a < sb.main_blkaddr => Area::Ssa,
        _ => {
            let footer = RawNodeFooter::of(block);
            let named = sb.is_node_id(footer.nid.get()) && sb.is_node_id(footer.ino.get());
            if named { Area::Node } else { Area::Data }
        }
    }
}

/// Name of the `i`-th entry of the large directory: so long that eight fill a block.
pub fn long_name(i: usize) -> Vec<u8> {
    format!("{i:0200}").into_bytes()
}

fn file(fs: &F2fs, dir: Ino, name: &[u8], writes: &[(u64, usize)]) -> vfs::Result<Ino> {
    let ino = fs.create(dir, name, 0o644, Creator::default())?.ino;
    for &(offset, len) in writes {
        fs.write(ino, offset, &vec![name[0]; len])?;
    }
    Ok(ino)
}

/// Something of everything the format has.
fn fill(fs: &F2fs) -> vfs::Result<()> {
    let (root, nobody) = (fs.root(), Creator::default());
    file(fs, root, b"inline", &[(0, 100)])?;
    file(fs, root, b"blocks", &[(0, 3 * BLOCK_SIZE + 77)])?;
    // More than a segment, so that a log has moved on and its summary is in the summary area.
    file(fs, root, b"filler", &[(0, 700 * BLOCK_SIZE)])?;
    // A block below each of the five node pointers: direct, indirect, double indirect.
    let far = [0, 1_000, 2_500, 5_000, 1_200_000, 2_100_000];
    file(fs, root, b"sparse", &far.map(|block| (block * BLOCK_SIZE as u64, 10)))?;
    let attributes = file(fs, root, b"attributes", &[(0, 5)])?;
    fs.setxattr(attributes, b"user.short", b"value", XattrMode::Set)?;
    fs.setxattr(attributes, b"user.long", &[b'x'; 3000], XattrMode::Set)?;
    fs.symlink(root, b"short-link", b"inline", nobody)?;
    fs.symlink(root, b"long-link", &[b'l'; 4000], nobody)?;
    fs.mknod(root, b"device", FileKind::CharDevice, 0o600, 0x103, nobody)?;
    let small = fs.mkdir(root, b"small", 0o755, nobody)?.ino;
    let inner = fs.mkdir(small, b"inner", 0o755, nobody)?.ino;
    let linked = file(fs, inner, b"linked", &[(0, 5000)])?;
    let large = fs.mkdir(root, b"large", 0o755, nobody)?.ino;
    for i in 0..20 {
        fs.link(linked, large, &long_name(i))?;
    }
    Ok(())
}

/// An orphan in the checkpoint, and behind it fsyncs of every kind roll-forward repeats.
fn leave_work_for_recovery(fs: &F2fs) -> vfs::Result<()> {
    let root = fs.root();
    let orphan = file(fs, root, b"orphan", &[(0, 9000)])?;
    fs.open(orphan)?;
    fs.unlink(root, b"orphan")?;
    fs.sync()?;
    let blocks = fs.lookup(root, b"blocks")?.ino;
    fs.write(blocks, 4096, &[b'o'; 6000])?;
    fs.fsync(blocks, false)?;
    let small = fs.lookup(root, b"small")?.ino;
    let new = file(fs, small, b"new", &[(0, 20_000)])?;
    fs.fsync(new, false)?;
    let inline = file(fs, root, b"new-inline", &[(0, 30)])?;
    fs.setxattr(inline, b"user.long", &[b'y'; 2000], XattrMode::Set)?;
    fs.fsync(inline, false)?;
    let sparse = fs.lookup(root, b"sparse")?.ino;
    fs.write(sparse, 2_500 * BLOCK_SIZE as u64, &[b's'; 4096])?;
    fs.write(sparse, 9_000 * BLOCK_SIZE as u64, &[b's'; 4096])?;
    fs.fsync(sparse, false)
}
