//! Copying trees between the host and volumes, with the rules and the words of cp(1).
//!
//! One engine; it copies from a [`Source`] to a [`Sink`], and the host and a mounted volume can be
//! either. Below the destination no symbolic link is followed, and files in the way are removed,
//! never written through: a volume is foreign data, and its names must not lead out of the
//! destination.

mod host;
mod keep;
mod volume;

use std::collections::BTreeMap;

use vfs::{Attr, Errno, FileKind, Result, Seek, Timespec};

pub(crate) use host::Host;
pub(crate) use keep::Keep;
pub(crate) use volume::Found;

use crate::out;
use crate::progress::Progress;

/// Bytes per read and write.
const CHUNK: usize = 1 << 20;
/// What `--sparse=always` looks at for zeroes.
const HOLE: usize = 4096;

/// A file's extended attributes: names and values.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Where a copy comes from.
pub(crate) trait Source {
    /// One file or directory.
    type Node;
    /// An open file.
    type File;

    /// Its name for people.
    fn show(&self, node: &Self::Node) -> String;
    /// Attributes; symbolic links are not followed.
    fn attr(&self, node: &Self::Node) -> Result<Attr>;
    /// Identifies a file: two names of one file have it in common.
    fn identity(&self, node: &Self::Node, attr: &Attr) -> (u64, u64);
    /// What a symbolic link leads to.
    fn follow(&self, node: &Self::Node) -> Result<Self::Node>;
    /// What is in a directory, in the order of the names' bytes.
    fn children(&self, node: &Self::Node) -> Result<Vec<(Vec<u8>, Self::Node)>>;
    /// Contents of a symbolic link.
    fn target(&self, node: &Self::Node) -> Result<Vec<u8>>;
    /// Extended attributes.
    fn xattrs(&self, node: &Self::Node) -> Result<Xattrs>;
    /// Opens a regular file.
    fn open(&self, node: &Self::Node) -> Result<Self::File>;
    /// Reads at `offset`; 0 only at the end.
    fn read(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Next data or hole at or behind `offset`; `None` if there is none.
    fn seek(&self, file: &Self::File, offset: u64, seek: Seek) -> Result<Option<u64>>;
}

/// What to make.
pub(crate) enum New<'a> {
    /// An empty directory.
    Directory,
    /// An empty file.
    File,
    /// A symbolic link.
    Symlink(&'a [u8]),
    /// Anything else, with its device number.
    Special(FileKind, u64),
}

/// Where a copy goes to.
pub(crate) trait Sink {
    /// One file or directory.
    type Node: Clone;
    /// An open file.
    type File;

    /// The name of `path` for people.
    fn show(&self, path: &[u8]) -> String;
    /// What `name` stands for in a directory, if anything.
    fn look(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<(Self::Node, FileKind)>>;
    /// Makes `name`, which is not there.
    fn make(&self, dir: &Self::Node, name: &[u8], new: &New<'_>) -> Result<Self::Node>;
    /// Gives a file one more name.
    fn link(&self, node: &Self::Node, dir: &Self::Node, name: &[u8]) -> Result<()>;
    /// Removes a name that is not a directory's.
    fn remove(&self, dir: &Self::Node, name: &[u8]) -> Result<()>;
    /// Opens a regular file for writing.
    fn open(&self, node: &Self::Node) -> Result<Self::File>;
    /// Writes all of `data`.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;
    /// Sets the size.
    fn set_size(&self, file: &Self::File, size: u64) -> Result<()>;
    /// Sets owner and group; returns whether they are now as requested.
    fn set_owner(&self, node: &Self::Node, uid: u32, gid: u32) -> Result<bool>;
    /// Sets the permission bits; not of a symbolic link.
    fn set_mode(&self, node: &Self::Node, perm: u16) -> Result<()>;
    /// Sets access and modification time.
    fn set_times(&self, node: &Self::Node, atime: Timespec, mtime: Timespec) -> Result<()>;
    /// Sets an extended attribute.
    fn set_xattr(&self, node: &Self::Node, name: &[u8], value: &[u8]) -> Result<()>;
    /// Makes a file durable.
    fn fsync(&self, node: &Self::Node) -> Result<()>;
    /// Whether writing has become impossible.
    fn is_gone(&self) -> bool;
}

/// `--sparse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sparse {
    /// Holes stay holes
    #[default]
    Auto,
    /// Zeroes become holes too
    Always,
    /// Holes become zeroes
    Never,
}

/// How to copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Directories too.
    pub(crate) recursive: bool,
    /// What symbolic links lead to, instead of the links.
    pub(crate) follow: bool,
    /// What is kept besides contents.
    pub(crate) keep: Keep,
    /// What becomes a hole.
    pub(crate) sparse: Sparse,
    /// fsync every file.
    pub(crate) fsync: bool,
    /// Times of the copies.
    pub(crate) times: Times,
}

/// Times of the copies, as far as [`Keep`] keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Times {
    /// Those of the originals.
    #[default]
    Own,
    /// The originals' modification times for both: access times change when files are read.
    Modified,
    /// As `Modified`, but none later than this: the meaning of SOURCE_DATE_EPOCH.
    AtMost(Timespec),
    /// This one.
    All(Timespec),
}

