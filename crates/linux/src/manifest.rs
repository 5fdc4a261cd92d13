//! Everything a tree shows, read through our engine or through the kernel, and compared.
//!
//! The two readers look at the same image, so everything must agree: inode numbers, allocated
//! blocks and the sizes of directories too. Contents are kept as a hash of each page that is not
//! all zero.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::Hasher as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustc_hash::FxHasher;
use rustix::fs::{self as sys, AtFlags, CWD, SeekFrom, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use vfs::path::walk;
use vfs::{Attr, FileKind, FileSystem, Ino, Seek, Timespec};

const PAGE: u64 = 4096;
/// Bytes read at a time.
const STEP: usize = 64 << 12;
/// Longest value an extended attribute can have, and longest list of their names.
const XATTR_MAX: usize = 65_536;

/// The names of a tree, escaped as ASCII, and what each stands for. The root is the empty name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest(pub BTreeMap<String, Entry>);

/// Seconds and nanoseconds since the epoch.
pub type Time = (i64, u32);

/// What `stat`, `readlink`, `getfattr` and reading say of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of struct statx")]
pub struct Entry {
    pub ino: u64,
    pub mode: u32,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// Where the volume keeps it and it is not 0.
    pub crtime: Option<Time>,
    /// Of a symbolic link.
    pub target: Option<String>,
    pub xattrs: BTreeMap<String, String>,
    /// Hashes of the pages that are not all zero, by index.
    pub pages: BTreeMap<u64, u64>,
}

impl Manifest {
    /// Everything on the volume `fs`.
    pub fn of_volume(fs: &dyn FileSystem) -> vfs::Result<Self> {
        let root = Entry::of_inode(fs, &fs.getattr(fs.root())?)?;
        let mut entries = BTreeMap::from([(String::new(), root)]);
        walk(fs, fs.root(), &mut |path, attr| {
            entries.insert(escape(path), Entry::of_inode(fs, attr)?);
            Ok(())
        })?;
        Ok(Self(entries))
    }

    /// Everything in the directory `root`, as the running kernel shows it.
    pub fn of_directory(root: &Path) -> Result<Self, Errno> {
        let mut entries = BTreeMap::from([(String::new(), Entry::of_file(root)?)]);
        let mut waiting = vec![root.to_owned()];
        while let Some(dir) = waiting.pop() {
            for entry in std::fs::read_dir(&dir).map_err(errno)? {
                let path = entry.map_err(errno)?.path();
                let name = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_bytes();
                let found = Entry::of_file(&path)?;
                if FileKind::from_mode(found.mode) == Some(FileKind::Directory) {
                    waiting.push(path.clone());
                }
                entries.insert(escape(name), found);
            }
        }
        Ok(Self(entries))
    }

    /// The differences, one line each, `self` being what was expected; empty if there are none.
    pub fn diff(&self, found: &Self) -> Vec<String> {
        let mut words = Vec::new();
        for (name, expected) in &self.0 {
            match found.0.get(name) {
                None => words.push(format!("/{name} is missing")),
                Some(found) => expected.diff(found, name, &mut words),
            }
        }
        let extra = found.0.keys().filter(|name| !self.0.contains_key(*name));
        words.extend(extra.map(|name| format!("/{name} should not be there")));
        words
    }
}

impl Entry {
    fn of_inode(fs: &dyn FileSystem, attr: &Attr) -> vfs::Result<Self> {
        let time = |time: Timespec| (time.secs, time.nanos);
        let mut xattrs = BTreeMap::new();
        for name in fs.listxattr(attr.ino)? {
            xattrs.insert(escape(&name), escape(&fs.getxattr(attr.ino, &name)?));
        }
        let is = |kind| attr.kind == kind;
        Ok(Self {
            ino: attr.ino,
            mode: attr.kind.mode_bits() | u32::from(attr.perm),
            nlink: attr.nlink.into(),
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            crtime: Some(time(attr.crtime)).filter(is_set),
            target: is(FileKind::Symlink).then(|| fs.readlink(attr.ino)).transpose()?.map(escape),
            xattrs,
            pages: if is(FileKind::Regular) {
                volume_pages(fs, attr.ino)?
            } else {
                BTreeMap::new()
            },
        })
    }

    fn of_file(path: &Path) -> Result<Self, Errno> {
        let stat = path.symlink_metadata().map_err(errno)?;
        let statx = sys::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME)?;
        let known = StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::BTIME);
        let time = |secs, nanos: i64| (secs, nanos as u32);
        Ok(Self {
            ino: stat.ino(),
            mode: stat.mode(),
            nlink: stat.nlink(),
            uid: stat.uid(),
            gid: stat.gid(),
            rdev: stat.rdev(),
            size: stat.size(),
            blocks: stat.blocks(),
            atime: time(stat.atime(), stat.atime_nsec()),
            mtime: time(stat.mtime(), stat.mtime_nsec()),
            ctime: time(stat.ctime(), stat.ctime_nsec()),
            crtime: known
                .then_some((statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec))
                .filter(is_set),
            target: if stat.is_symlink() {
                Some(escape(std::fs::read_link(path).map_err(errno)?.as_os_str().as_bytes()))
            } else {
                None
            },
            xattrs: file_xattrs(path)?,
            pages: if stat.is_file() { file_pages(path)? } else { BTreeMap::new() },
        })
    }

    fn diff(&self, found: &Self, name: &str, words: &mut Vec<String>) {
        // Both have the same fields in the same order.
        let fields = |entry: &Self| match serde_json::to_value(entry) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        for ((field, expected), (_, found)) in fields(self).iter().zip(&fields(found)) {
            if expected != found {
                let (found, expected) = (shortened(found), shortened(expected));
                words.push(format!("/{name}: {field} is {found}, should be {expected}"));
            }
        }
    }
}

