//! Flags, extended attributes and access control lists, judged by e2fsck and debugfs.

use std::os::unix::fs::FileExt;

use ext4::Ext4;
use vfs::acl::{self, Acl, Entry, Tag};
use vfs::kind::Volume;
use vfs::{Creator, Errno, FileSystem, Ino, InodeFlags, RenameFlags, SetAttr, XattrMode, path};

use crate::harness::{Image, debugfs, tool};

const IMMUTABLE: u32 = InodeFlags::IMMUTABLE.bits();
const APPEND: u32 = InodeFlags::APPEND.bits();
const NOATIME: u32 = InodeFlags::NOATIME.bits();
/// `EXT4_EXTENTS_FL` and `EXT4_INDEX_FL`, which are shown, `EXT4_COMPR_FL`, and `EXT4_IMAGIC_FL`.
const EXTENTS: u32 = 0x8_0000;
const INDEX: u32 = 0x1000;
const COMPR: u32 = 0x4;
const IMAGIC: u32 = 0x2000;

fn errno<T>(done: vfs::Result<T>) -> Option<Errno> {
    done.err().map(|error| error.errno())
}

fn create(fs: &dyn FileSystem, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, 0o644, Creator::default()).unwrap().ino
}

#[test]
fn flags_forbid_what_they_say() {
    let image = Image::new(16);
    let fs = image.mount();
    let (root, nobody) = (fs.root(), Creator::default());
    let ino = create(&fs, b"file");
    fs.write(ino, 0, b"abc").unwrap();
    assert_eq!(fs.flags(ino).unwrap(), EXTENTS);
    fs.set_flags(ino, EXTENTS | IMMUTABLE).unwrap();
    let chmod = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    for (what, got) in [
        ("write", errno(fs.write(ino, 3, b"d"))),
        ("chmod", errno(fs.setattr(ino, &chmod))),
        ("link", errno(fs.link(ino, root, b"other"))),
        ("unlink", errno(fs.unlink(root, b"file"))),
        ("rename", errno(fs.rename(root, b"file", root, b"x", RenameFlags::empty()))),
        ("setxattr", errno(fs.setxattr(ino, b"user.a", b"b", XattrMode::Set))),
    ] {
        assert_eq!(got, Some(Errno::PERM), "{what} of an immutable file");
    }
    fs.set_flags(ino, EXTENTS | IMMUTABLE).unwrap();
    assert_eq!(errno(fs.set_flags(ino, EXTENTS | IMMUTABLE | NOATIME)), Some(Errno::PERM));
    fs.set_flags(ino, EXTENTS | APPEND).unwrap();
    fs.write(ino, 0, b"abcde").unwrap();
    let cut = SetAttr { size: Some(1), ..SetAttr::default() };
    assert_eq!(errno(fs.setattr(ino, &cut)), Some(Errno::PERM));
    assert_eq!(errno(fs.unlink(root, b"file")), Some(Errno::PERM));
    fs.set_flags(ino, EXTENTS).unwrap();
    let dir = fs.mkdir(root, b"dir", 0o755, nobody).unwrap().ino;
    fs.create(dir, b"old", 0o644, nobody).unwrap();
    fs.set_flags(dir, EXTENTS | IMMUTABLE).unwrap();
    assert_eq!(errno(fs.create(dir, b"new", 0o644, nobody)), Some(Errno::PERM));
    assert_eq!(errno(fs.unlink(dir, b"old")), Some(Errno::PERM));
    fs.set_flags(dir, EXTENTS | APPEND | NOATIME).unwrap();
    let new = fs.create(dir, b"new", 0o644, nobody).unwrap().ino;
    assert_eq!(fs.flags(new).unwrap(), EXTENTS | NOATIME, "inherited, but for append");
    assert_eq!(errno(fs.unlink(dir, b"new")), Some(Errno::PERM));
    fs.set_flags(dir, EXTENTS).unwrap();
    // What is shown only is masked; what nobody has is refused, and so is another kind of map.
    fs.set_flags(ino, EXTENTS | INDEX).unwrap();
    let dirsync = InodeFlags::DIRSYNC.bits();
    fs.set_flags(ino, EXTENTS | COMPR).unwrap();
    assert_eq!(fs.flags(ino).unwrap(), EXTENTS | COMPR);
    for flags in [EXTENTS | IMAGIC, EXTENTS | dirsync, NOATIME] {
        assert_eq!(errno(fs.set_flags(ino, flags)), Some(Errno::OPNOTSUPP), "{flags:#x}");
    }
    assert_eq!(fs.project(ino).unwrap(), 0);
    fs.set_flags(ino, EXTENTS | InodeFlags::NODUMP.bits()).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("flags");
    let shown = debugfs(&image, &["stat file"]);
    assert!(shown.contains("Flags: 0x80040"), "{shown}");
}

