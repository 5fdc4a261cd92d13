//! Volumes the engine has written, before two judges: Debian's `fsck.f2fs` and our own check. And
//! volumes of f2fs-tools, read by the engine.

use std::fs;
use std::path::Path;
use std::process::Command as Process;
use std::sync::Arc;

use drive::{Drive, Timing};
use f2fs::F2fs;
use f2fs::check::{CheckOptions, check};
use f2fs::mkfs::{MkfsOptions, format};
use vfs::ops::Generator;
use vfs::{Creator, FileKind, FileSystem, Ino, RenameFlags, SetAttr, XattrMode};

use crate::harness::{Kind, Pair, dump, findings};
use crate::judge::{
    Scratch, assert_fsck_clean, assert_stock_mkfs, create_zoned_image, open_image, tool,
};

const MIB: u64 = 1 << 20;
const ALL_FEATURES: &str = "extra_attr,inode_checksum,inode_crtime,lost_found,sb_checksum";

fn mount(drive: &Arc<dyn Drive>) -> F2fs {
    F2fs::mount(Arc::clone(drive), &"".parse().expect("no options")).expect("a mount")
}

fn assert_judged_clean(drive: &Arc<dyn Drive>, image: &Path) {
    let report = check(drive, &CheckOptions::default()).expect("a volume");
    let lines: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "our check:\n{}", lines.join("\n"));
    assert!(report.clean_unmount);
    assert_fsck_clean(image);
}

/// A little of everything, repeated until directories deepen and files get indirect nodes.
fn work(fs: &F2fs) -> vfs::Result<()> {
    let (root, who) = (fs.root(), Creator::default());
    let dir = fs.mkdir(root, b"dir", 0o755, who)?.ino;
    let sub = fs.mkdir(dir, b"sub", 0o700, who)?.ino;
    for i in 0..1500_u32 {
        let name = format!("{}-{i}", "n".repeat(i as usize % 100 + 1));
        let file = fs.create(dir, name.as_bytes(), 0o644, who)?.ino;
        fs.write(file, u64::from(i % 7) * 3000, &vec![i as u8; i as usize % 5000])?;
        match i % 6 {
            0 => drop(fs.link(file, sub, name.as_bytes())?),
            1 => fs.rename(dir, name.as_bytes(), sub, b"moved", RenameFlags::empty())?,
            2 => fs.setxattr(file, b"user.colour", &[7; 300], XattrMode::Set)?,
            3 => fs.unlink(dir, name.as_bytes())?,
            4 => fs.fsync(file, false)?,
            _ => {}
        }
    }
    fs.symlink(root, b"link", b"dir/sub", who)?;
    fs.symlink(root, b"long", &[b'x'; 3900], who)?;
    fs.mknod(root, b"fifo", FileKind::Fifo, 0o600, 0, who)?;
    fs.mknod(root, b"null", FileKind::CharDevice, 0o666, 0x103, who)?;
    let big = fs.create(root, b"big", 0o644, who)?.ino;
    for i in 0..14 {
        fs.write(big, i * MIB, &vec![i as u8; MIB as usize])?;
    }
    fs.setattr(big, &SetAttr { size: Some(13 * MIB + 77), ..SetAttr::default() })?;
    let sparse = fs.create(root, b"sparse", 0o644, who)?.ino;
    fs.write(sparse, 5 << 30, b"far away")?;
    Ok(())
}

#[test]
fn what_the_engine_writes_is_clean_on_a_conventional_drive() {
    for features in ["", ALL_FEATURES] {
        let scratch = Scratch::new();
        let image = scratch.image("volume", 512 * MIB);
        let mut options = MkfsOptions::default();
        options.add_features(features).unwrap();
        assert_work_is_clean(&image, &options);
    }
}

/// Makes a volume in `image`, works on it, and asks the judges.
fn assert_work_is_clean(image: &Path, options: &MkfsOptions) {
    let drive = open_image(image);
    format(&drive, options).unwrap();
    let fs = mount(&drive);
    work(&fs).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    assert_judged_clean(&drive, image);
}

#[test]
fn what_the_engine_writes_is_clean_on_zones() {
    let scratch = Scratch::new();
    let image = scratch.dir().join("volume");
    create_zoned_image(&image, (4096, 4096), (64, 4));
    assert_work_is_clean(&image, &MkfsOptions::default());
}

#[test]
fn ten_thousand_random_operations_leave_a_clean_volume() {
    let scratch = Scratch::new();
    for (seed, kind) in (60..).zip(Kind::ALL) {
        let ops = Generator::new(seed).take_ops(10_000);
        let mut pair = Pair::new(kind, "cache=8m", seed, Timing::Instant);
        pair.run(&ops, 2500).unwrap_or_else(|why| panic!("{kind:?} seed {seed}: {why}"));
        let state = pair.drive.power_off();
        assert_eq!(findings(&state), "", "{kind:?}");
        let image = scratch.dir().join("image");
        dump(&state, &image);
        assert_fsck_clean(&image);
    }
}

