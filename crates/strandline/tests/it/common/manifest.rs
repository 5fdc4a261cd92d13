//! A tree of everything a file system can hold, and what lstat(2) and the like report about it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, XattrFlags};

use super::text;

/// Everything that a copy keeps of one file. Sizes and allocation of directories depend on the file
/// system.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: (i64, i64),
    pub atime: Option<(i64, i64)>,
    pub contents: Vec<u8>,
    pub rdev: u64,
    /// First name of the same inode, in byte order.
    pub same_as: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Everything below `root`, by path.
pub fn manifest(root: &Path) -> BTreeMap<Vec<u8>, Entry> {
    let mut entries = BTreeMap::new();
    let mut first_names = BTreeMap::new();
    let mut ahead = vec![PathBuf::new()];
    let mut paths = Vec::new();
    while let Some(relative) = ahead.pop() {
        let path = root.join(&relative);
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            let names = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
            ahead.extend(names.map(|name| relative.join(name)));
        }
        paths.push(relative);
    }
    paths.sort();
    for relative in paths {
        let path = root.join(&relative);
        let name = relative.as_os_str().as_bytes().to_vec();
        let meta = fs::symlink_metadata(&path).unwrap();
        let first = first_names.entry(meta.ino()).or_insert_with(|| name.clone()).clone();
        let contents = if meta.is_symlink() {
            fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else if meta.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        // Looking at a directory or a link changes when it was last looked at.
        let atime = meta.is_file().then(|| (meta.atime(), meta.atime_nsec()));
        let entry = Entry {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            atime,
            contents,
            rdev: meta.rdev(),
            same_as: first,
            xattrs: xattrs(&path),
        };
        entries.insert(name, entry);
    }
    entries
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut room = vec![0; 65536];
    let Ok(len) = rustix::fs::llistxattr(path, &mut room[..]) else { return BTreeMap::new() };
    let names: Vec<Vec<u8>> =
        room[..len].split(|b| *b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
    let value = |name: &[u8]| {
        let mut room = vec![0; 65536];
        let len = rustix::fs::lgetxattr(path, name, &mut room[..]).unwrap();
        room[..len].to_vec()
    };
    names.into_iter().map(|name| (name.clone(), value(&name))).collect()
}

/// Files are read for the manifest first, then times are set, so that they stay what they are.
pub fn set_times(root: &Path) {
    for (i, relative) in manifest(root).keys().rev().enumerate() {
        let path = root.join(OsStr::from_bytes(relative));
        let secs = if i % 3 == 0 { -1_000_000 } else { 1_600_000_000 + i as i64 };
        let time = rustix::fs::Timespec { tv_sec: secs, tv_nsec: 123_456_700 + i as i64 };
        let later = rustix::fs::Timespec { tv_sec: 4_000_000_000, tv_nsec: 999_999_999 };
        let times = rustix::fs::Timestamps { last_access: later, last_modification: time };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(CWD, &path, &times, flags).unwrap();
    }
}

pub fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deeper/empty")).unwrap();
    fs::write(root.join("small"), b"hello\n").unwrap();
    fs::write(root.join("nothing"), b"").unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7) as u8).collect();
    fs::write(root.join("sub/large"), large).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"na\xffme \xc3 \n")), b"not UTF-8").unwrap();
    fs::write(root.join("n".repeat(255)), b"long").unwrap();
    symlink("../small", root.join("sub/link")).unwrap();
    symlink("/nowhere/at/all", root.join("dangling")).unwrap();
    symlink("x".repeat(4000), root.join("long-link")).unwrap();
    fs::hard_link(root.join("small"), root.join("sub/hard")).unwrap();
    fs::hard_link(root.join("sub/link"), root.join("linked-link")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"island", 5 << 20).unwrap();
    sparse.set_len(64 << 20).unwrap();
    rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    fs::set_permissions(root.join("nothing"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(root.join("sub/deeper"), fs::Permissions::from_mode(0o3751)).unwrap();
    for (name, size) in [("user.short", 3), ("user.long", 3000)] {
        let value = vec![b'v'; size];
        rustix::fs::lsetxattr(root.join("sub/large"), name, &value, XattrFlags::empty()).unwrap();
    }
    rustix::fs::lsetxattr(root.join("sub"), "user.dir", b"", XattrFlags::empty()).unwrap();
}

pub fn compare(was: &BTreeMap<Vec<u8>, Entry>, is: &BTreeMap<Vec<u8>, Entry>) {
    let names = |m: &BTreeMap<Vec<u8>, Entry>| -> Vec<String> {
        m.keys().map(|k| String::from_utf8_lossy(k).into_owned()).collect()
    };
    assert_eq!(names(was), names(is));
    for (name, entry) in was {
        assert!(entry == &is[name], "{:?}: {entry:.200?} {:.200?}", text(name), is[name]);
    }
}
