//! What a directory holds: names, contents and permissions, read from a volume and written to a
//! directory of the host. Times, owners and extended attributes are left out.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use vfs::path::walk;
use vfs::{Attr, Creator, Errno, FileKind, FileSystem, Ino, MemFs, Result, Seek, SetAttr};

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// Pages read at a time.
const STEP: u64 = 64;

/// Contents of a page; the last one of a file may be short. Its digest is taken once, because
/// states have most of their pages in common.
#[derive(Clone, Debug)]
pub(super) struct Page {
    bytes: Arc<[u8]>,
    digest: u64,
    is_zero: bool,
}

impl Page {
    pub(super) fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes: Arc<[u8]> = bytes.into();
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let is_zero = bytes.iter().all(|&byte| byte == 0);
        Self { digest: hasher.finish(), bytes, is_zero }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.is_zero
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Page {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.bytes == other.bytes
    }
}

impl Eq for Page {}

impl Hash for Page {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
    }
}

/// A name and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    Directory {
        perm: u16,
    },
    File {
        perm: u16,
        size: u64,
        /// Pages that are not all zeros.
        pages: BTreeMap<u64, Page>,
    },
    /// Another name of the file at this path.
    Link(Vec<u8>),
    Symlink(Vec<u8>),
    /// A pipe, a socket or a device: it has a name and nothing else.
    Special,
}

/// All below a directory, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tree(pub(super) BTreeMap<Vec<u8>, Entry>);

impl Tree {
    /// Reads all below the directory `dir`.
    pub(super) fn read(fs: &dyn FileSystem, dir: Ino) -> Result<Self> {
        let mut tree = Self::default();
        let mut first_path: BTreeMap<Ino, Vec<u8>> = BTreeMap::new();
        walk(fs, dir, &mut |path, attr| {
            let is_file = attr.kind == FileKind::Regular;
            let entry = match first_path.get(&attr.ino).filter(|_| is_file) {
                Some(first) => Entry::Link(first.clone()),
                None => read(fs, attr)?,
            };
            first_path.entry(attr.ino).or_insert_with(|| path.to_vec());
            tree.0.insert(path.to_vec(), entry);
            Ok(())
        })?;
        Ok(tree)
    }

    /// A number that tells it from other trees.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Writes it into the empty directory `to` of the host. Its owner may do everything there.
    ///
    /// # Errors
    ///
    /// Those of the host's calls.
    pub fn write(&self, to: &Path) -> io::Result<()> {
        // In the order of paths, a directory comes before what is in it.
        for (path, entry) in &self.0 {
            let path = to.join(OsStr::from_bytes(path));
            match entry {
                Entry::Directory { perm } => {
                    fs::create_dir(&path)?;
                    let perm = Permissions::from_mode(u32::from(*perm) & 0o777 | 0o700);
                    fs::set_permissions(&path, perm)?;
                }
                Entry::File { perm, size, pages } => {
                    let file = File::create_new(&path)?;
                    file.set_len(*size)?;
                    for (page, bytes) in pages {
                        file.write_all_at(bytes, page * PAGE)?;
                    }
                    file.set_permissions(Permissions::from_mode(u32::from(*perm) & 0o777))?;
                }
                Entry::Symlink(target) => symlink(OsStr::from_bytes(target), &path)?,
                Entry::Link(_) => {}
                Entry::Special => drop(File::create_new(&path)?),
            }
        }
        for (path, entry) in &self.0 {
            if let Entry::Link(first) = entry {
                let [path, first] = [path, first].map(|path| to.join(OsStr::from_bytes(path)));
                fs::hard_link(first, path)?;
            }
        }
        Ok(())
    }

    /// The same in memory, for `uid` and `gid`.
    pub(super) fn in_memory(&self, uid: u32, gid: u32) -> crate::Result<MemFs> {
        let (fs, creator) = (MemFs::new(), Creator { uid, gid });
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        fs.setattr(fs.root(), &set).map_err(crate::Error::at("chown", b"/"))?;
        let mut made: BTreeMap<&[u8], Ino> = BTreeMap::from([(&b""[..], fs.root())]);
        let links = |entry: &Entry| matches!(entry, Entry::Link(_));
        // Links come last, because they may be sorted before what they are of.
        let (later, first): (Vec<_>, Vec<_>) = self.0.iter().partition(|(_, entry)| links(entry));
        for (path, entry) in first.into_iter().chain(later) {
            let ino = put(&fs, &made, path, entry, creator);
            made.insert(path, ino.map_err(crate::Error::at("create", path))?);
        }
        Ok(fs)
    }

    /// In a few words, one line for each name: kind, size and how the contents begin.
    pub fn words(&self) -> Vec<String> {
        let shown = |(path, entry): (&Vec<u8>, &Entry)| {
            let path = String::from_utf8_lossy(path);
            match entry {
                Entry::Directory { .. } => format!("{path}/"),
                Entry::File { size: 0, .. } => format!("{path}: empty"),
                Entry::File { size, pages, .. } => {
                    format!("{path}: {size} bytes, {}", beginning(*size, pages))
                }
                Entry::Link(first) => format!("{path}: a link to {}", lossy(first)),
                Entry::Symlink(target) => format!("{path} -> {}", lossy(target)),
                Entry::Special => format!("{path}: a special file"),
            }
        };
        self.0.iter().map(shown).collect()
    }
}

