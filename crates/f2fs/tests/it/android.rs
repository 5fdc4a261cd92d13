//! What Android's volumes use: compressed files, directories that fold case, quota, verity.
//!
//! `tests/data/compressed.img.zst` is of Debian's kernel, made by `compressed.guest`.

use std::fs;
use std::io::{Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drive::Drive;
use f2fs::F2fs;
use f2fs::check::{CheckOptions, check};
use f2fs::ondisk::hash::dentry_hash;
use f2fs::ondisk::inode::FileFlags;
use sha2::{Digest, Sha256};
use vfs::{Creator, Errno, FallocateMode, FileSystem, Ino, RenameFlags, SetAttr};

use crate::judge::{Scratch, assert_fsck_clean, assert_stock_mkfs, open_image, tool};

const MIB: u64 = 1 << 20;
const SUMS: &str = include_str!("../data/compressed.sha256");

/// The kernel's volume with compressed files, unpacked.
fn compressed(scratch: &Scratch) -> PathBuf {
    let image = scratch.image("compressed", 64 * MIB);
    let packed: &[u8] = include_bytes!("../data/compressed.img.zst");
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed).expect("a zstd file");
    let mut file = fs::OpenOptions::new().write(true).open(&image).expect("the image");
    let mut chunk = vec![0; MIB as usize];
    for _ in 0..64 {
        decoder.read_exact(&mut chunk).expect("64 MiB");
        if chunk.iter().any(|&byte| byte != 0) {
            file.write_all(&chunk).expect("room");
        } else {
            file.seek(SeekFrom::Current(MIB as i64)).expect("a sparse file");
        }
    }
    image
}

fn mount(drive: &Arc<dyn Drive>, options: &str) -> F2fs {
    F2fs::mount(Arc::clone(drive), &options.parse().expect("options")).expect("a mount")
}

fn find(fs: &F2fs, path: &str) -> Ino {
    path.split('/').fold(fs.root(), |dir, name| {
        fs.lookup(dir, name.as_bytes()).unwrap_or_else(|e| panic!("{path}: {e}")).ino
    })
}

fn contents(fs: &F2fs, ino: Ino) -> vfs::Result<Vec<u8>> {
    let mut bytes = vec![0; fs.getattr(ino)?.size as usize];
    let len = fs.read(ino, 0, &mut bytes)?;
    assert_eq!(len, bytes.len());
    Ok(bytes)
}

#[track_caller]
fn assert_judged_clean(drive: &Arc<dyn Drive>, image: &Path) {
    let report = check(drive, &CheckOptions::default()).expect("a volume");
    let lines: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "our check:\n{}", lines.join("\n"));
    assert_fsck_clean(image);
}

#[test]
fn what_the_kernel_compressed_is_read() {
    let scratch = Scratch::new();
    let image = compressed(&scratch);
    let drive = open_image(&image);
    for options in ["ro", "ro,cache=1m"] {
        let fs = mount(&drive, options);
        for (sum, path) in SUMS.lines().filter_map(|line| line.split_once("  ")) {
            let found = Sha256::digest(contents(&fs, find(&fs, path)).expect(path));
            let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, sum, "{path}");
        }
    }
    assert_judged_clean(&drive, &image);
}

/// A file and what must be in it.
struct Twin {
    ino: Ino,
    bytes: Vec<u8>,
}

impl Twin {
    fn of(fs: &F2fs, path: &str) -> Twin {
        let ino = find(fs, path);
        Twin { ino, bytes: contents(fs, ino).expect(path) }
    }

