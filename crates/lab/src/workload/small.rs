//! Small workloads, each a habit of programs that need their data to last. The `every_cut` explorer
//! cuts them at every point there is.

use vfs::{FileKind, InodeFlags, Timespec};

use super::Workload;
use super::content::Rng;
use crate::workload::recorder::{Node, Recorder};
use crate::{Error, Result};

type Calls = fn(&Recorder, &mut Rng) -> Result<()>;

/// Files of the cleaning workload, and the bytes of each.
const GC_ROUNDS: usize = 20;
const GC_CHUNK: usize = 256 << 10;

/// One small workload.
#[derive(Clone, Copy)]
pub struct Small {
    name: &'static str,
    prepare: Calls,
    run: Calls,
    footprint: u64,
    mount_options: &'static str,
}

const fn small(name: &'static str, prepare: Calls, run: Calls) -> Small {
    Small { name, prepare, run, footprint: 16 << 20, mount_options: "" }
}

/// One that makes the cleaner work: on the smallest drive, and as a log on conventional ones too,
/// which would otherwise fill holes (SSR) before they clean.
const fn cleaning(name: &'static str, prepare: Calls, run: Calls) -> Small {
    Small { footprint: 0, mount_options: ",mode=lfs", ..small(name, prepare, run) }
}

/// All of them.
pub const ALL: [Small; 25] = [
    small("create-fsync", nothing, create_fsync),
    small("overwrite-fsync", one_file, overwrite_fsync),
    small("overwrite-sync", one_file, overwrite_sync),
    small("append", one_file, append),
    small("rename-fsync-dir", one_file, rename_fsync_dir),
    small("replace-by-rename", one_file, replace_by_rename),
    small("link", one_file, link),
    small("truncate-up", one_file, truncate_up),
    small("truncate-down", one_file, truncate_down),
    small("truncate-and-grow", big_file, truncate_and_grow),
    small("unlink-open", one_file, unlink_open),
    small("two-files-one-dir", nothing, two_files_one_dir),
    small("multi-node", big_file, multi_node),
    small("inline-to-block", inline_file, inline_to_block),
    small("xattr", one_file, xattr),
    small("xattr-shrink", one_file, xattr_shrink),
    small("symlink-dir", nothing, symlink_dir),
    small("meta", one_file, meta),
    small("times", one_file, times),
    small("flags", one_file, flags),
    small("xattr-list", one_file, xattr_list),
    small("many-links", one_file, many_links),
    small("devices", nothing, devices),
    cleaning("gc-between", nearly_dead, gc_between),
    Small { footprint: 0, ..small("gc-adaptive", nearly_dead, gc_adaptive) },
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|s| s.name)
}

/// The one called `name`.
pub fn named(name: &str) -> Option<Small> {
    ALL.into_iter().find(|s| s.name == name)
}

impl Workload for Small {
    fn name(&self) -> &str {
        self.name
    }

    fn footprint(&self) -> u64 {
        self.footprint
    }

    fn mount_options(&self) -> &str {
        self.mount_options
    }

    fn run(&self, fs: &Recorder, seed: u64, started: &mut dyn FnMut()) -> Result<()> {
        let mut rng = Rng::new(seed, 4);
        (self.prepare)(fs, &mut rng)?;
        fs.sync()?;
        started();
        (self.run)(fs, &mut rng)
    }
}

fn file(fs: &Recorder, rng: &mut Rng, name: &[u8], len: usize) -> Result<Node> {
    let node = fs.create(fs.root(), name, 0o644)?;
    fs.write(node, 0, &rng.bytes(len))?;
    Ok(node)
}

fn open(fs: &Recorder, name: &[u8]) -> Result<Node> {
    fs.lookup(fs.root(), name)
}

fn nothing(_: &Recorder, _: &mut Rng) -> Result<()> {
    Ok(())
}

fn one_file(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    file(fs, rng, b"a", 20_000).map(drop)
}

fn inline_file(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    file(fs, rng, b"a", 1_000).map(drop)
}

