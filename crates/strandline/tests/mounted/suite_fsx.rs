//! fsx, the file system exerciser, on mounted volumes: `FSX_OPERATIONS` operations (1,000,000) of
//! each kind on a tiny and on a large file at once, for every mode of F2FS and of ext4 and kind of
//! drive, and every design of pmfs. OPRW needs a zoned drive. `FSX_SEED` is the seed of the first
//! round.
//!
//! The crate `fsx` never unmaps what it mapped: a process gets slower with every operation, and at
//! about 65,000 mappings it may have no more. So the operations come in rounds, each with its own
//! process and seed, on the same two files.
//!
//! The crate `fsx` knows no `FALLOC_FL_ZERO_RANGE`, and FUSE lets neither `COLLAPSE_RANGE` nor
//! `INSERT_RANGE` through. `ranges` makes up for the first; the model tests put the others to the
//! engine itself.

use std::fs::{File, create_dir_all, read, write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rustix::fs::{Advice, FallocateFlags};

use crate::mounting::programs::{installed, said};
use crate::mounting::{DESIGNS, Disk, Rig, VOLATILE, number};

const CONVENTIONAL: Disk = Disk::Plain(512);
const ZONED: Disk = Disk::Zoned(VOLATILE, 128);

/// Sizes of files, and of operations: the program takes its own `posix_fallocate` of no bytes for a
/// failure. What fits the inode and its neighbours; more than the inode's own pointers hold.
const TINY: &str = "flen = 12288\nopsize.min = 1\nopsize.max = 6000\n";
const LARGE: &str = "flen = 6291456\nopsize.min = 1\nopsize.max = 131072\n";
/// Operations of one round.
const ROUND: u64 = 50_000;
/// How often each operation comes.
const WEIGHTS: &str = "[weights]
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 4
punch_hole = 5
copy_file_range = 5
posix_fallocate = 3
sendfile = 2
fsync = 2
fdatasync = 2
close_open = 1
invalidate = 1
posix_fadvise = 1
";

#[test]
#[ignore = "long: fsx, 2 x 1,000,000 operations"]
fn posix_on_a_conventional_drive() {
    exercise("f2fs", CONVENTIONAL, "fsync_mode=posix");
}

#[test]
#[ignore = "long: fsx, 2 x 1,000,000 operations"]
fn strict_on_a_conventional_drive() {
    exercise("f2fs", CONVENTIONAL, "fsync_mode=strict");
}

#[test]
#[ignore = "long: fsx, 2 x 1,000,000 operations"]
fn posix_on_a_zoned_drive() {
    exercise("f2fs", ZONED, "fsync_mode=posix");
}

#[test]
#[ignore = "long: fsx, 2 x 1,000,000 operations"]
fn strict_on_a_zoned_drive() {
    exercise("f2fs", ZONED, "fsync_mode=strict");
}

#[test]
#[ignore = "long: fsx, 2 x 1,000,000 operations"]
fn oprw_on_a_zoned_drive() {
    exercise("f2fs", ZONED, "oprw");
}

#[test]
#[ignore = "long: fsx, 2 x 1,000,000 operations"]
fn ordered_ext4() {
    exercise("ext4", CONVENTIONAL, "data=ordered");
}

#[test]
#[ignore = "long: fsx, 2 x 1,000,000 operations"]
fn writeback_ext4() {
    exercise("ext4", CONVENTIONAL, "data=writeback");
}

#[test]
#[ignore = "long: fsx, 2 x 1,000,000 operations"]
fn data_journal_ext4() {
    exercise("ext4", CONVENTIONAL, "data=journal");
}

#[test]
#[ignore = "long: fsx, 3 x 2 x 1,000,000 operations"]
fn pmfs() {
    DESIGNS.into_iter().for_each(|(make, options)| exercise("pmfs", memory(make), options));
}

fn memory(make: &'static str) -> Disk {
    Disk::Memory(make, 128)
}

/// fsx on a tiny and a large file of one volume.
fn exercise(fs: &'static str, disk: Disk, options: &str) {
    let program = installed("fsx", "0.3.2");
    let rig = Rig::of(fs, disk, &["-o", options]);
    let started = cores::now();
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fsx-{disk:?}-{options}"));
    create_dir_all(&kept).unwrap();
    let files = [("tiny", TINY), ("large", LARGE)].map(|(name, sizes)| {
        let config = kept.join(format!("{name}.toml"));
        write(&config, format!("{sizes}{WEIGHTS}")).unwrap();
        (config, rig.point().join(name))
    });
    let first = number("FSX_SEED", 1);
    for (round, done) in (0..operations()).step_by(ROUND as usize).enumerate() {
        let count = ROUND.min(operations() - done);
        let running = files.each_ref().map(|(config, file)| {
            let mut fsx = fsx(&program, config, &kept, file, first + round as u64, count);
            let child = fsx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            (fsx, child)
        });
        for (fsx, child) in running {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{disk:?} {options}: {fsx:?}\n{}", said(&output));
        }
    }
    let seconds = (cores::now() - started) / 1_000_000_000;
    println!("{disk:?} {options}: 2 x {} operations in {seconds} s", operations());
    let before = ["tiny", "large"].map(|name| read(rig.point().join(name)).unwrap());
    rig.remount(&["-o", options]);
    let after = ["tiny", "large"].map(|name| read(rig.point().join(name)).unwrap());
    assert!(before == after, "{disk:?} {options}: contents after a remount");
    rig.unmount();
    rig.check();
}

fn fsx(program: &Path, config: &Path, kept: &Path, file: &Path, seed: u64, count: u64) -> Command {
    let mut fsx = Command::new(program);
    fsx.arg("-q").arg("-f").arg(config).arg("-P").arg(kept);
    fsx.arg("-N").arg(count.to_string()).arg("-S").arg(seed.to_string()).arg(file);
    fsx
}

fn operations() -> u64 {
    number("FSX_OPERATIONS", 1_000_000)
}

/// Operations of `ranges`, and the largest size of its file.
const STEPS: u32 = 4000;
const SIZE_MAX: u64 = 300_000;

/// What fsx leaves out: `FALLOC_FL_ZERO_RANGE`, with and without `KEEP_SIZE`, among writes, holes,
/// allocations, truncations and fsyncs, beside a file in memory.
#[test]
fn ranges() {
    let seed = number("FSX_SEED", 1);
    let designs = DESIGNS.map(|(make, options)| ("pmfs", memory(make), options));
    let others = [
        ("f2fs", Disk::Plain(128), "fsync_mode=posix"),
        ("f2fs", Disk::Zoned(VOLATILE, 64), "oprw"),
        ("ext4", Disk::Plain(128), "data=ordered"),
        ("ext4", Disk::Plain(128), "data=journal"),
    ];
    for (fs, disk, options) in others.into_iter().chain(designs) {
        // To note the time of a read, a volume puts in order what it had kept apart.
        let options = format!("{options},noatime");
        let rig = Rig::of(fs, disk, &["-o", &options]);
        let path = rig.point().join("f");
        let mut mirror = Mirror {
            path: path.clone(),
            file: File::options().read(true).write(true).create_new(true).open(&path).unwrap(),
            bytes: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        };
        for step in 0..STEPS {
            let did = mirror.step();
            assert!(mirror.agrees(), "FSX_SEED={seed}: {options}: step {step}, {did}");
        }
        drop(mirror.file);
        rig.remount(&["-o", &options]);
        assert!(read(&path).unwrap() == mirror.bytes, "FSX_SEED={seed}: after a remount");
        rig.unmount();
        rig.check();
    }
}

/// A file and its expected contents.
struct Mirror {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
    random: Xoshiro256PlusPlus,
}

impl Mirror {
    /// Does something; says what.
    fn step(&mut self) -> String {
        let start = self.random.random_range(0..SIZE_MAX);
        let len = self.random.random_range(1..=(SIZE_MAX - start).min(40_000));
        let end = start + len;
        let keep = self.random.random_bool(0.5);
        let size = self.bytes.len() as u64;
        let what = self.random.random_range(0..8);
        let kept = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let range = start as usize..end as usize;
        let fallocate = |flags| rustix::fs::fallocate(&self.file, flags, start, len).unwrap();
        match what {
            0 | 1 => {
                let byte = self.random.random_range(1..=255);
                self.file.write_all_at(&vec![byte; len as usize], start).unwrap();
                self.grow(end);
                self.bytes[range].fill(byte);
            }
            2 | 3 => {
                fallocate(FallocateFlags::ZERO_RANGE | kept);
                self.grow(if keep { size } else { end });
                self.zero(range);
            }
            4 => {
                fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE);
                self.zero(range);
            }
            5 => {
                fallocate(kept);
                self.grow(if keep { size } else { end });
            }
            6 => {
                self.file.set_len(start).unwrap();
                self.bytes.resize(start as usize, 0);
            }
            _ => self.file.sync_all().unwrap(),
        }
        format!("{what}: {start} {len} {keep}")
    }

    fn grow(&mut self, size: u64) {
        let size = self.bytes.len().max(size as usize);
        self.bytes.resize(size, 0);
    }

    fn zero(&mut self, range: std::ops::Range<usize>) {
        let end = self.bytes.len();
        self.bytes[range.start.min(end)..range.end.min(end)].fill(0);
    }

    /// As the kernel has it in its pages, and as the volume has it.
    fn agrees(&self) -> bool {
        let of_kernel = read(&self.path).unwrap();
        rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed).unwrap();
        of_kernel == self.bytes && read(&self.path).unwrap() == self.bytes
    }
}