/// A volume without the field has 0 there, and so has one that was made at no time.
fn is_set(time: &Time) -> bool {
    *time != (0, 0)
}

fn shortened(value: &serde_json::Value) -> String {
    let mut text = value.to_string();
    if text.len() > 200 {
        let total = text.len();
        text.truncate(200);
        text += &format!("… ({total} characters)");
    }
    text
}

fn volume_pages(fs: &dyn FileSystem, ino: Ino) -> vfs::Result<BTreeMap<u64, u64>> {
    let (mut pages, mut buf, mut offset) = (BTreeMap::new(), vec![0; STEP], 0);
    loop {
        offset = match fs.lseek(ino, offset, Seek::Data) {
            Ok(data) => data / PAGE * PAGE,
            Err(error) if error.errno() == Errno::NXIO => return Ok(pages),
            Err(error) => return Err(error),
        };
        let got = fs.read(ino, offset, &mut buf)?;
        add_pages(&mut pages, offset, &buf[..got]);
        offset += got.max(1) as u64;
    }
}

fn file_pages(path: &Path) -> Result<BTreeMap<u64, u64>, Errno> {
    let file = File::open(path).map_err(errno)?;
    let (mut pages, mut buf, mut offset) = (BTreeMap::new(), vec![0; STEP], 0);
    loop {
        offset = match sys::seek(&file, SeekFrom::Data(offset)) {
            Ok(data) => data / PAGE * PAGE,
            Err(Errno::NXIO) => return Ok(pages),
            Err(error) => return Err(error),
        };
        let got = file.read_at(&mut buf, offset).map_err(errno)?;
        add_pages(&mut pages, offset, &buf[..got]);
        offset += got.max(1) as u64;
    }
}

fn add_pages(pages: &mut BTreeMap<u64, u64>, offset: u64, bytes: &[u8]) {
    for (page, bytes) in (offset / PAGE..).zip(bytes.chunks(PAGE as usize)) {
        if bytes.iter().any(|&byte| byte != 0) {
            let mut hasher = FxHasher::default();
            hasher.write(bytes);
            pages.insert(page, hasher.finish());
        }
    }
}

fn file_xattrs(path: &Path) -> Result<BTreeMap<String, String>, Errno> {
    let mut list = vec![0_u8; XATTR_MAX];
    let length = sys::llistxattr(path, list.as_mut_slice())?;
    let mut xattrs = BTreeMap::new();
    for name in list[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0_u8; XATTR_MAX];
        let length = sys::lgetxattr(path, name, value.as_mut_slice())?;
        xattrs.insert(escape(name), escape(&value[..length]));
    }
    Ok(xattrs)
}

fn escape(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().escape_ascii().to_string()
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