/// Beyond the inode's 923 addresses and into the second direct node.
fn big_file(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = fs.create(fs.root(), b"a", 0o644)?;
    for at in (0..8_u64 << 20).step_by(256 << 10) {
        fs.write(node, at, &rng.bytes(256 << 10))?;
    }
    Ok(())
}

fn create_fsync(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    for name in [b"a", b"b", b"c"] {
        let node = file(fs, rng, name, 6_000)?;
        fs.fsync(node)?;
    }
    Ok(())
}

fn overwrite_fsync(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    for _ in 0..6 {
        let block = rng.below(4);
        fs.write(node, block * 4096, &rng.bytes(4096))?;
        fs.fsync(node)?;
    }
    Ok(())
}

/// A sync finds nothing of an overwritten file's metadata to commit: another fsync has committed
/// it.
fn overwrite_sync(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    let other = file(fs, rng, b"b", 3_000)?;
    for perm in [0o600, 0o640] {
        fs.write(node, 0, &rng.bytes(8192))?;
        fs.chmod(node, perm)?;
        fs.fsync(other)?;
        fs.sync()?;
        fs.write(other, fs.size(other), &rng.bytes(3_000))?;
        fs.fsync(other)?;
    }
    Ok(())
}

fn append(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    for _ in 0..6 {
        fs.write(node, fs.size(node), &rng.bytes(3_000))?;
        fs.fsync(node)?;
    }
    Ok(())
}

fn rename_fsync_dir(fs: &Recorder, _: &mut Rng) -> Result<()> {
    let dir = fs.mkdir(fs.root(), b"d", 0o755)?;
    fs.rename(fs.root(), b"a", dir, b"b")?;
    fs.fsync(dir)?;
    fs.rename(dir, b"b", fs.root(), b"c")?;
    fs.fsync(fs.root())
}

fn replace_by_rename(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    for _ in 0..3 {
        let node = file(fs, rng, b"a.new", 9_000)?;
        fs.fsync(node)?;
        fs.rename(fs.root(), b"a.new", fs.root(), b"a")?;
        fs.fsync(fs.root())?;
    }
    Ok(())
}

fn link(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    fs.link(node, fs.root(), b"b")?;
    fs.fsync(node)?;
    fs.write(node, 0, &rng.bytes(4096))?;
    fs.unlink(fs.root(), b"a")?;
    fs.fsync(node)
}

fn truncate_up(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    fs.truncate(node, 100_000)?;
    fs.fsync(node)?;
    fs.write(node, 90_000, &rng.bytes(500))?;
    fs.fsync(node)
}

fn truncate_down(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    fs.truncate(node, 5_000)?;
    fs.fsync(node)?;
    fs.truncate(node, 0)?;
    fs.fsync(node)?;
    fs.write(node, 0, &rng.bytes(10_000))?;
    fs.fsync(node)
}

/// What was cut off must not come back in the hole that takes its place: recovery must ignore the
/// nodes that held it.
fn truncate_and_grow(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    fs.truncate(node, 5_000)?;
    fs.write(node, 2_040 << 12, &rng.bytes(6_000))?;
    fs.fsync(node)?;
    fs.truncate(node, 0)?;
    fs.truncate(node, 8 << 20)?;
    fs.fsync(node)
}

fn unlink_open(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    fs.open(node)?;
    fs.unlink(fs.root(), b"a")?;
    fs.fsync(fs.root())?;
    fs.write(node, 0, &rng.bytes(8_192))?;
    fs.fsync(node)?;
    fs.close(node);
    fs.sync()
}

fn two_files_one_dir(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let dir = fs.mkdir(fs.root(), b"d", 0o755)?;
    let (a, b) = (fs.create(dir, b"a", 0o644)?, fs.create(dir, b"b", 0o644)?);
    for _ in 0..3 {
        fs.write(a, fs.size(a), &rng.bytes(4_096))?;
        fs.write(b, fs.size(b), &rng.bytes(2_000))?;
        fs.fsync(a)?;
        fs.fsync(b)?;
    }
    Ok(())
}

