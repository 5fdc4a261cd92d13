//! Volumes on drives in files, and a tree that has everything.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;

use drive::{BLOCK_SIZE, Block, Command, Drive, DriveState, Output, Spec, Timing, blkzone, image};
use f2fs::F2fs;
use f2fs::check::{CheckOptions, check};
use f2fs::mkfs::{MkfsOptions, format};
use linux::Manifest;
use rustix::fs::{SeekFrom, seek};
use vfs::kind::Format;
use vfs::ops::{Generator, Session, fill};
use vfs::{Creator, FallocateMode, FileKind, FileSystem, Ino, SetAttr, Timespec, XattrMode};

pub(crate) const MIB: u64 = 1 << 20;

/// The kinds of drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Conventional,
    /// Zones of 4 MiB, eight of them conventional.
    Zoned,
}

pub(crate) const ZONE_MIB: u64 = 4;
pub(crate) const CONVENTIONAL_ZONES: u32 = 8;

impl Kind {
    pub(crate) fn spec(self, mib: u64) -> Spec {
        match self {
            Self::Conventional => Spec::named("ram").unwrap().blocks(mib * 256),
            Self::Zoned => Spec::named("zn540")
                .unwrap()
                .zone_size(ZONE_MIB * 256, ZONE_MIB * 256)
                .zones((mib / ZONE_MIB) as u32, CONVENTIONAL_ZONES)
                .limits(None, None),
        }
    }
}

/// A drive of `mib` MiB in the new file `path`, formatted.
pub(crate) fn create(path: &Path, kind: Kind, mib: u64, features: &str) {
    image::create(path, &kind.spec(mib)).expect("a drive in a file");
    let mut options = MkfsOptions { time: 1_700_000_000, ..MkfsOptions::default() };
    options.add_features(features).expect("features");
    format(&open(path), &options).expect("a volume");
}

pub(crate) fn open(path: &Path) -> Arc<dyn Drive> {
    image::open(path, false, Timing::Instant).expect("a drive in a file")
}