impl Times {
    /// Access and modification time for the copy of a file with `attr`.
    fn of(self, attr: &Attr) -> (Timespec, Timespec) {
        match self {
            Self::Own => (attr.atime, attr.mtime),
            Self::Modified => (attr.mtime, attr.mtime),
            Self::AtMost(latest) => (attr.mtime.min(latest), attr.mtime.min(latest)),
            Self::All(time) => (time, time),
        }
    }
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) symlinks: u64,
    pub(crate) specials: u64,
    pub(crate) hard_links: u64,
    pub(crate) bytes: u64,
    /// What could not be copied completely; reported on standard error.
    pub(crate) errors: u64,
}

impl Counts {
    /// Adds what another copy did.
    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.specials += other.specials;
        self.hard_links += other.hard_links;
        self.bytes += other.bytes;
        self.errors += other.errors;
    }
}

/// One copy.
pub(crate) struct Copy<'a, S: Source, T: Sink> {
    from: &'a S,
    to: &'a T,
    options: &'a Options,
    progress: &'a Progress,
    pub(crate) counts: Counts,
    /// Files with several names, and the first one each was copied to.
    links: BTreeMap<(u64, u64), (T::Node, Vec<u8>)>,
    chunk: Vec<u8>,
}

/// The error is reported and counted; the rest of the tree goes on.
struct Told;

impl<'a, S: Source, T: Sink> Copy<'a, S, T> {
    pub(crate) fn new(
        from: &'a S,
        to: &'a T,
        options: &'a Options,
        progress: &'a Progress,
    ) -> Self {
        let (counts, links) = (Counts::default(), BTreeMap::new());
        Self { from, to, options, progress, counts, links, chunk: vec![0; CHUNK] }
    }

    /// Copies `source` to `name` in the directory `dir`, whose path is `path`.
    pub(crate) fn copy_as(&mut self, source: S::Node, dir: &T::Node, path: &[u8], name: &[u8]) {
        let _told = self.node(source, dir, &join(path, name), name, self.options.recursive);
    }

    /// Copies what is in `source` into the directory `dir`, which gets its attributes.
    pub(crate) fn copy_contents(&mut self, source: S::Node, dir: &T::Node, path: &[u8]) {
        let _told = self.contents_of(&source, dir, path);
    }

    fn contents_of(&mut self, source: &S::Node, dir: &T::Node, path: &[u8]) -> Result<(), Told> {
        let attr = self.stat(source)?;
        if attr.kind != FileKind::Directory {
            let (to, from) = (self.to.show(path), self.from.show(source));
            return Err(self.tell(format!("cannot overwrite directory '{to}' with '{from}'")));
        }
        self.children(source, dir, path)?;
        self.attributes(source, &attr, dir, path)
    }

    fn stat(&mut self, source: &S::Node) -> Result<Attr, Told> {
        let attr = self.from.attr(source);
        attr.map_err(|e| self.fail(format!("cannot stat '{}'", self.from.show(source)), &e))
    }