    fn write(&mut self, fs: &F2fs, at: usize, data: &[u8]) {
        assert_eq!(fs.write(self.ino, at as u64, data).expect("a write"), data.len());
        self.bytes.resize(self.bytes.len().max(at + data.len()), 0);
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    fn resize(&mut self, fs: &F2fs, size: usize) {
        let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
        fs.setattr(self.ino, &set).expect("a size");
        self.bytes.resize(size, 0);
    }

    fn punch(&mut self, fs: &F2fs, from: usize, len: usize) {
        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        fs.fallocate(self.ino, mode, from as u64, len as u64).expect("a hole");
        self.bytes[from..from + len].fill(0);
    }
}

#[test]
fn compressed_files_change() {
    let scratch = Scratch::new();
    let image = compressed(&scratch);
    let drive = open_image(&image);
    let fs = mount(&drive, "");
    let mut twins: Vec<Twin> =
        ["lz4/numbers", "zstd/text", "lzo/numbers", "lzo-rle/mixed", "big/large"]
            .map(|path| Twin::of(&fs, path))
            .into();
    twins[0].write(&fs, 20_000, b"in the middle of a cluster");
    twins[0].write(&fs, 32_000, &[7; 40_000]);
    twins[1].resize(&fs, 21_000);
    twins[1].resize(&fs, 50_000);
    twins[2].punch(&fs, 5_000, 30_000);
    twins[3].write(&fs, 100_000, b"behind the end");
    twins[3].resize(&fs, 0);
    twins[3].write(&fs, 0, &[9; 70_000]);
    twins[4].write(&fs, 5_000_000, &[1; 10_000]);
    twins[4].punch(&fs, 3_500_000, 1_200_000);
    fs.fsync(twins[0].ino, false).expect("an fsync");
    for name in ["text", "numbers"] {
        fs.unlink(find(&fs, "lzo-rle"), name.as_bytes()).expect("an unlink");
    }
    let released = find(&fs, "big/released");
    assert_eq!(fs.write(released, 0, b"x").unwrap_err().errno(), Errno::PERM);
    fs.unlink(find(&fs, "big"), b"released").expect("an unlink");
    fs.unmount().expect("an unmount");
    drop(fs);
    assert_judged_clean(&drive, &image);
    let fs = mount(&drive, "ro");
    for twin in &twins {
        assert!(contents(&fs, twin.ino).expect("a read") == twin.bytes, "inode {}", twin.ino);
    }
}

#[test]
fn a_damaged_cluster_is_an_error_and_nothing_more() {
    let scratch = Scratch::new();
    let image = compressed(&scratch);
    let mut bytes = fs::read(&image).expect("the image");
    let mut damaged = 0;
    for block in bytes.chunks_exact_mut(4096) {
        // A header, then the beginning of the text in some form.
        let text = b"the quick brown fox";
        if block[24..60].windows(text.len()).any(|bytes| bytes == text) {
            block[50] ^= 0x20;
            damaged += 1;
        }
    }
    assert!(damaged >= 4, "{damaged} clusters");
    fs::write(&image, bytes).expect("the image");
    let fs = mount(&open_image(&image), "ro");
    for algorithm in ["lzo", "lz4", "lzo-rle"] {
        let error = contents(&fs, find(&fs, &format!("{algorithm}/text"))).unwrap_err();
        assert_eq!(error.errno(), Errno::UCLEAN, "{error}");
        assert!(error.to_string().contains("compress_data.chksum"), "{error}");
        contents(&fs, find(&fs, &format!("{algorithm}/numbers"))).expect("another file");
    }
}

/// A volume of `mkfs.f2fs` with an encoding, and in it a directory that folds case.
fn folding(image: &Path, encoding: &str) -> (Arc<dyn Drive>, F2fs, Ino) {
    assert_stock_mkfs(image, &["-O", "casefold,extra_attr", "-C", encoding]);
    let drive = open_image(image);
    let fs = mount(&drive, "");
    let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).expect("a directory").ino;
    let flags = fs.inode_flags(dir).expect("flags");
    fs.set_inode_flags(dir, flags | FileFlags::CASEFOLD.bits()).expect("a flag");
    (drive, fs, dir)
}

/// Writes `to` over every `from` in the image; returns how often.
fn replace_all(image: &Path, from: &[u8], to: &[u8]) -> usize {
    let mut bytes = fs::read(image).unwrap();
    let found: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from)).collect();
    for &at in &found {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    fs::write(image, bytes).unwrap();
    found.len()
}