pub(crate) fn mount(path: &Path, options: &str) -> F2fs {
    let options = options.parse().expect("mount options");
    F2fs::mount(open(path), &options).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What our engine reads from the volume in `path`, recovered in memory only if need be.
pub(crate) fn manifest(path: &Path) -> Manifest {
    Manifest::of_volume(&mount(path, "ro")).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What `blkzone report` would say of the drive in `path`.
pub(crate) fn report(path: &Path) -> String {
    zone_report(&open(path))
}

/// What `blkzone report` would say of `drive`.
pub(crate) fn zone_report(drive: &Arc<dyn Drive>) -> String {
    drive.submit(0, 0, Command::ReportZones { lba: 0, max: u32::MAX });
    match drive.wait(0).expect("an answer").result {
        Ok(Output::Zones(zones)) => blkzone::print(&zones),
        other => panic!("{other:?}"),
    }
}

/// Neither our check nor `fsck.f2fs` finds anything wrong with the volume.
pub(crate) fn assert_clean(path: &Path) {
    let report = check(&open(path), &CheckOptions::default()).expect("a volume");
    let findings: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}: {}", path.display(), findings.join("\n"));
    let fsck = fsck_f2fs(path);
    assert!(fsck.is_ok(), "{}: {}", path.display(), fsck.unwrap_err());
}

/// What our check or the file system's own finds wrong with the volume in `path`.
pub(crate) fn wrong_with(format: &dyn Format, path: &Path) -> Option<String> {
    let checked = format.check(&open(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if !checked.findings.is_empty() {
        return Some(format!("{:?}", checked.findings));
    }
    if format.name() == "f2fs" {
        return fsck_f2fs(path).err();
    }
    let out = Process::new("/usr/sbin/e2fsck").arg("-fn").arg(path).output();
    let out = out.expect("e2fsck: apt-get install e2fsprogs");
    (!out.status.success()).then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Copies one of several disks that lie side by side in a file.
pub(crate) fn copy_slot(from: &Path, offset: u64, to: &Path, bytes: u64) {
    let (from, to) = (File::open(from).unwrap(), File::options().write(true).open(to).unwrap());
    let mut buf = vec![0; MIB as usize];
    for at in (0..bytes).step_by(buf.len()) {
        from.read_exact_at(&mut buf, offset + at).unwrap();
        if buf.iter().any(|&byte| byte != 0) {
            to.write_all_at(&buf, at).unwrap();
        }
    }
}

/// Puts what a drive without zones holds into a file.
pub(crate) fn dump(state: &DriveState, path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(state.identify().blocks * BLOCK_SIZE as u64).unwrap();
    let zero = Block::zeroed();
    for lba in 0..state.identify().blocks {
        let block = state.media().read(lba).unwrap();
        if !block.same_page(&zero) {
            file.write_all_at(&block[..], lba * BLOCK_SIZE as u64).unwrap();
        }
    }
}

/// What `fsck.f2fs` finds, if it finds something.
pub(crate) fn fsck_f2fs(path: &Path) -> Result<(), String> {
    let out = Process::new("/usr/sbin/fsck.f2fs").arg("--dry-run").arg(path).output();
    let out = out.expect("fsck.f2fs: apt-get install f2fs-tools");
    let text = String::from_utf8_lossy(&out.stdout);
    if out.status.success() && !text.contains("[Fail]") { Ok(()) } else { Err(text.into()) }
}

/// Copies what is not a hole in `from` to `offset` of `to`.
pub(crate) fn copy_sparse(from: &Path, to: &File, offset: u64) -> io::Result<()> {
    let from = File::open(from)?;
    let mut buf = vec![0; MIB as usize];
    let mut at = 0;
    while let Ok(data) = seek(&from, SeekFrom::Data(at)) {
        let end = seek(&from, SeekFrom::Hole(data))?;
        at = data;
        while at < end {
            let step = &mut buf[..MIB.min(end - at) as usize];
            from.read_exact_at(step, at)?;
            to.write_all_at(step, offset + at)?;
            at += step.len() as u64;
        }
    }
    Ok(())
}

/// A sparse file.
pub(crate) fn sparse(path: PathBuf, bytes: u64) -> PathBuf {
    File::create(&path).and_then(|file| file.set_len(bytes)).expect("a sparse file");
    path
}

/// Writes a tree with a little of everything a volume can hold.
pub(crate) fn populate(fs: &dyn FileSystem, seed: u64) -> vfs::Result<()> {
    let mut session = Session::new(fs);
    for op in Generator::new(seed).take_ops(1500) {
        let _errors_are_part_of_it = session.apply(&op);
    }
    drop(session);
    let who = Creator { uid: 1000, gid: 100 };
    let dir = fs.mkdir(fs.root(), b"shapes", 0o2755, who)?.ino;
    shapes(fs, dir, who)?;
    big_files(fs, dir, who)?;
    let many = fs.mkdir(fs.root(), b"many", 0o1777, who)?.ino;
    for n in 0..3000 {
        let name = format!("{n}-{}", "name".repeat(n % 50));
        let ino = fs.create(many, name.as_bytes(), 0o600 | n as u16 & 0o77, who)?.ino;
        fs.write(ino, 0, &vec![n as u8; n % 97])?;
    }
    let doc = fs.mkdir(fs.root(), b"doc", 0o755, who)?.ino;
    let mut budget = 6 * MIB;
    copy_tree(fs, Path::new("/usr/share/doc"), doc, &mut budget)
}

fn shapes(fs: &dyn FileSystem, dir: Ino, who: Creator) -> vfs::Result<()> {
    let file = |name: &[u8], size: usize| -> vfs::Result<Ino> {
        let ino = fs.create(dir, name, 0o640, who)?.ino;
        let mut data = vec![0; size];
        fill(7, 0, &mut data);
        fs.write(ino, 0, &data)?;
        Ok(ino)
    };
    file(&[b'n'; 255], 100)?;
    file("ünïcødé – \u{1F41A}\n\t\\".as_bytes(), 5000)?;
    file(b"empty", 0)?;
    for size in [1, 3400, 3488, 3489, 4095, 4096, 4097, 12_288] {
        file(format!("size-{size}").as_bytes(), size)?;
    }
    let linked = file(b"linked", 999)?;
    for n in 0..20 {
        fs.link(linked, dir, format!("link-{n}").as_bytes())?;
    }
    let attributed = file(b"attributed", 10)?;
    for (name, size) in
        [("user.small", 1), ("user.empty", 0), ("trusted.t", 100), ("security.s", 60)]
    {
        fs.setxattr(attributed, name.as_bytes(), &vec![b'v'; size], XattrMode::Set)?;
    }
    let many = file(b"many-attributes", 10)?;
    for n in 0..30 {
        let value = vec![n as u8; 100];
        fs.setxattr(many, format!("user.attribute-{n}").as_bytes(), &value, XattrMode::Set)?;
    }
    fs.setxattr(dir, b"user.of.a.directory", b"yes", XattrMode::Set)?;
    fs.symlink(dir, b"short", b"size-1", who)?;
    fs.symlink(dir, b"long", &[b'l'; 4000], who)?;
    fs.mknod(dir, b"fifo", FileKind::Fifo, 0o622, 0, who)?;
    fs.mknod(dir, b"socket", FileKind::Socket, 0o755, 0, who)?;
    fs.mknod(dir, b"null", FileKind::CharDevice, 0o666, 0x103, who)?;
    fs.mknod(dir, b"large-minor", FileKind::BlockDevice, 0o660, 0x10_0000_0000 | 0x80_0123, who)?;
    for (name, secs) in [("old", -86_400), ("epoch", 0), ("late", 5_000_000_000)] {
        let ino = file(name.as_bytes(), 1)?;
        let time = Some(Timespec { secs, nanos: 123_456_789 });
        fs.setattr(ino, &SetAttr { atime: time, mtime: time, ..SetAttr::default() })?;
    }
    let owned = file(b"owned", 1)?;
    let set = SetAttr {
        perm: Some(0o6755),
        uid: Some(u32::MAX - 1),
        gid: Some(65_537),
        ..SetAttr::default()
    };
    fs.setattr(owned, &set)?;
    Ok(())
}

/// Files with holes, preallocated blocks, and indirect nodes of both depths.
fn big_files(fs: &dyn FileSystem, dir: Ino, who: Creator) -> vfs::Result<()> {
    let mut data = vec![0; MIB as usize];
    let big = fs.create(dir, b"big", 0o644, who)?.ino;
    for n in 0..14 {
        fill(11, n * MIB, &mut data);
        fs.write(big, n * MIB, &data)?;
    }
    let sparse = fs.create(dir, b"sparse", 0o644, who)?.ino;
    // Direct nodes, single and double indirect ones, and far up.
    for at in [0, 5 * MIB, 13 * MIB + 5, 5000 * MIB, 9000 * MIB, 2_000_000 * MIB] {
        fill(12, at, &mut data[..10_000]);
        fs.write(sparse, at, &data[..10_000])?;
    }
    let reserved = fs.create(dir, b"preallocated", 0o644, who)?.ino;
    fs.fallocate(reserved, FallocateMode::empty(), 0, MIB)?;
    fs.write(reserved, 9000, b"in the middle")?;
    fs.fallocate(reserved, FallocateMode::KEEP_SIZE, MIB, MIB)?;
    let punched = fs.create(dir, b"punched", 0o644, who)?.ino;
    fs.write(punched, 0, &data)?;
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    fs.fallocate(punched, punch, 10_000, 500_000)
}

/// Copies regular files, directories and links until `budget` bytes are used up.
fn copy_tree(fs: &dyn FileSystem, from: &Path, to: Ino, budget: &mut u64) -> vfs::Result<()> {
    let who = Creator::default();
    let mut entries: Vec<_> = fs::read_dir(from).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (name, path) = (entry.file_name().into_encoded_bytes(), entry.path());
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if *budget == 0 {
            break;
        } else if metadata.is_dir() {
            let dir = fs.mkdir(to, &name, 0o755, who)?.ino;
            copy_tree(fs, &path, dir, budget)?;
        } else if let Ok(target) = fs::read_link(&path) {
            fs.symlink(to, &name, target.as_os_str().as_encoded_bytes(), who)?;
        } else if let Ok(data) = fs::read(&path) {
            let ino = fs.create(to, &name, 0o644, who)?.ino;
            fs.write(ino, 0, &data)?;
            *budget = budget.saturating_sub(data.len() as u64 + BLOCK_SIZE as u64);
        }
    }
    Ok(())
}