/// Makes an entry whose directory is there.
fn put(
    fs: &MemFs,
    made: &BTreeMap<&[u8], Ino>,
    path: &[u8],
    entry: &Entry,
    creator: Creator,
) -> Result<Ino> {
    let at = path.iter().rposition(|byte| *byte == b'/');
    let (dir, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
    let dir = *made.get(dir).ok_or(Errno::NOENT)?;
    Ok(match entry {
        Entry::Directory { perm } => fs.mkdir(dir, name, *perm, creator)?.ino,
        Entry::Symlink(target) => fs.symlink(dir, name, target, creator)?.ino,
        Entry::Special => fs.mknod(dir, name, FileKind::Fifo, 0o600, 0, creator)?.ino,
        Entry::Link(first) => {
            let first = *made.get(&first[..]).ok_or(Errno::NOENT)?;
            fs.link(first, dir, name)?.ino
        }
        Entry::File { perm, size, pages } => {
            let ino = fs.create(dir, name, *perm, creator)?.ino;
            for (page, bytes) in pages {
                vfs::path::write_all(fs, ino, page * PAGE, bytes)?;
            }
            fs.setattr(ino, &SetAttr { size: Some(*size), ..SetAttr::default() })?.ino
        }
    })
}

fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Bytes of contents that are shown.
const SHOWN: usize = 24;

fn beginning(size: u64, pages: &BTreeMap<u64, Page>) -> String {
    if pages.is_empty() {
        return "all zeros".into();
    }
    let short = size.min(SHOWN as u64) as usize;
    let first = pages.get(&0).map_or(&[][..], |page| &page[..page.len().min(short)]);
    let mut first = first.to_vec();
    first.resize(short, 0);
    let more = if size > SHOWN as u64 { "…" } else { "" };
    format!("\"{}\"{more}", first.escape_ascii())
}

fn read(fs: &dyn FileSystem, attr: &Attr) -> Result<Entry> {
    Ok(match attr.kind {
        FileKind::Directory => Entry::Directory { perm: attr.perm },
        FileKind::Symlink => Entry::Symlink(fs.readlink(attr.ino)?),
        FileKind::Regular => {
            Entry::File { perm: attr.perm, size: attr.size, pages: pages(fs, attr)? }
        }
        _ => Entry::Special,
    })
}

/// The pages of a file that are not all zeros. Holes are not read.
fn pages(fs: &dyn FileSystem, attr: &Attr) -> Result<BTreeMap<u64, Page>> {
    let mut pages = BTreeMap::new();
    let mut buf = vec![0; (STEP * PAGE) as usize];
    let mut at = 0;
    while at < attr.size {
        at = match fs.lseek(attr.ino, at, Seek::Data) {
            Ok(data) => data / PAGE * PAGE,
            Err(error) if error.errno() == Errno::NXIO => break,
            Err(error) => return Err(error),
        };
        let len = fs.read(attr.ino, at, &mut buf)?;
        for (bytes, n) in buf[..len].chunks(PAGE as usize).zip(at / PAGE..) {
            let page = Page::new(bytes);
            if !page.is_zero() {
                pages.insert(n, page);
            }
        }
        at += STEP * PAGE;
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_comes_back_from_the_host_as_it_was() {
        let fs = MemFs::new();
        let who = Creator::default();
        let dir = fs.mkdir(fs.root(), b"d", 0o750, who).unwrap().ino;
        let file = fs.create(dir, b"a", 0o640, who).unwrap().ino;
        fs.write(file, 10_000, b"text").unwrap();
        fs.setattr(file, &SetAttr { size: Some(20_000), ..SetAttr::default() }).unwrap();
        fs.link(file, fs.root(), b"z").unwrap();
        fs.symlink(fs.root(), b"to", b"d/a", who).unwrap();
        let tree = Tree::read(&fs, fs.root()).unwrap();
        let host = tempfile::tempdir().unwrap();
        tree.write(host.path()).unwrap();
        let bytes = fs::read(host.path().join("to")).unwrap();
        assert_eq!((bytes.len(), &bytes[10_000..10_004]), (20_000, &b"text"[..]));
        let inode = |name| {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(host.path().join(name)).unwrap().ino()
        };
        assert_eq!(inode("d/a"), inode("z"));
        assert_eq!(tree.words()[0], "d/");
        let memory = tree.in_memory(3, 4).unwrap();
        assert_eq!(Tree::read(&memory, memory.root()).unwrap(), tree);
        let owned = memory.lookup(memory.root(), b"z").unwrap();
        assert_eq!((owned.uid, owned.gid, owned.nlink), (3, 4, 2));
        fs.write(file, 0, b"x").unwrap();
        assert_ne!(Tree::read(&fs, fs.root()).unwrap().digest(), tree.digest());
    }
}