#[test]
fn what_is_sync_is_durable_without_an_fsync() {
    let image = Image::new(16);
    {
        let fs = image.mount();
        let ino = create(&fs, b"file");
        fs.set_flags(ino, EXTENTS | InodeFlags::SYNC.bits()).unwrap();
        fs.write(ino, 0, b"durable").unwrap();
        let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
        fs.set_flags(dir, EXTENTS | InodeFlags::DIRSYNC.bits()).unwrap();
        fs.create(dir, b"a", 0o644, Creator::default()).unwrap();
        fs.rename(dir, b"a", dir, b"b", RenameFlags::empty()).unwrap();
        create(&fs, b"not durable");
        // No unmount: the power fails.
    }
    let fs = image.mount();
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    assert_eq!(path::read_to_vec(&fs, ino).unwrap(), b"durable");
    let dir = fs.lookup(fs.root(), b"dir").unwrap().ino;
    assert!(fs.lookup(dir, b"b").is_ok() && fs.lookup(dir, b"a").is_err());
    assert!(fs.lookup(fs.root(), b"not durable").is_err());
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("after the cut");
}

#[test]
fn changes_of_a_sync_inode_are_durable_without_an_fsync() {
    const SYNC: u32 = EXTENTS | InodeFlags::SYNC.bits();
    let cut = SetAttr { size: Some(3), ..SetAttr::default() };
    type Change<'a> = &'a dyn Fn(&Ext4, Ino);
    let changes: [Change<'_>; 4] = [
        &|fs, ino| assert_eq!(fs.setattr(ino, &cut).unwrap().size, 3),
        &|fs, ino| fs.setxattr(ino, b"user.a", b"c", XattrMode::Set).unwrap(),
        &|fs, ino| fs.removexattr(ino, b"user.a").unwrap(),
        &|fs, ino| fs.set_flags(ino, SYNC | NOATIME).unwrap(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let image = Image::new(16);
        let state = |fs: &Ext4| {
            let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
            (
                fs.getattr(ino).unwrap().size,
                fs.flags(ino).unwrap(),
                fs.getxattr(ino, b"user.a").ok(),
            )
        };
        let fs = image.mount();
        let ino = create(&fs, b"file");
        fs.write(ino, 0, b"durable").unwrap();
        fs.setxattr(ino, b"user.a", b"b", XattrMode::Set).unwrap();
        fs.set_flags(ino, SYNC).unwrap();
        fs.sync().unwrap();
        change(&fs, ino);
        let right = state(&fs);
        // No unmount: the power fails.
        drop(fs);
        assert_eq!(state(&image.mount()), right, "change {number}");
    }
}

#[test]
fn reading_changes_the_access_time_lazily() {
    let image = Image::new(16);
    let at = vfs::Timespec { secs: 1_234_567_890, nanos: 5 };
    let fs = image.mount();
    let (file, still) = (create(&fs, b"file"), create(&fs, b"still"));
    fs.set_flags(still, EXTENTS | NOATIME).unwrap();
    let before = (fs.getattr(file).unwrap().ctime, fs.getattr(still).unwrap().atime);
    fs.touch_atime(file, at).unwrap();
    fs.touch_atime(still, at).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let fs = image.mount();
    assert_eq!(fs.getattr(file).unwrap().atime, at);
    assert_eq!((fs.getattr(file).unwrap().ctime, fs.getattr(still).unwrap().atime), before);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("touched");
}

#[test]
fn attributes_fill_the_inode_and_then_a_block() {
    let image = Image::new(16);
    let fs = image.mount();
    let ino = create(&fs, b"file");
    let blocks = || fs.getattr(ino).unwrap().blocks;
    let set = |name: &[u8], len: usize| fs.setxattr(ino, name, &vec![b'x'; len], XattrMode::Set);
    set(b"user.small", 20).unwrap();
    assert_eq!(blocks(), 0);
    set(b"user.large", 2_000).unwrap();
    assert_eq!(blocks(), 8);
    set(b"trusted.t", 100).unwrap();
    set(b"security.s", 0).unwrap();
    assert_eq!(errno(set(b"user.too_large", 3_000)), Some(Errno::NOSPC));
    assert_eq!(errno(set(b"user.too_large", 65_537)), Some(Errno::TOOBIG));
    assert_eq!(errno(set(&[b"user.", &[b'n'; 251][..]].concat(), 1)), Some(Errno::RANGE));
    assert_eq!(errno(set(b"system.data", 1)), Some(Errno::OPNOTSUPP));
    let modes = [(XattrMode::Create, b"user.small"), (XattrMode::Replace, b"user.nothi")];
    let answers = modes.map(|(mode, name)| errno(fs.setxattr(ino, name, b"", mode)));
    assert_eq!(answers, [Some(Errno::EXIST), Some(Errno::NODATA)]);
    // From the inode to the block and back.
    set(b"user.small", 200).unwrap();
    set(b"user.large", 8).unwrap();
    let mut names = fs.listxattr(ino).unwrap();
    names.sort();
    assert_eq!(names, [&b"security.s"[..], b"trusted.t", b"user.large", b"user.small"]);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("attributes");
    assert!(debugfs(&image, &["ea_list file"]).contains("user.large (8)"));
    let fs = image.mount();
    assert_eq!(fs.getxattr(ino, b"user.small").unwrap(), [b'x'; 200]);
    assert_eq!(fs.getxattr(ino, b"security.s").unwrap(), b"");
    for name in names {
        fs.removexattr(ino, &name).unwrap();
        assert_eq!(errno(fs.removexattr(ino, &name)), Some(Errno::NODATA));
    }
    assert_eq!(fs.getattr(ino).unwrap().blocks, 0);
    fs.unlink(fs.root(), b"file").unwrap();
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("without attributes");
}

/// A block of attributes that two files have, as the kernel's cache of equal blocks makes them.
#[test]
fn a_shared_block_is_copied_before_it_changes() {
    let image = Image::with_features(16, "^metadata_csum,uninit_bg");
    let value = vec![b'v'; 1_000];
    let fs = image.mount();
    let (first, second) = (create(&fs, b"first"), create(&fs, b"second"));
    fs.setxattr(first, b"user.both", &value, XattrMode::Set).unwrap();
    let free = fs.statfs().unwrap().blocks_free;
    fs.unmount().unwrap();
    drop(fs);
    let shown = debugfs(&image, &["stat first"]);
    let at = shown.split("File ACL: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let at: u64 = at.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{shown}"));
    let edits = [format!("sif second file_acl {at}"), "sif second blocks 8".into()];
    debugfs(&image, &edits.each_ref().map(String::as_str));
    let file = std::fs::OpenOptions::new().write(true).open(image.name()).unwrap();
    file.write_all_at(&2_u32.to_le_bytes(), at * 4096 + 4).unwrap();
    image.assert_clean("shared");

    let fs = image.mount();
    fs.setxattr(second, b"user.own", &value, XattrMode::Set).unwrap();
    assert_eq!(fs.getxattr(second, b"user.both").unwrap(), value);
    assert_eq!(fs.listxattr(first).unwrap(), [b"user.both"]);
    assert_eq!(fs.statfs().unwrap().blocks_free, free - 1);
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("copied");
    file.write_all_at(&2_u32.to_le_bytes(), at * 4096 + 4).unwrap();
    debugfs(&image, &[&format!("sif second file_acl {at}")]);
    let fs = image.mount();
    fs.unlink(fs.root(), b"second").unwrap();
    assert_eq!(fs.getxattr(first, b"user.both").unwrap(), value);
    fs.removexattr(first, b"user.both").unwrap();
    fs.unmount().unwrap();
    drop(fs);
    // The copy, which debugfs has cut off from its file, is all that is lost.
    let out = tool("e2fsck", &["-fy", image.name()]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(!text.contains("refcount") && !text.contains("Inode"), "{text}");
}

fn list(perm: [u16; 5]) -> Acl {
    let tags = [Tag::UserObj, Tag::User(7), Tag::GroupObj, Tag::Mask, Tag::Other];
    let entries = tags.into_iter().zip(perm).map(|(tag, perm)| Entry { tag, perm });
    Acl::new(entries.collect()).unwrap()
}

#[test]
fn lists_follow_the_permission_bits_and_are_inherited() {
    let image = Image::new(16);
    let fs = image.mount();
    let dir = fs.mkdir(fs.root(), b"dir", 0o755, Creator::default()).unwrap().ino;
    let default = list([7, 6, 5, 5, 0]);
    fs.setxattr(dir, acl::DEFAULT, &default.to_xattr(), XattrMode::Set).unwrap();
    let file = fs.create(dir, b"file", 0o664, Creator::default()).unwrap();
    assert_eq!(file.perm, 0o640);
    let sub = fs.mkdir(dir, b"sub", 0o777, Creator::default()).unwrap();
    assert_eq!(
        (sub.perm, fs.getxattr(sub.ino, acl::DEFAULT).unwrap()),
        (0o750, default.to_xattr())
    );
    let ino = file.ino;
    fs.setattr(ino, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
    let stored = Acl::from_xattr(&fs.getxattr(ino, acl::ACCESS).unwrap()).unwrap().unwrap();
    assert_eq!(stored.perm(), 0o600);
    fs.setxattr(ino, acl::ACCESS, &list([6, 7, 4, 6, 4]).to_xattr(), XattrMode::Set).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().perm, 0o664);
    let refused = fs.setxattr(ino, acl::DEFAULT, &default.to_xattr(), XattrMode::Set);
    assert_eq!(errno(refused), Some(Errno::ACCESS));
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("lists");
    let fs = image.mount();
    assert_eq!(fs.getxattr(ino, acl::ACCESS).unwrap(), list([6, 7, 4, 6, 4]).to_xattr());
    fs.removexattr(ino, acl::ACCESS).unwrap();
    assert_eq!(errno(fs.getxattr(ino, acl::ACCESS)), Some(Errno::NODATA));
    fs.unmount().unwrap();
    drop(fs);
    image.assert_clean("without one");
}