/// `dump.f2fs` reads files of every shape back: inline, direct, indirect, with holes.
#[test]
fn dump_f2fs_reads_what_the_engine_wrote() {
    let scratch = Scratch::new();
    let image = scratch.image("volume", 128 * MIB);
    let drive = open_image(&image);
    format(&drive, &MkfsOptions::default()).unwrap();
    let fs = mount(&drive);
    let shapes =
        [("tiny", 77, 0), ("told", 123_456, 0), ("large", 9_000_001, 0), ("holes", 50_000, MIB)];
    let write = |(name, len, at): (&'static str, usize, u64)| {
        let ino = fs.create(fs.root(), name.as_bytes(), 0o644, Creator::default()).unwrap().ino;
        let mut data = vec![0; len];
        vfs::ops::fill(9, at, &mut data);
        fs.write(ino, at, &data).unwrap();
        let whole = [vec![0; at as usize], data].concat();
        (ino, name, whole)
    };
    let files: Vec<_> = shapes.into_iter().map(write).collect();
    fs.unmount().unwrap();
    for (ino, name, data) in files {
        let out = tool("dump.f2fs", &["-i", &ino.to_string(), image.to_str().unwrap()]);
        let text = String::from_utf8_lossy(&out.stdout);
        for line in [name, &data.len().to_string()] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let found = dump_of(&scratch, &image, ino, name);
        assert!(found == data, "{name}: dump.f2fs reads {} bytes", found.len());
    }
}

/// A file as `dump.f2fs` reads it: after a question, into the directory it runs in.
fn dump_of(scratch: &Scratch, image: &Path, ino: Ino, name: &str) -> Vec<u8> {
    let answer = scratch.dir().join("yes");
    fs::write(&answer, "y\n").unwrap();
    let mut dump = Process::new("/usr/sbin/dump.f2fs");
    dump.current_dir(scratch.dir()).args(["-i", &ino.to_string()]).arg(image);
    let out = dump.stdin(fs::File::open(&answer).unwrap()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    let path = scratch.dir().join("lost_found").join(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Everything below a directory: path, kind and contents, sorted.
fn contents(fs: &F2fs, dir: Ino, path: &str, found: &mut Vec<(String, Vec<u8>)>) {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        names.push(entry);
        true
    })
    .expect("a directory");
    for entry in names.into_iter().filter(|e| e.name != b"." && e.name != b"..") {
        let name = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        let data = match entry.kind {
            FileKind::Directory => {
                contents(fs, entry.ino, &name, found);
                Vec::new()
            }
            FileKind::Symlink => fs.readlink(entry.ino).expect("a target"),
            _ => {
                let size = fs.getattr(entry.ino).expect("attributes").size as usize;
                let mut data = vec![0; size];
                assert_eq!(fs.read(entry.ino, 0, &mut data).expect("data"), size);
                data
            }
        };
        found.push((name, data));
    }
}

#[test]
fn volumes_of_f2fs_tools_are_read_and_written() {
    let scratch = Scratch::new();
    let tree = scratch.dir().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    let mut expected = vec![("/a".to_owned(), Vec::new()), ("/a/b".to_owned(), Vec::new())];
    for i in 0..300_usize {
        let data: Vec<u8> = (0..i * 50).map(|n| (n * i) as u8).collect();
        fs::write(tree.join(format!("a/b/file{i}")), &data).unwrap();
        expected.push((format!("/a/b/file{i}"), data));
    }
    let large: Vec<u8> = (0..13 << 20).map(|n: u32| (n >> 5) as u8).collect();
    fs::write(tree.join("large"), &large).unwrap();
    expected.push(("/large".to_owned(), large));
    expected.sort();
    for arguments in [&[][..], &["-i"], &["-s", "2"], &["-O", "extra_attr,inode_checksum"]] {
        let image = scratch.image("stock", 256 * MIB);
        assert_stock_mkfs(&image, arguments);
        let out = tool("sload.f2fs", &["-f", tree.to_str().unwrap(), image.to_str().unwrap()]);
        assert!(out.status.success());
        let drive = open_image(&image);
        let fs = mount(&drive);
        let mut found = Vec::new();
        contents(&fs, fs.root(), "", &mut found);
        found.sort();
        assert!(found == expected, "{arguments:?}");
        work(&fs).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        assert_judged_clean(&drive, &image);
    }
}