    fn node(
        &mut self,
        mut source: S::Node,
        dir: &T::Node,
        path: &[u8],
        name: &[u8],
        recursive: bool,
    ) -> Result<(), Told> {
        if self.to.is_gone() {
            return Err(Told);
        }
        let mut attr = self.stat(&source)?;
        if attr.kind == FileKind::Symlink && self.options.follow {
            let found = self.from.follow(&source);
            let show = self.from.show(&source);
            source = found.map_err(|e| self.fail(format!("cannot stat '{show}'"), &e))?;
            attr = self.stat(&source)?;
        }
        if attr.kind == FileKind::Directory {
            if !recursive {
                let from = self.from.show(&source);
                return Err(self.tell(format!("-r not specified; omitting directory '{from}'")));
            }
            let node = self.directory(&source, dir, path, name)?;
            self.children(&source, &node, path)?;
            self.counts.directories += 1;
            self.attributes(&source, &attr, &node, path)?;
        } else {
            self.file_like(&source, &attr, dir, path, name)?;
        }
        self.progress.step();
        Ok(())
    }

    fn children(&mut self, source: &S::Node, dir: &T::Node, path: &[u8]) -> Result<(), Told> {
        let found = self.from.children(source);
        let show = self.from.show(source);
        let found = found.map_err(|e| self.fail(format!("cannot access '{show}'"), &e))?;
        for (name, child) in found {
            // An error with one of them is reported, and the others are copied.
            let _told = self.node(child, dir, &join(path, &name), &name, true);
        }
        Ok(())
    }

    fn directory(
        &mut self,
        source: &S::Node,
        dir: &T::Node,
        path: &[u8],
        name: &[u8],
    ) -> Result<T::Node, Told> {
        let (to, from) = (self.to.show(path), self.from.show(source));
        match self.to.look(dir, name) {
            Ok(Some((node, FileKind::Directory))) => Ok(node),
            Ok(Some(_)) => {
                Err(self
                    .tell(format!("cannot overwrite non-directory '{to}' with directory '{from}'")))
            }
            Ok(None) => self
                .to
                .make(dir, name, &New::Directory)
                .map_err(|e| self.fail(format!("cannot create directory '{to}'"), &e)),
            Err(error) => Err(self.fail(format!("cannot stat '{to}'"), &error)),
        }
    }

    /// Anything but a directory.
    fn file_like(
        &mut self,
        source: &S::Node,
        attr: &Attr,
        dir: &T::Node,
        path: &[u8],
        name: &[u8],
    ) -> Result<(), Told> {
        self.make_room(dir, path, name)?;
        let several = attr.nlink > 1 && self.options.keep.links;
        let identity = self.from.identity(source, attr);
        if let Some((first, was)) = self.links.get(&identity).filter(|_| several) {
            let linked = self.to.link(first, dir, name);
            let (to, was) = (self.to.show(path), self.to.show(was));
            self.counts.hard_links += 1;
            return linked
                .map_err(|e| self.fail(format!("cannot create hard link '{to}' to '{was}'"), &e));
        }
        let node = self.make(source, attr, dir, path, name)?;
        if several {
            self.links.insert(identity, (node.clone(), path.to_vec()));
        }
        if attr.kind == FileKind::Regular {
            self.contents(source, attr, &node, path)?;
        }
        self.attributes(source, attr, &node, path)?;
        if self.options.fsync && attr.kind == FileKind::Regular {
            let to = self.to.show(path);
            let synced = self.to.fsync(&node);
            synced.map_err(|e| self.fail(format!("fsync failed for '{to}'"), &e))?;
        }
        Ok(())
    }

    fn make_room(&mut self, dir: &T::Node, path: &[u8], name: &[u8]) -> Result<(), Told> {
        let to = self.to.show(path);
        match self.to.look(dir, name) {
            Ok(None) => Ok(()),
            Ok(Some((_, FileKind::Directory))) => {
                Err(self.tell(format!("cannot overwrite directory '{to}' with non-directory")))
            }
            Ok(Some(_)) => {
                let removed = self.to.remove(dir, name);
                removed.map_err(|e| self.fail(format!("cannot remove '{to}'"), &e))
            }
            Err(error) => Err(self.fail(format!("cannot stat '{to}'"), &error)),
        }
    }