fn multi_node(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    for _ in 0..3 {
        for index in [1, 1_000, 2_000] {
            fs.write(node, index * 4096, &rng.bytes(4096))?;
        }
        fs.fsync(node)?;
    }
    Ok(())
}

fn inline_to_block(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    fs.write(node, 200, &rng.bytes(100))?;
    fs.fsync(node)?;
    fs.write(node, 3_000, &rng.bytes(5_000))?;
    fs.fsync(node)
}

fn xattr(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    for len in [20, 2_000] {
        fs.set_xattr(node, b"user.note", &rng.bytes(len))?;
        fs.fsync(node)?;
    }
    fs.set_xattr(node, b"user.more", b"1")?;
    fs.write(node, 0, &rng.bytes(4096))?;
    fs.fsync(node)
}

/// A value that was too large for the inode gives up its node again.
fn xattr_shrink(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    for len in [3_000, 10, 2_500, 20] {
        fs.set_xattr(node, b"user.note", &rng.bytes(len))?;
        fs.fsync(node)?;
        fs.write(node, 0, &rng.bytes(4096))?;
        fs.fsync(node)?;
    }
    Ok(())
}

fn symlink_dir(fs: &Recorder, _: &mut Rng) -> Result<()> {
    let dir = fs.mkdir(fs.root(), b"d", 0o755)?;
    fs.symlink(dir, b"here", b"../elsewhere")?;
    fs.fsync(dir)?;
    fs.symlink(fs.root(), b"there", &[b'x'; 300])?;
    fs.sync()
}

fn meta(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    let day = |secs| Timespec { secs, nanos: 123_456_789 };
    fs.set_meta(node, 0o4750, (1000, 100), day(1_000_000_000))?;
    fs.fsync(node)?;
    fs.write(node, 0, &rng.bytes(100))?;
    fs.set_meta(node, 0o600, (0, 0), day(-5))?;
    fs.fsync(node)
}

fn times(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    let time = |secs| Some(Timespec { secs, nanos: 987_654_321 });
    fs.utimens(node, time(-100), None)?;
    fs.fsync(node)?;
    fs.utimens(node, time(2_000_000_000), time(1_900_000_000))?;
    fs.fsync(node)?;
    fs.write(node, 4096, &rng.bytes(4096))?;
    fs.fsync(node)?;
    fs.utimens(node, None, time(3))?;
    fs.chmod(node, 0o400)?;
    fs.fsync(node)
}

fn flags(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    fs.chattr(node, InodeFlags::NODUMP | InodeFlags::NOATIME)?;
    fs.fsync(node)?;
    fs.write(node, 0, &rng.bytes(4096))?;
    fs.chattr(node, InodeFlags::APPEND)?;
    fs.fsync(node)?;
    fs.chattr(node, InodeFlags::empty())?;
    let new = file(fs, rng, b"b", 5_000)?;
    fs.chattr(new, InodeFlags::SYNC)?;
    fs.write(new, 3_000, &rng.bytes(5_000))?;
    fs.fsync(new)?;
    fs.fsync(node)
}

/// Attributes that come and go, in the inode and in a node of their own.
fn xattr_list(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let node = open(fs, b"a")?;
    for name in [b"user.one", b"user.two"] {
        fs.set_xattr(node, name, &rng.bytes(30))?;
    }
    fs.fsync(node)?;
    fs.remove_xattr(node, b"user.one")?;
    fs.fsync(node)?;
    fs.set_xattr(node, b"trusted.three", &rng.bytes(2_000))?;
    fs.set_xattr(node, b"user.one", &rng.bytes(40))?;
    fs.fsync(node)?;
    fs.remove_xattr(node, b"trusted.three")?;
    fs.remove_xattr(node, b"user.two")?;
    fs.fsync(node)?;
    fs.remove_xattr(node, b"user.one")?;
    fs.fsync(node)
}

