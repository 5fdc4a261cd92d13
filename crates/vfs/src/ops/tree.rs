//! What a file system holds, by path, and in words how two of them differ.

use std::collections::BTreeMap;

use crate::path::walk;
use crate::{Attr, Errno, FileKind, FileSystem, Ino, Result, Seek};

const PAGE: usize = 4096;
/// Bytes read at a time.
const STEP: usize = 64 * PAGE;
/// A difference names this many pages; it only counts the others.
const PAGES_NAMED: usize = 4;

/// Everything below the root, and the root itself as the empty path. Inode numbers, times,
/// allocated blocks and the size of directories are left out: file systems may differ in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<Vec<u8>, TreeNode>);

/// One name and the inode behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// File type.
    pub kind: FileKind,
    /// Permission bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub nlink: u32,
    /// Bytes; 0 for a directory.
    pub size: u64,
    /// Device number.
    pub rdev: u64,
    /// Hash of each 4 KiB page that is not all zeroes, by index.
    pub pages: BTreeMap<u64, u64>,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of the same inode, in the byte order of the walk; `None` if this is it.
    pub same_as: Option<Vec<u8>>,
}

/// Reads all of `fs`. Fails if any read fails.
pub fn snapshot(fs: &dyn FileSystem) -> Result<Tree> {
    let mut tree = Tree::default();
    let mut first_path: BTreeMap<Ino, Vec<u8>> = BTreeMap::new();
    let root = fs.getattr(fs.root())?;
    tree.0.insert(Vec::new(), TreeNode::read(fs, &root)?);
    walk(fs, fs.root(), &mut |path, attr| {
        let mut node = match first_path.get(&attr.ino).and_then(|first| tree.0.get(first)) {
            // The contents of an inode are read only once.
            Some(seen) => seen.clone(),
            None => TreeNode::read(fs, attr)?,
        };
        node.same_as = first_path.get(&attr.ino).cloned();
        first_path.entry(attr.ino).or_insert_with(|| path.to_vec());
        tree.0.insert(path.to_vec(), node);
        Ok(())
    })?;
    Ok(tree)
}

impl Tree {
    /// The differences, one sentence each; empty if there are none. `self` is what was expected and
    /// `other` what was found.
    pub fn diff(&self, other: &Self) -> Vec<String> {
        let mut words = Vec::new();
        for (path, expected) in &self.0 {
            match other.0.get(path) {
                None => words.push(format!("{} is missing", shown(path))),
                Some(found) => expected.diff(found, &shown(path), &mut words),
            }
        }
        for path in other.0.keys().filter(|path| !self.0.contains_key(*path)) {
            words.push(format!("{} should not be there", shown(path)));
        }
        words
    }
}

impl TreeNode {
    fn read(fs: &dyn FileSystem, attr: &Attr) -> Result<Self> {
        let mut xattrs = BTreeMap::new();
        for name in fs.listxattr(attr.ino)? {
            let value = fs.getxattr(attr.ino, &name)?;
            xattrs.insert(name, value);
        }
        Ok(Self {
            kind: attr.kind,
            perm: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            size: if attr.kind == FileKind::Directory { 0 } else { attr.size },
            rdev: attr.rdev,
            pages: match attr.kind {
                FileKind::Regular => page_hashes(fs, attr.ino)?,
                _ => BTreeMap::new(),
            },
            target: match attr.kind {
                FileKind::Symlink => Some(fs.readlink(attr.ino)?),
                _ => None,
            },
            xattrs,
            same_as: None,
        })
    }

    fn diff(&self, found: &Self, path: &str, words: &mut Vec<String>) {
        let mut differ = |what: &str, expected: String, found: String| {
            if expected != found {
                words.push(format!("{path}: {what} is {found}, should be {expected}"));
            }
        };
        let octal = |perm: u16| format!("{perm:o}");
        let bytes = |bytes: &Option<Vec<u8>>| bytes.as_deref().map_or("none".into(), shown);
        differ("kind", format!("{:?}", self.kind), format!("{:?}", found.kind));
        differ("mode", octal(self.perm), octal(found.perm));
        differ("owner", self.uid.to_string(), found.uid.to_string());
        differ("group", self.gid.to_string(), found.gid.to_string());
        differ("link count", self.nlink.to_string(), found.nlink.to_string());
        differ("size", self.size.to_string(), found.size.to_string());
        differ("device", self.rdev.to_string(), found.rdev.to_string());
        differ("target", bytes(&self.target), bytes(&found.target));
        differ("first name of the inode", bytes(&self.same_as), bytes(&found.same_as));
        for name in
            self.xattrs.keys().chain(found.xattrs.keys().filter(|n| !self.xattrs.contains_key(*n)))
        {
            let value = |node: &Self| match node.xattrs.get(name) {
                Some(value) => format!("{} bytes {}", value.len(), value.escape_ascii()),
                None => "none".into(),
            };
            differ(&format!("attribute {}", name.escape_ascii()), value(self), value(found));
        }
        words.extend(self.diff_pages(found).map(|what| format!("{path}: {what}")));
    }

    fn diff_pages(&self, found: &Self) -> Option<String> {
        let state = |node: &Self, page| node.pages.get(page).copied();
        let all: std::collections::BTreeSet<&u64> =
            self.pages.keys().chain(found.pages.keys()).collect();
        let wrong: Vec<&u64> =
            all.into_iter().filter(|page| state(self, page) != state(found, page)).collect();
        if wrong.is_empty() {
            return None;
        }
        let named: Vec<String> = wrong
            .iter()
            .take(PAGES_NAMED)
            .map(|page| match (state(self, page), state(found, page)) {
                (Some(_), None) => format!("{page} (zeroes)"),
                (None, Some(_)) => format!("{page} (should be zeroes)"),
                _ => page.to_string(),
            })
            .collect();
        Some(format!("{} pages have wrong contents: {}", wrong.len(), named.join(", ")))
    }
}

/// Hashes the pages that are not all zeroes. Holes are skipped where the file system reports them,
/// so a sparse file costs only what it holds.
fn page_hashes(fs: &dyn FileSystem, ino: Ino) -> Result<BTreeMap<u64, u64>> {
    let mut hashes = BTreeMap::new();
    let mut buf = vec![0; STEP];
    let mut offset = 0;
    loop {
        offset = match fs.lseek(ino, offset, Seek::Data) {
            Ok(data) => data / PAGE as u64 * PAGE as u64,
            Err(error) if error.errno() == Errno::NXIO => return Ok(hashes),
            Err(error) => return Err(error),
        };
        let got = fs.read(ino, offset, &mut buf)?;
        if got == 0 {
            return Ok(hashes);
        }
        for (page, bytes) in (offset / PAGE as u64..).zip(buf[..got].chunks(PAGE)) {
            if bytes.iter().any(|&b| b != 0) {
                hashes.insert(page, hash(bytes));
            }
        }
        offset += got as u64;
    }
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        cores::mix(sum.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_add(sum)
    })
}

fn shown(path: &[u8]) -> String {
    if path.is_empty() { "the root".into() } else { path.escape_ascii().to_string() }
}