    fn make(
        &mut self,
        source: &S::Node,
        attr: &Attr,
        dir: &T::Node,
        path: &[u8],
        name: &[u8],
    ) -> Result<T::Node, Told> {
        let (made, what, count) = match attr.kind {
            FileKind::Symlink => {
                let target = self.from.target(source);
                let show = self.from.show(source);
                let target = target
                    .map_err(|e| self.fail(format!("cannot read symbolic link '{show}'"), &e))?;
                let made = self.to.make(dir, name, &New::Symlink(&target));
                (made, "symbolic link", &mut self.counts.symlinks)
            }
            FileKind::Regular | FileKind::Directory => {
                (self.to.make(dir, name, &New::File), "regular file", &mut self.counts.files)
            }
            kind => {
                let made = self.to.make(dir, name, &New::Special(kind, attr.rdev));
                let what = if kind == FileKind::Fifo { "fifo" } else { "special file" };
                (made, what, &mut self.counts.specials)
            }
        };
        *count += u64::from(made.is_ok());
        let to = self.to.show(path);
        made.map_err(|e| self.fail(format!("cannot create {what} '{to}'"), &e))
    }

    fn contents(
        &mut self,
        source: &S::Node,
        attr: &Attr,
        node: &T::Node,
        path: &[u8],
    ) -> Result<(), Told> {
        let (from, to) = (self.from.show(source), self.to.show(path));
        let opened = self.from.open(source);
        let input =
            opened.map_err(|e| self.fail(format!("cannot open '{from}' for reading"), &e))?;
        let opened = self.to.open(node);
        let output =
            opened.map_err(|e| self.fail(format!("cannot open '{to}' for writing"), &e))?;
        let mut chunk = std::mem::take(&mut self.chunk);
        let copied = self.extents(&input, &output, attr.size, &mut chunk);
        self.chunk = chunk;
        copied.map_err(|end| match end {
            End::Read(e) => self.fail(format!("error reading '{from}'"), &e),
            End::Write(e) => self.fail(format!("error writing '{to}'"), &e),
        })
    }

    /// Copies the parts that hold data, as `--sparse` asks.
    fn extents(
        &mut self,
        input: &S::File,
        output: &T::File,
        size: u64,
        chunk: &mut [u8],
    ) -> Result<(), End> {
        if size == 0 {
            // Files of proc(5) claim to be empty and are not.
            return self.range(input, output, 0..u64::MAX, chunk).map(drop);
        }
        let mut offset = 0;
        let mut written = 0;
        while offset < size {
            let mut end = size;
            if self.options.sparse != Sparse::Never {
                let data = self.from.seek(input, offset, Seek::Data).map_err(End::Read)?;
                let Some(data) = data.filter(|data| *data < size) else { break };
                offset = data;
                let hole = self.from.seek(input, offset, Seek::Hole).map_err(End::Read)?;
                end = hole.unwrap_or(size).min(size);
            }
            written = self.range(input, output, offset..end, chunk)?.max(written);
            offset = end.max(offset + 1);
        }
        self.counts.bytes += size;
        if written < size {
            self.to.set_size(output, size).map_err(End::Write)?;
        }
        Ok(())
    }

    /// Copies one range; returns where the last written byte ends.
    fn range(
        &self,
        input: &S::File,
        output: &T::File,
        range: std::ops::Range<u64>,
        chunk: &mut [u8],
    ) -> Result<u64, End> {
        let mut written = 0;
        let mut offset = range.start;
        while offset < range.end {
            let want = usize::try_from(range.end - offset).unwrap_or(usize::MAX).min(chunk.len());
            let got = self.from.read(input, offset, &mut chunk[..want]).map_err(End::Read)?;
            if got == 0 {
                break;
            }
            let pieces = if self.options.sparse == Sparse::Always { HOLE } else { got };
            for (piece, at) in chunk[..got].chunks(pieces).zip((offset..).step_by(pieces)) {
                if pieces == got || piece.iter().any(|byte| *byte != 0) {
                    self.to.write(output, at, piece).map_err(End::Write)?;
                    written = at + piece.len() as u64;
                }
            }
            offset += got as u64;
        }
        Ok(written)
    }