/// Names of one file in two directories, that come, go, move, and replace each other.
fn many_links(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    let (root, node) = (fs.root(), open(fs, b"a")?);
    let dir = fs.mkdir(root, b"d", 0o755)?;
    fs.link(node, dir, b"one")?;
    fs.link(node, root, b"two")?;
    fs.fsync(node)?;
    let other = file(fs, rng, b"other", 3_000)?;
    fs.fsync(other)?;
    fs.rename(root, b"other", dir, b"one")?;
    fs.unlink(root, b"a")?;
    fs.fsync(other)?;
    fs.fsync(node)?;
    fs.link(other, root, b"a")?;
    fs.unlink(dir, b"one")?;
    fs.write(other, 0, &rng.bytes(4096))?;
    fs.fsync(other)?;
    fs.sync()
}

fn devices(fs: &Recorder, _: &mut Rng) -> Result<()> {
    let root = fs.root();
    fs.special(root, b"null", FileKind::CharDevice, 0o666, 0x103)?;
    fs.special(root, b"fifo", FileKind::Fifo, 0o600, 0)?;
    fs.fsync(root)?;
    // A number that the old form of 16 bits has no room for.
    let far = fs.special(root, b"far", FileKind::BlockDevice, 0o640, 0x1234_5678)?;
    fs.chown(far, (5, 6))?;
    fs.rename(root, b"null", root, b"zero")?;
    fs.unlink(root, b"fifo")?;
    fs.fsync(root)?;
    fs.special(root, b"socket", FileKind::Socket, 0o700, 0)?;
    fs.sync()
}

/// Large files cut short, until more has been written than the drive holds: no section is empty, so
/// getting a free one takes cleaning, and little is left to compare.
fn nearly_dead(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    const LARGE: usize = 1 << 20;
    const LEFT: usize = 8_000;
    // The cleaner's reserve is smaller than the users' space.
    let blocks = 2 * fs.fs().statfs().map_err(Error::at("statfs", b""))?.blocks;
    for made in 0..blocks * 4096 / LARGE as u64 {
        let node = file(fs, rng, format!("f{made}").as_bytes(), LEFT)?;
        fs.write(node, LEFT as u64, &[0; LARGE - LEFT])?;
        fs.sync()?;
        fs.truncate(node, LEFT as u64)?;
    }
    Ok(())
}

/// One file after the other, of which little or nothing is kept, until the cleaner has had to make
/// room. A section of which nothing is kept would need no cleaning. New files, because an overwrite
/// on a conventional drive takes no space.
fn gc_between(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    const LEFT: u64 = 8_000;
    let mut before = None;
    for round in 0..GC_ROUNDS {
        let name = format!("hot{round}");
        let node = file(fs, rng, name.as_bytes(), GC_CHUNK)?;
        fs.fsync(node)?;
        match before.replace((node, name)) {
            Some((_, name)) if round % 3 == 0 => fs.unlink(fs.root(), name.as_bytes())?,
            Some((node, _)) => fs.truncate(node, LEFT)?,
            None => {}
        }
    }
    Ok(())
}

/// Cleaning on request, where logs go on in used segments (SSR) and seldom have to clean: moved
/// blocks land between blocks that are still valid. Each file fills a segment, so that a log leaves
/// one behind, and is cut short, so that there is little in it to move.
fn gc_adaptive(fs: &Recorder, rng: &mut Rng) -> Result<()> {
    const LARGE: usize = 2 << 20;
    const LEFT: usize = 30_000;
    for round in 0..GC_ROUNDS / 2 {
        let node = file(fs, rng, format!("hot{round}").as_bytes(), LEFT)?;
        fs.write(node, LEFT as u64, &[0; LARGE - LEFT])?;
        fs.fsync(node)?;
        fs.truncate(node, LEFT as u64)?;
        fs.clean()?;
        fs.write(node, 8192, &rng.bytes(8192))?;
        fs.fsync(node)?;
        if round > 0 {
            fs.unlink(fs.root(), format!("hot{}", round - 1).as_bytes())?;
        }
    }
    Ok(())
}
