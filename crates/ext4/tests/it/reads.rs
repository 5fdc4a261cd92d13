//! Volumes of all feature sets that mke2fs makes, read by us: compared with the tree that they were
//! filled with and with ext4-view; and our check beside e2fsck.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use ext4::ondisk::superblock::RawSuperblock;
use vfs::kind::{Format as _, Volume};
use vfs::{Attr, Errno, FileKind, Seek, path};
use zerocopy::{FromBytes, IntoBytes};

use crate::judge::{self, Scratch, check, debugfs, e2fsck, findings, mount, open, said, tool};

/// A tree with what maps and directories find hard. With `far`, a file reaches the third level of
/// the older map of blocks of 1 KiB.
fn tree(at: &Path, far: bool) {
    let file = |name: &str| File::create(at.join(name)).expect("a file");
    fs::create_dir_all(at.join("dir/below/further")).expect("directories");
    file("empty");
    file("one").write_all_at(b"1", 0).expect("a byte");
    file("dir/hundred").write_all_at(&[b'x'; 100], 0).expect("bytes");
    let long: Vec<u8> = (0..300_000_u32).map(|n| (n / 7) as u8).collect();
    file("dir/long").write_all_at(&long, 0).expect("bytes");
    // Every level of the older map with blocks of 1 KiB: 12, 256, 65,536 blocks, and beyond.
    let sparse = file("sparse");
    for offset in [0_u64, 11 << 10, 13 << 10, 267 << 10, 269 << 10, 9 << 20] {
        sparse.write_all_at(format!("at {offset}").as_bytes(), offset + 5).expect("bytes");
    }
    // A hole at the end would be lost with inline_data, where mke2fs keeps the size of what it
    // wrote.
    sparse.write_all_at(b"end", if far { 66 } else { 12 } << 20).expect("bytes");
    // An extent for each piece: two levels of nodes with blocks of 1 KiB.
    let pieces = file("pieces");
    for piece in 0..700_u64 {
        pieces.write_all_at(&piece.to_le_bytes(), piece * 8192).expect("bytes");
    }
    symlink("dir/long", at.join("short link")).expect("a link");
    symlink(format!("{}x", "dir/../".repeat(30)), at.join("long link")).expect("a link");
    fs::hard_link(at.join("one"), at.join("dir/also one")).expect("a link");
    File::create(at.join("n".repeat(255))).expect("a long name");
    fs::create_dir(at.join("many")).expect("a directory");
    for n in 0..700 {
        file(&format!("many/{n}{}", "é".repeat(n % 40)));
    }
}

/// What the host says of the tree: type and permissions, links, size, time, and contents.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    nlink: u64,
    size: u64,
    mtime: i64,
    contents: Vec<u8>,
}

fn of_host(root: &Path) -> BTreeMap<Vec<u8>, Entry> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(at) = ahead.pop() {
        let meta = fs::symlink_metadata(&at).expect("it is there");
        let contents = match meta.file_type() {
            kind if kind.is_symlink() => {
                fs::read_link(&at).expect("a link").into_os_string().into_encoded_bytes()
            }
            kind if kind.is_file() => fs::read(&at).expect("a file"),
            _ => {
                ahead.extend(fs::read_dir(&at).expect("a directory").map(|e| e.unwrap().path()));
                Vec::new()
            }
        };
        let name = at.strip_prefix(root).expect("below").as_os_str().as_encoded_bytes().to_vec();
        let is_dir = meta.is_dir();
        let (nlink, size) = (meta.nlink(), if is_dir { 0 } else { meta.size() });
        // The host may count links to directories in its own way.
        let nlink = if is_dir { 0 } else { nlink };
        let entry = Entry { mode: meta.mode(), nlink, size, mtime: meta.mtime(), contents };
        if at != root {
            all.insert(name, entry);
        }
    }
    all
}

fn entry(fs: &dyn Volume, attr: &Attr) -> vfs::Result<Entry> {
    let is_dir = attr.kind == FileKind::Directory;
    Ok(Entry {
        mode: attr.kind.mode_bits() | u32::from(attr.perm),
        nlink: if is_dir { 0 } else { attr.nlink.into() },
        size: if is_dir { 0 } else { attr.size },
        mtime: attr.mtime.secs,
        contents: match attr.kind {
            FileKind::Symlink => fs.readlink(attr.ino)?,
            FileKind::Regular => path::read_to_vec(fs, attr.ino)?,
            _ => Vec::new(),
        },
    })
}