/// Linux 6.12.0 to 6.12.4 did not ignore characters that Unicode calls ignorable.
#[test]
fn names_with_an_outdated_hash_are_found() {
    for others in [0, 400] {
        let scratch = Scratch::new();
        let image = scratch.image("volume", 64 * MIB);
        let (drive, volume, dir) = folding(&image, "utf8");
        let who = Creator::default();
        let made = volume.create(dir, "A\u{ad}b".as_bytes(), 0o644, who).unwrap().ino;
        for i in 0..others {
            volume.create(dir, format!("Other-{i}").as_bytes(), 0o644, who).unwrap();
        }
        volume.unmount().unwrap();
        drop((volume, drive));
        let (new, old) = (dentry_hash(b"ab"), dentry_hash("a\u{ad}b".as_bytes()));
        assert!(replace_all(&image, &new.to_le_bytes(), &old.to_le_bytes()) > 0);

        let drive = open_image(&image);
        let volume = mount(&drive, "");
        for name in ["AB", "ab", "a\u{ad}B"] {
            assert_eq!(volume.lookup(dir, name.as_bytes()).unwrap().ino, made, "{name}");
        }
        assert_eq!(volume.lookup(dir, b"abc").unwrap_err().errno(), Errno::NOENT);
        assert_eq!(volume.create(dir, b"Ab", 0o644, who).unwrap_err().errno(), Errno::EXIST);
        volume.unlink(dir, b"aB").unwrap();
        assert_eq!(volume.lookup(dir, b"ab").unwrap_err().errno(), Errno::NOENT);
        volume.unmount().unwrap();
        assert_judged_clean(&drive, &image);
    }
}

#[test]
fn names_that_fold_alike_are_one() {
    let scratch = Scratch::new();
    let image = scratch.image("volume", 128 * MIB);
    let (drive, fs, dir) = folding(&image, "utf8");
    let who = Creator::default();
    let made = fs.create(dir, "Straße".as_bytes(), 0o644, who).unwrap().ino;
    assert_eq!(fs.lookup(dir, "STRASSE".as_bytes()).unwrap().ino, made);
    assert_eq!(fs.create(dir, b"strasse", 0o644, who).unwrap_err().errno(), Errno::EXIST);
    // Not UTF-8: just bytes.
    let bytes = fs.create(dir, b"A\xff", 0o644, who).unwrap().ino;
    assert_eq!(fs.lookup(dir, b"A\xff").unwrap().ino, bytes);
    assert_eq!(fs.lookup(dir, b"a\xff").unwrap_err().errno(), Errno::NOENT);
    // The name stays as given, also when another takes its place.
    fs.rename(dir, b"sTRASSE", fs.root(), b"road", RenameFlags::empty()).unwrap();
    fs.rename(fs.root(), b"road", dir, "ÉTÉ".as_bytes(), RenameFlags::empty()).unwrap();
    let decomposed = "e\u{301}te\u{301}";
    assert_eq!(fs.lookup(dir, decomposed.as_bytes()).unwrap().ino, made);
    let sub = fs.mkdir(dir, b"Sub", 0o755, who).unwrap().ino;
    let flags = fs.inode_flags(sub).unwrap();
    assert_ne!(flags & FileFlags::CASEFOLD.bits(), 0);
    fs.create(sub, b"File", 0o644, who).unwrap();
    let set = fs.set_inode_flags(sub, flags & !FileFlags::CASEFOLD.bits());
    assert_eq!(set.unwrap_err().errno(), Errno::NOTEMPTY);
    for i in 0..3000 {
        fs.create(sub, format!("Ünïcode-{i}").as_bytes(), 0o644, who).unwrap();
    }
    fs.unlink(sub, b"FILE").unwrap();
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        names.push(entry.name);
        true
    })
    .unwrap();
    names.sort();
    assert_eq!(names, [&b"."[..], b"..", b"A\xff", b"Sub", "ÉTÉ".as_bytes()]);
    fs.unmount().unwrap();
    drop(fs);
    assert_judged_clean(&drive, &image);
    let fs = mount(&drive, "ro");
    assert!(fs.lookup(sub, "üNÏCODE-2999".as_bytes()).is_ok());
}