    /// Owner, extended attributes, mode, times, in this order: a new owner clears set-id bits and
    /// capabilities, a new mode changes an ACL's mask, and all of them touch the times.
    fn attributes(
        &mut self,
        source: &S::Node,
        attr: &Attr,
        node: &T::Node,
        path: &[u8],
    ) -> Result<(), Told> {
        let keep = &self.options.keep;
        let to = self.to.show(path);
        let mut perm = keep.perm(attr);
        if keep.ownership {
            match self.to.set_owner(node, attr.uid, attr.gid) {
                Ok(true) => {}
                // Only the owner may give set-id bits.
                Ok(false) => perm &= 0o1777,
                Err(e) => {
                    return Err(self.fail(format!("failed to preserve ownership for '{to}'"), &e));
                }
            }
        }
        let xattrs = if keep.xattr { self.xattrs_of(source)? } else { Vec::new() };
        let (acls, others): (Xattrs, Xattrs) =
            xattrs.into_iter().partition(|(name, _)| name.starts_with(b"system."));
        self.set_xattrs(&others, node, path)?;
        if attr.kind != FileKind::Symlink {
            let set = self.to.set_mode(node, perm);
            set.map_err(|e| self.fail(format!("preserving permissions for '{to}'"), &e))?;
        }
        self.set_xattrs(&acls, node, path)?;
        if keep.timestamps {
            let (atime, mtime) = self.options.times.of(attr);
            let set = self.to.set_times(node, atime, mtime);
            set.map_err(|e| self.fail(format!("preserving times for '{to}'"), &e))?;
        }
        Ok(())
    }

    fn xattrs_of(&mut self, source: &S::Node) -> Result<Xattrs, Told> {
        let found = self.from.xattrs(source);
        let from = self.from.show(source);
        found.map_err(|e| self.fail(format!("getting attributes of '{from}'"), &e))
    }

    fn set_xattrs(&mut self, xattrs: &Xattrs, node: &T::Node, path: &[u8]) -> Result<(), Told> {
        for (name, value) in xattrs {
            match self.to.set_xattr(node, name, value) {
                // Namespaces that the destination does not keep, or not for this user: as with `cp
                // -a`, that is an error only if attributes were asked for by name.
                Err(e)
                    if !self.options.keep.strict_xattr
                        && matches!(e.errno(), Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
                set => set.map_err(|e| {
                    let (name, to) = (out::lossy(name), self.to.show(path));
                    self.fail(format!("setting attribute '{name}' for '{to}'"), &e)
                })?,
            }
        }
        Ok(())
    }

    fn fail(&mut self, what: String, error: &vfs::Error) -> Told {
        self.tell(format!("{what}: {}", out::plain(error)))
    }

    fn tell(&mut self, text: String) -> Told {
        self.counts.errors += 1;
        // After a power cut everything fails, and the cut is what is reported.
        if !self.to.is_gone() {
            self.progress.aside(|| out::complain(&text));
        }
        Told
    }
}

/// Why a file's contents end early.
enum End {
    Read(vfs::Error),
    Write(vfs::Error),
}

/// How many files there are in the tree at `node`.
pub(crate) fn count<S: Source>(from: &S, node: &S::Node) -> u64 {
    let is_dir = from.attr(node).is_ok_and(|attr| attr.kind == FileKind::Directory);
    let below = if is_dir { from.children(node).unwrap_or_default() } else { Vec::new() };
    1 + below.iter().map(|(_, child)| count(from, child)).sum::<u64>()
}

/// About how many blocks of 4 KiB everything below takes: contents, and a node for each file.
pub(crate) fn blocks<S: Source>(from: &S, node: &S::Node) -> u64 {
    let Ok(attr) = from.attr(node) else { return 0 };
    match attr.kind {
        // A hole takes nothing.
        FileKind::Regular => 1 + attr.size.div_ceil(4096).min(attr.blocks.div_ceil(8)),
        FileKind::Directory => {
            let below = from.children(node).unwrap_or_default();
            1 + below.iter().map(|(_, child)| blocks(from, child)).sum::<u64>()
        }
        _ => 1,
    }
}

/// `path/name`.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    [path.strip_suffix(b"/").unwrap_or(path), b"/", name].concat()
}