fn of_volume(fs: &dyn Volume) -> BTreeMap<Vec<u8>, Entry> {
    let mut all = BTreeMap::new();
    path::walk(fs, fs.root(), &mut |path, attr| {
        all.insert(path.to_vec(), entry(fs, attr)?);
        Ok(())
    })
    .expect("all of it can be read");
    all
}

fn assert_same(expected: &BTreeMap<Vec<u8>, Entry>, found: &BTreeMap<Vec<u8>, Entry>, of: &str) {
    let names = |all: &BTreeMap<Vec<u8>, Entry>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(expected), names(found), "{of}");
    for (name, entry) in expected {
        let (name, other) = (String::from_utf8_lossy(name), &found[name]);
        let short = |entry: &Entry| (entry.mode, entry.nlink, entry.size, entry.mtime);
        assert_eq!(short(entry), short(other), "{of}: {name}");
        assert!(entry.contents == other.contents, "{of}: contents of {name}");
    }
}

/// Contents of everything, as ext4-view reads them.
fn of_ext4_view(image: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, ext4_view::Ext4Error> {
    let fs = ext4_view::Ext4::load_from_path(image)?;
    let mut all = BTreeMap::new();
    let mut ahead = vec![ext4_view::PathBuf::new("/")];
    while let Some(dir) = ahead.pop() {
        for entry in fs.read_dir(&dir)? {
            let entry = entry?;
            if matches!(entry.file_name().as_ref(), b"." | b"..") {
                continue;
            }
            let (at, meta) = (entry.path(), entry.metadata()?);
            let contents = match entry.file_type()? {
                ext4_view::FileType::Regular => fs.read(&at)?,
                ext4_view::FileType::Symlink => fs.read_link(&at)?.as_ref().to_vec(),
                _ => Vec::new(),
            };
            if meta.is_dir() {
                ahead.push(at.clone());
            }
            all.insert(at.as_ref()[1..].to_vec(), contents);
        }
    }
    Ok(all)
}

/// Feature sets: options of mke2fs, and whether ext4-view reads them.
const SETS: &[(&[&str], bool)] = &[
    (&["-t", "ext4", "-b", "4096"], true),
    (&["-t", "ext4", "-b", "1024"], true),
    (&["-t", "ext4", "-b", "2048", "-O", "metadata_csum_seed,orphan_file,large_dir"], false),
    (&["-t", "ext4", "-b", "4096", "-O", "fast_commit,quota,project,verity,stable_inodes"], true),
    (&["-t", "ext4", "-b", "4096", "-O", "inline_data"], false),
    (&["-t", "ext4", "-b", "1024", "-O", "ea_inode,inline_data", "-I", "512"], false),
    (&["-t", "ext4", "-b", "4096", "-O", "^64bit,^metadata_csum,uninit_bg"], true),
    (&["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode", "-g", "1024"], false),
    (&["-t", "ext4", "-b", "4096", "-O", "^flex_bg,sparse_super2", "-g", "4096"], false),
    (&["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"], true),
    (&["-t", "ext4", "-b", "4096", "-O", "encrypt,casefold,mmp"], false),
    (&["-t", "ext4", "-b", "4096", "-I", "128", "-O", "^extra_isize", "-N", "4096"], false),
    (&["-t", "ext4", "-b", "4096", "-O", "^filetype,^dir_index,^has_journal"], false),
    (&["-t", "ext3", "-b", "4096"], false),
    (&["-t", "ext3", "-b", "1024"], false),
    (&["-t", "ext2", "-b", "1024"], false),
    (&["-t", "ext2", "-b", "2048", "-r", "0", "-O", "none"], false),
];

#[test]
fn every_feature_set_is_read_as_it_was_written() {
    let scratch = Scratch::new();
    let hosts = [("near", false), ("far", true)].map(|(name, far)| {
        let host = scratch.path(name);
        tree(&host, far);
        (of_host(&host), host)
    });
    let mut viewers = Vec::new();
    for (number, (options, in_view)) in SETS.iter().enumerate() {
        let far = options.contains(&"1024") && !options.contains(&"ext4");
        let (expected, host) = &hosts[usize::from(far)];
        let of = options.join(" ");
        let image = scratch.made("image", 64, options, Some(host));
        let hash = format!("hash_alg={}", ["half_md4", "tea", "legacy"][number % 3]);
        let out = tool("tune2fs", &["-E", &hash, image.to_str().expect("a plain path")], "");
        assert!(out.status.success(), "{of}: {}", said(&out));
        // mke2fs makes no hash trees; e2fsck does, where the volume may have them.
        let (status, said) = e2fsck(&image, if number % 4 < 3 { "-yD" } else { "-p" });
        assert!(status <= 1, "{of}: {status} {said}");
        let drive = open(&image);
        let fs = mount(&drive);
        let mut found = of_volume(&*fs);
        assert!(found.remove(&b"lost+found"[..]).is_some(), "{of}");
        assert_same(expected, &found, &of);
        for name in expected.keys() {
            path::resolve(&*fs, name, false).unwrap_or_else(|e| panic!("{of}: {name:?}: {e}"));
        }
        assert_eq!(path::resolve(&*fs, b"many/700", false).unwrap_err().errno(), Errno::NOENT);
        let short = path::resolve(&*fs, b"one", false).unwrap();
        assert!(short.blocks > 0, "{of}: programs take a file without blocks for a hole");
        let viewed = of_ext4_view(&image).map(|mut all| {
            all.remove(&b"lost+found"[..]);
            all
        });
        match viewed {
            Ok(viewed) => {
                let ours = found.iter().map(|(name, entry)| (name.clone(), entry.contents.clone()));
                assert!(viewed == ours.collect(), "{of}: ext4-view reads something else");
                viewers.push((of.clone(), *in_view, true, String::new()));
            }
            Err(error) => viewers.push((of.clone(), *in_view, false, error.to_string())),
        }
        let checked = check(&drive);
        assert_eq!(findings(&checked), [""; 0], "{of}");
        assert!(checked.clean_unmount, "{of}");
    }
    viewers.retain(|(_, expected, read, _)| expected != read);
    assert!(viewers.is_empty(), "ext4-view, expected to read and read: {viewers:#?}");
}

#[test]
fn holes_are_found() {
    let scratch = Scratch::new();
    let host = scratch.path("tree");
    tree(&host, true);
    for options in [&["-t", "ext4", "-b", "4096"][..], &["-t", "ext2", "-b", "1024"]] {
        let image = scratch.made("image", 64, options, Some(&host));
        let fs = mount(&open(&image));
        let ino = path::resolve(&*fs, b"sparse", false).unwrap().ino;
        let page = 4096;
        assert_eq!(fs.lseek(ino, 0, Seek::Data).unwrap(), 0);
        let second = fs.lseek(ino, page * 8, Seek::Data).unwrap();
        assert!((260 << 10..=267 << 10).contains(&second), "{second}");
        assert_eq!(fs.lseek(ino, 60 << 20, Seek::Hole).unwrap(), 60 << 20);
        assert_eq!(fs.lseek(ino, 60 << 20, Seek::Data).unwrap(), 66 << 20);
        assert_eq!(fs.lseek(ino, 67 << 20, Seek::Data).unwrap_err().errno(), Errno::NXIO);
    }
}

/// What mke2fs does not take from a tree: devices, attributes in the inode and in blocks.
#[test]
fn devices_and_attributes_are_read() {
    let scratch = Scratch::new();
    let host = scratch.path("tree");
    tree(&host, true);
    for options in [&["-t", "ext4", "-b", "4096"][..], &["-t", "ext4", "-b", "1024", "-I", "128"]] {
        let image = scratch.made("image", 64, options, Some(&host));
        fs::write(scratch.path("value"), vec![b'v'; 700]).expect("a file");
        let value = scratch.path("value");
        debugfs(
            &image,
            &format!(
                "mknod null c 1 3\nmknod disk b 200 60000\nmknod pipe p\n\
                 ea_set one user.colour blue\nea_set one security.selinux label\n\
                 ea_set -f {} dir/long user.large\n",
                value.display()
            ),
        );
        let drive = open(&image);
        let fs = mount(&drive);
        let find = |name: &str| path::resolve(&*fs, name.as_bytes(), false).unwrap();
        assert_eq!((find("null").kind, find("null").rdev), (FileKind::CharDevice, 0x103));
        let disk = find("disk");
        assert_eq!((disk.kind, disk.rdev), (FileKind::BlockDevice, 0x0ea0_c860));
        assert_eq!(find("pipe").kind, FileKind::Fifo);
        let one = find("one").ino;
        assert_eq!(fs.getxattr(one, b"user.colour").unwrap(), b"blue");
        assert_eq!(fs.getxattr(one, b"user.shape").unwrap_err().errno(), Errno::NODATA);
        let mut names = fs.listxattr(one).unwrap();
        names.sort();
        assert_eq!(names, [&b"security.selinux"[..], b"user.colour"]);
        let large = fs.getxattr(find("dir/long").ino, b"user.large").unwrap();
        assert_eq!(large, [b'v'; 700]);
        assert_eq!(findings(&check(&drive)), [""; 0]);
    }
}

/// Changes the superblock of an image.
fn edit(image: &Path, change: impl FnOnce(&mut RawSuperblock)) {
    let file = File::options().read(true).write(true).open(image).expect("an image");
    let mut bytes = [0; 1024];
    file.read_exact_at(&mut bytes, 1024).expect("a superblock");
    let mut raw = RawSuperblock::read_from_bytes(&bytes).expect("1024 bytes");
    change(&mut raw);
    raw.seal();
    file.write_all_at(raw.as_bytes(), 1024).expect("it is written");
}

/// A log that debugfs wrote: what it has is there, and the image stays as it is.
#[test]
fn the_journal_is_replayed_in_memory() {
    let scratch = Scratch::new();
    for size in [4096, 1024] {
        let image = scratch.made("image", 64, &["-t", "ext4", "-b", &size.to_string()], None);
        fs::write(scratch.path("file"), b"contents").expect("a file");
        debugfs(&image, &format!("write {} file\n", scratch.path("file").display()));
        // The root directory without the file's name, in the journal only.
        let copy = scratch.path("copy");
        fs::copy(&image, &copy).expect("a copy");
        debugfs(&copy, "unlink file\n");
        let stat = debugfs(&image, "bmap <2> 0\n");
        let block: u64 = stat
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .next_back()
            .unwrap_or_else(|| panic!("a block in {stat}"));
        let mut bytes = vec![0; size as usize];
        File::open(&copy).unwrap().read_exact_at(&mut bytes, block * size).unwrap();
        fs::write(scratch.path("block"), &bytes).unwrap();
        let input = format!("jo\njw -b {block} {}\njc\n", scratch.path("block").display());
        debugfs(&image, &input);
        let before = std::fs::read(&image).unwrap();
        let drive = open(&image);
        let noload = ext4::Format.mount(drive.clone(), "ro,noload").unwrap();
        path::resolve(&*noload, b"file", false).unwrap();
        let fs = mount(&drive);
        assert!(!fs.recovery().clean && fs.recovery().replayed == 1, "{:?}", fs.recovery());
        let gone = path::resolve(&*fs, b"file", false).unwrap_err();
        assert_eq!(gone.errno(), Errno::NOENT);
        let checked = check(&drive);
        assert!(!checked.clean_unmount);
        let found = findings(&checked);
        assert_eq!(found, ["inode 12: inode.i_links_count: found 1, should be 0"]);
        let mut shown = Vec::new();
        let mut see = |record: vfs::record::Record| {
            shown.push(record.to_string());
            true
        };
        ext4::Format.dump(&drive, Some("journal"), None, &mut see).unwrap();
        assert!(shown.len() == 2 && shown[1].contains("images:1\t"), "{shown:?}");
        assert!(std::fs::read(&image).unwrap() == before, "the image stays as it is");
        drop(fs);
        assert!(!ext4::Format.recover(&drive).unwrap().clean);
        let fs = ext4::Format.mount(drive.clone(), "ro,noload").unwrap();
        assert!(path::resolve(&*fs, b"file", false).is_err() && check(&drive).clean_unmount);
    }
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let scratch = Scratch::new();
    let image = scratch.made("large", 64, &["-t", "ext4", "-b", "65536"], None);
    let refused = |image: &Path, options: &str| {
        let refused = ext4::Format.mount(open(image), options).err().expect("it is refused");
        refused.to_string()
    };
    assert_eq!(refused(&image, "ro"), "not supported: blocks of 64 KiB");
    let log = scratch.made("log", 16, &["-O", "journal_dev"], None);
    assert!(refused(&log, "ro").contains("a journal of other volumes"), "no volume");
    let image = scratch.made("image", 16, &["-t", "ext4"], None);
    edit(&image, |raw| raw.feature_incompat = (raw.feature_incompat.get() | 1 << 20).into());
    assert_eq!(refused(&image, "ro"), "not supported: FEATURE_I20");
    edit(&image, |raw| raw.feature_incompat = (raw.feature_incompat.get() ^ 1 << 20).into());
    edit(&image, |raw| raw.feature_ro_compat = (raw.feature_ro_compat.get() | 1 << 25).into());
    mount(&open(&image));
    assert!(refused(&image, "").contains("-o ro"), "unknown to us: it is not written");
    let typeless = scratch.made("typeless", 16, &["-t", "ext4", "-O", "^filetype"], None);
    assert!(refused(&typeless, "").contains("without filetype;"), "entries would get types");
    mount(&open(&typeless));
    // The upgrade of ext3: its journal has no extents, and no other file that is there.
    let upgraded = scratch.made("upgraded", 16, &["-t", "ext3"], None);
    edit(&upgraded, |raw| raw.feature_incompat = (raw.feature_incompat.get() | 1 << 6).into());
    assert!(refused(&upgraded, "").contains("a journal without extents; mount it -o ro"));
    mount(&open(&upgraded));
    let short = fs::OpenOptions::new().write(true).open(&image).expect("an image");
    short.set_len(8 << 20).expect("it is cut off");
    assert!(refused(&image, "ro").contains("truncated"));
}

#[test]
fn names_in_front_of_a_corrupt_one_are_listed() {
    let scratch = Scratch::new();
    let from = scratch.path("tree");
    fs::create_dir_all(&from).expect("a directory");
    for name in ["a", "b", "c", "d"] {
        File::create(from.join(name)).expect("a file");
    }
    let image = scratch.made(
        "image",
        16,
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"],
        Some(&from),
    );
    let said = debugfs(&image, "bmap <2> 0\n");
    let root = said.lines().find_map(|line| line.trim().parse::<u64>().ok()).expect("a block");
    let block = root * 4096;
    let (drive, mut bytes) =
        (File::options().read(true).write(true).open(&image).unwrap(), [0; 4096]);
    drive.read_exact_at(&mut bytes, block).unwrap();
    let at = bytes.windows(2).position(|pair| pair == [1, 1]).expect("a name of one byte");
    // The length of the record behind it.
    drive.write_all_at(&[3, 0], block + at as u64 + 10).unwrap();
    let (fs, mut names) = (mount(&open(&image)), 0);
    let listed = fs.readdir(fs.root(), 0, &mut |_| {
        names += 1;
        true
    });
    assert_eq!(listed.unwrap_err().errno(), Errno::UCLEAN);
    assert!(names >= 3, "{names}");
}

#[test]
fn nothing_can_be_changed() {
    let scratch = Scratch::new();
    let image = scratch.made("image", 16, &["-t", "ext4"], None);
    let fs = mount(&open(&image));
    let refused = fs.create(fs.root(), b"new", 0o644, vfs::Creator::default());
    assert_eq!(refused.unwrap_err().errno(), Errno::ROFS);
    fs.unmount().unwrap();
    assert_eq!(fs.getattr(fs.root()).unwrap_err().errno(), Errno::IO);
}

#[test]
fn labels_are_shown_and_set() {
    let scratch = Scratch::new();
    for options in [&["-t", "ext4", "-L", "before"][..], &["-t", "ext2", "-L", "before"]] {
        let image = scratch.made("image", 16, options, None);
        let drive = open(&image);
        assert_eq!(ext4::Format.label(&drive).unwrap().label, "before");
        assert_eq!(ext4::Format.set_label(&drive, "sixteen bytes ok").unwrap().label.len(), 16);
        assert!(ext4::Format.set_label(&drive, "seventeen bytes no").is_err());
        drop(drive);
        assert_eq!(e2fsck(&image, "-n").0, 0);
        let out = judge::tool("e2label", &[image.to_str().unwrap()], "");
        assert_eq!(judge::said(&out), "sixteen bytes ok\n");
    }
}