#[test]
fn a_strict_encoding_refuses_other_bytes() {
    let scratch = Scratch::new();
    let image = scratch.image("volume", 128 * MIB);
    let (drive, fs, dir) = folding(&image, "utf8:strict");
    let made = fs.create(dir, b"A\xff", 0o644, Creator::default());
    assert_eq!(made.unwrap_err().errno(), Errno::INVAL);
    fs.create(dir, "Ω".as_bytes(), 0o644, Creator::default()).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    assert_judged_clean(&drive, &image);
}

/// Makes a name for each of `chars` and lets `fsck.f2fs`, which has tables of its own, judge the
/// hash of every name. A letter and its capital are one name.
fn assert_folds_as_fsck(chars: impl Iterator<Item = char>) {
    let scratch = Scratch::new();
    let image = scratch.image("volume", 512 * MIB);
    let (drive, fs, dir) = folding(&image, "utf8");
    let file = fs.create(dir, b"file", 0o644, Creator::default()).unwrap().ino;
    let mut made = 0;
    for c in chars.filter(|c| !matches!(c, '\0' | '/' | '.')) {
        // With a mark behind it that is to be put in order.
        let name = format!("{c}\u{301}x");
        match fs.link(file, dir, name.as_bytes()) {
            Ok(_) => made += 1,
            Err(error) => assert_eq!(error.errno(), Errno::EXIST, "{c:?}"),
        }
    }
    assert!(made > 1000, "{made}");
    fs.unmount().unwrap();
    drop(fs);
    assert_judged_clean(&drive, &image);
}

#[test]
fn letters_of_many_scripts_fold_as_fsck_says() {
    assert_folds_as_fsck(('\0'..'\u{3000}').step_by(3).chain('\u{1f00}'..'\u{2000}'));
}

#[test]
#[ignore = "long: a name for every character there is"]
fn every_character_folds_as_fsck_says() {
    assert_folds_as_fsck('\0'..='\u{10ffff}');
}

#[test]
fn volumes_as_android_makes_them_are_read() {
    let scratch = Scratch::new();
    let tree = scratch.dir().join("tree");
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    fs::write(tree.join("sub/deep/file"), b"contents").unwrap();
    fs::write(tree.join("large"), vec![5; 3 << 20]).unwrap();
    for features in [
        &["-g", "android", "-O", "encrypt,verity,quota,casefold", "-C", "utf8"][..],
        &["-O", "extra_attr,ro,compression"],
        &["-O", "extra_attr,project_quota,inode_crtime"],
    ] {
        let image = scratch.image("volume", 128 * MIB);
        assert_stock_mkfs(&image, features);
        let paths = [tree.to_str().unwrap(), image.to_str().unwrap()];
        let out = tool("sload.f2fs", &["-f", paths[0], paths[1]]);
        assert!(out.status.success(), "{features:?}: {}", String::from_utf8_lossy(&out.stdout));
        let drive = open_image(&image);
        let fs = mount(&drive, "ro");
        assert_eq!(contents(&fs, find(&fs, "sub/deep/file")).unwrap(), b"contents");
        assert!(contents(&fs, find(&fs, "large")).unwrap() == vec![5; 3 << 20]);
        drop(fs);
        assert_judged_clean(&drive, &image);
        match F2fs::mount(Arc::clone(&drive), &"".parse().unwrap()) {
            Ok(fs) => {
                assert!(!features.contains(&"extra_attr,ro,compression"));
                fs.create(fs.root(), b"new", 0o644, vfs::Creator::default()).unwrap();
                fs.unmount().unwrap();
                assert_judged_clean(&drive, &image);
            }
            Err(error) => {
                assert_eq!(error.errno(), Errno::OPNOTSUPP, "{error}");
                assert!(error.to_string().contains("mount it ro"), "{error}");
            }
        }
    }
}
