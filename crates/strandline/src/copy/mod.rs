//! Copying trees between the host and volumes, with the rules and the words of cp(1).
//!
//! One engine; it copies from a [`Source`] to a [`Sink`], and the host and a mounted volume can be
//! either. Below the destination no symbolic link is followed, and files in the way are removed,
//! never written through: a volume is foreign data, and its names must not lead out of the
//! destination.

mod attributes;
mod contents;
mod ends;
mod host;
mod keep;
mod volume;

use std::collections::BTreeMap;

use vfs::{Attr, FileKind, Result, Timespec};

pub(crate) use ends::{New, Sink, Source, Xattrs};
pub(crate) use host::Host;
pub(crate) use keep::Keep;
pub(crate) use volume::Found;

use crate::interrupt::Interrupt;
use crate::out;
use crate::progress::Progress;

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
    /// When to stop.
    pub(crate) interrupt: Interrupt,
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
        Self { from, to, options, progress, counts, links, chunk: vec![0; contents::CHUNK] }
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
        if self.to.is_gone() || self.options.interrupt.came() {
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
            let copied = self.contents(source, attr, &node, path);
            // What is there at the end is whole.
            if self.options.interrupt.came() && copied.is_err() {
                self.remove(dir, path, name)?;
            }
            copied?;
            self.counts.files += 1;
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
            Ok(Some(_)) => self.remove(dir, path, name),
            Err(error) => Err(self.fail(format!("cannot stat '{to}'"), &error)),
        }
    }

    fn remove(&mut self, dir: &T::Node, path: &[u8], name: &[u8]) -> Result<(), Told> {
        let removed = self.to.remove(dir, name);
        removed.map_err(|e| self.fail(format!("cannot remove '{}'", self.to.show(path)), &e))
    }

    fn make(
        &mut self,
        source: &S::Node,
        attr: &Attr,
        dir: &T::Node,
        path: &[u8],
        name: &[u8],
    ) -> Result<T::Node, Told> {
        let (made, what) = match attr.kind {
            FileKind::Symlink => {
                let target = self.from.target(source);
                let show = self.from.show(source);
                let target = target
                    .map_err(|e| self.fail(format!("cannot read symbolic link '{show}'"), &e))?;
                let made = self.to.make(dir, name, &New::Symlink(&target));
                self.counts.symlinks += u64::from(made.is_ok());
                (made, "symbolic link")
            }
            FileKind::Regular | FileKind::Directory => {
                // It counts when its contents are there.
                (self.to.make(dir, name, &New::File), "regular file")
            }
            kind => {
                let made = self.to.make(dir, name, &New::Special(kind, attr.rdev));
                let what = if kind == FileKind::Fifo { "fifo" } else { "special file" };
                self.counts.specials += u64::from(made.is_ok());
                (made, what)
            }
        };
        let to = self.to.show(path);
        made.map_err(|e| self.fail(format!("cannot create {what} '{to}'"), &e))
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

/// How many files there are in the tree at `node`.
pub(crate) fn count<S: Source>(from: &S, node: &S::Node) -> u64 {
    let is_dir = from.attr(node).is_ok_and(|attr| attr.kind == FileKind::Directory);
    let below = if is_dir { from.children(node).unwrap_or_default() } else { Vec::new() };
    1 + below.iter().map(|(_, child)| count(from, child)).sum::<u64>()
}

/// How many blocks of 4 KiB everything below takes at least: contents, and a node for each file,
/// which has room for the contents of small ones. Of several names one counts.
pub(crate) fn blocks<S: Source>(from: &S, node: &S::Node) -> u64 {
    let Ok(attr) = from.attr(node) else { return 0 };
    match attr.kind {
        // A hole takes nothing.
        FileKind::Regular if attr.nlink > 1 => 0,
        FileKind::Regular if attr.size < 4096 => 1,
        FileKind::Regular => 1 + attr.size.div_ceil(4096).min(attr.blocks / 8),
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
