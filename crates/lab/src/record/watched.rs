//! A file system in memory that records what is done to it, as steps of a script: mounted, it makes
//! the run of any program a workload.
//!
//! Calls that fail or only read change nothing and are left out. Bytes are made up, as for a trace.
//! Calls are served one at a time, so that the steps are in the order of their effects.

use cores::Mutex;
use rustc_hash::FxHashMap;
use vfs::kind::{Atomic, Recovery, Volume};
use vfs::ops::Op;
use vfs::{
    Attr, Creator, DirEntry, Errno, FallocateMode, FileKind, FileSystem, Ino, MemFs, RenameFlags,
    Result, Seek, SetAttr, StatFs, XattrMode,
};

use super::known::{Id, ROOT, Tree};
use crate::workload::Script;

/// See the module's header.
pub struct Watched {
    fs: MemFs,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    tree: Tree,
    ids: FxHashMap<Ino, Id>,
    /// Files of `O_TMPFILE` that have no name yet, with the directory and the name that stand in
    /// for it: scripts make files by name.
    nameless: FxHashMap<Ino, (Ino, Vec<u8>)>,
}

impl Noted {
    /// The path or handle of an inode.
    fn path(&self, ino: Ino) -> Result<String> {
        let id = self.ids.get(&ino).ok_or(Errno::IO)?;
        self.tree.path(*id).ok_or(Errno::IO.into())
    }

    /// The path of a name in a directory. A workload is text, and so a name has to be.
    fn child(&self, dir: Ino, name: &[u8]) -> Result<String> {
        let name = text(name)?;
        let dir = self.path(dir)?;
        Ok(if dir == "/" { name } else { format!("{dir}/{name}") })
    }

    fn made(&mut self, ino: Ino, path: &str, is_dir: bool, op: impl FnOnce(String) -> Op) {
        if let Some(id) = self.tree.make(path, is_dir, false, op) {
            self.ids.insert(ino, id);
        }
    }
}

fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Errno::ILSEQ.into())
}

impl Default for Watched {
    fn default() -> Self {
        Self::new()
    }
}

impl Watched {
    /// An empty file system, and nothing done yet.
    pub fn new() -> Self {
        let fs = MemFs::new();
        let mut noted = Noted::default();
        noted.ids.insert(fs.root(), ROOT);
        Self { fs, noted: Mutex::new(noted) }
    }

    /// Everything done until now is preparation: durable before the power may fail.
    pub fn begin(&self) {
        self.noted.lock().tree.begin();
    }

    /// Ends the recording; returns the steps.
    ///
    /// # Errors
    ///
    /// Nothing was done, or more than a script may do.
    pub fn script(&self, name: &str) -> crate::Result<Script> {
        let steps = std::mem::take(&mut *self.noted.lock()).tree.into_steps();
        if steps.len() < 2 {
            return Err(crate::Error::Usage(format!("{name}: it changed nothing")));
        }
        Script::of_steps(name, steps, None, "")
    }

    /// Does something to one inode, and records it.
    fn on<T>(
        &self,
        ino: Ino,
        call: impl FnOnce(&MemFs) -> Result<T>,
        op: impl FnOnce(String, &mut Tree) -> Op,
    ) -> Result<T> {
        let mut noted = self.noted.lock();
        let path = noted.path(ino)?;
        let done = call(&self.fs)?;
        let op = op(path, &mut noted.tree);
        noted.tree.push(op);
        Ok(done)
    }
}

impl Volume for Watched {
    fn recovery(&self) -> Recovery {
        self.fs.recovery()
    }

    // Memory has neither flags nor atomic writes. Linux says the same of file systems that lack
    // them, and programs then do without.
    fn flags(&self, _ino: Ino) -> Result<u32> {
        Err(Errno::NOTTY.into())
    }

    fn set_flags(&self, _ino: Ino, _flags: u32) -> Result<()> {
        Err(Errno::NOTTY.into())
    }

    fn atomic_write(&self, _ino: Ino, _step: Atomic) -> Result<()> {
        Err(Errno::NOTTY.into())
    }

    fn tmpfile(&self, parent: Ino, perm: u16, creator: Creator) -> Result<Attr> {
        let mut noted = self.noted.lock();
        let name = format!(".tmpfile-{}", noted.ids.len()).into_bytes();
        let path = noted.child(parent, &name)?;
        let attr = self.fs.create(parent, &name, perm, creator)?;
        noted.made(attr.ino, &path, false, |path| Op::Create { path, perm });
        noted.nameless.insert(attr.ino, (parent, name));
        self.fs.open(attr.ino)?;
        if let Some(&id) = noted.ids.get(&attr.ino) {
            noted.tree.open(id);
        }
        Ok(Attr { nlink: 0, ..attr })
    }
}

impl FileSystem for Watched {
    fn root(&self) -> Ino {
        self.fs.root()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.fs.lookup(parent, name)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.fs.getattr(ino)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let mut noted = self.noted.lock();
        let path = noted.path(ino)?;
        let attr = self.fs.setattr(ino, set)?;
        if set.uid.or(set.gid).is_some() {
            noted.tree.push(Op::Chown { path: path.clone(), uid: attr.uid, gid: attr.gid });
        }
        if let Some(perm) = set.perm {
            noted.tree.push(Op::Chmod { path: path.clone(), perm });
        }
        if let Some(size) = set.size {
            noted.tree.push(Op::Truncate { path, size });
        }
        Ok(attr)
    }

    fn mknod(
        &self,
        parent: Ino,
        name: &[u8],
        kind: FileKind,
        perm: u16,
        rdev: u64,
        creator: Creator,
    ) -> Result<Attr> {
        if !matches!(kind, FileKind::Regular | FileKind::Fifo | FileKind::Socket) {
            return Err(Errno::PERM.into());
        }
        let mut noted = self.noted.lock();
        let path = noted.child(parent, name)?;
        let attr = self.fs.mknod(parent, name, kind, perm, rdev, creator)?;
        noted.made(attr.ino, &path, false, |path| match kind {
            FileKind::Regular => Op::Create { path, perm },
            _ => Op::Mknod { path, kind, perm, rdev },
        });
        Ok(attr)
    }

    fn mkdir(&self, parent: Ino, name: &[u8], perm: u16, creator: Creator) -> Result<Attr> {
        let mut noted = self.noted.lock();
        let path = noted.child(parent, name)?;
        let attr = self.fs.mkdir(parent, name, perm, creator)?;
        noted.made(attr.ino, &path, true, |path| Op::Mkdir { path, perm });
        Ok(attr)
    }

    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], creator: Creator) -> Result<Attr> {
        let mut noted = self.noted.lock();
        let (path, to) = (noted.child(parent, name)?, text(target)?);
        let attr = self.fs.symlink(parent, name, target, creator)?;
        noted.made(attr.ino, &path, false, |path| Op::Symlink { target: to, path });
        Ok(attr)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.fs.readlink(ino)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let mut noted = self.noted.lock();
        let (from, path) = (noted.path(ino)?, noted.child(parent, name)?);
        if let Some((dir, stand_in)) = noted.nameless.get(&ino) {
            self.fs.rename(*dir, stand_in, parent, name, RenameFlags::NOREPLACE)?;
            noted.nameless.remove(&ino);
            noted.tree.rename(&from, &path);
            return self.fs.getattr(ino);
        }
        let attr = self.fs.link(ino, parent, name)?;
        noted.tree.link(&from, &path);
        Ok(attr)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut noted = self.noted.lock();
        let path = noted.child(parent, name)?;
        self.fs.unlink(parent, name)?;
        noted.tree.unlink(&path, false);
        Ok(())
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut noted = self.noted.lock();
        let path = noted.child(parent, name)?;
        self.fs.rmdir(parent, name)?;
        noted.tree.unlink(&path, true);
        Ok(())
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        // A script's renames have no other.
        if !RenameFlags::NOREPLACE.contains(flags) {
            return Err(Errno::INVAL.into());
        }
        let mut noted = self.noted.lock();
        let (from, path) = (noted.child(parent, name)?, noted.child(new_parent, new_name)?);
        self.fs.rename(parent, name, new_parent, new_name, flags)?;
        noted.tree.rename(&from, &path);
        Ok(())
    }

    fn open(&self, ino: Ino) -> Result<()> {
        let mut noted = self.noted.lock();
        self.fs.open(ino)?;
        if let Some(&id) = noted.ids.get(&ino) {
            noted.tree.open(id);
        }
        Ok(())
    }

    fn release(&self, ino: Ino) {
        let mut noted = self.noted.lock();
        if let Some((dir, stand_in)) = noted.nameless.remove(&ino)
            && let Ok(path) = noted.path(ino)
            && self.fs.unlink(dir, &stand_in).is_ok()
        {
            noted.tree.unlink(&path, false);
        }
        self.fs.release(ino);
        if let Some(&id) = noted.ids.get(&ino) {
            noted.tree.close(id);
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read(ino, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let len = data.len() as u64;
        self.on(
            ino,
            |fs| fs.write(ino, offset, data),
            |path, tree| Op::Write { path, offset, len, seed: tree.seed() },
        )
    }

    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.on(
            ino,
            |fs| fs.fsync(ino, datasync),
            |path, _| if datasync { Op::Fdatasync { path } } else { Op::Fsync { path } },
        )
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let moves = FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE;
        if mode.intersects(moves) {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.on(
            ino,
            |fs| fs.fallocate(ino, mode, offset, len),
            |path, _| Op::Fallocate { path, mode, offset, len },
        )
    }

    fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        self.fs.lseek(ino, offset, seek)
    }

    fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.fs.readdir(ino, from, emit)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.getxattr(ino, name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let (len, known) = (value.len() as u64, text(name)?);
        self.on(
            ino,
            |fs| fs.setxattr(ino, name, value, mode),
            |path, tree| {
                let mode = XattrMode::Set;
                Op::SetXattr { path, name: known, len, seed: tree.seed(), mode }
            },
        )
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.fs.listxattr(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let known = text(name)?;
        self.on(
            ino,
            |fs| fs.removexattr(ino, name),
            |path, _| Op::RemoveXattr { path, name: known },
        )
    }

    fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs()
    }

    fn sync(&self) -> Result<()> {
        let mut noted = self.noted.lock();
        self.fs.sync()?;
        noted.tree.push(Op::Sync);
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        self.fs.unmount()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_becomes_text() {
        let fs = Watched::new();
        let (root, who) = (fs.root(), Creator::default());
        let dir = fs.mkdir(root, b"d", 0o755, who).expect("a directory").ino;
        let old = fs.create(dir, b"a b", 0o640, who).expect("a file").ino;
        fs.write(old, 0, &[1; 5000]).expect("a write");
        fs.begin();
        let new = fs.create(root, b"new", 0o644, who).expect("a file").ino;
        fs.open(old).expect("it is there");
        fs.write(new, 0, b"newer").expect("a write");
        fs.fsync(new, true).expect("a sync");
        fs.rename(root, b"new", dir, b"a b", RenameFlags::empty()).expect("a rename");
        fs.write(old, 5000, b"nobody finds this again").expect("it is open");
        fs.release(old);
        fs.setattr(new, &SetAttr { perm: Some(0o600), size: Some(3), ..SetAttr::default() })
            .expect("attributes");
        fs.unlink(root, b"new").expect_err("it is called something else now");
        fs.fsync(root, false).expect("a sync");
        let script = fs.script("a test").expect("something was done");
        let want = "\
mkdir d 755\ncreate d/a%20b 640\nwrite d/a%20b 0+5000 seed=1\nbegin\ncreate new 644\n\
write new 0+5 seed=2\nfdatasync new\nopen d/a%20b h2\nrename new d/a%20b none\n\
write #h2 5000+23 seed=3\nclose h2\nchmod d/a%20b 600\ntruncate d/a%20b 3\nfsync /\n";
        assert_eq!(script.text(), want);
        assert_eq!(Script::parse(want, "a test").expect("a script").steps(), script.steps());
    }

    #[test]
    fn what_a_script_cannot_do_is_refused() {
        let fs = Watched::new();
        let (root, who) = (fs.root(), Creator::default());
        let errno = |result: Result<()>| result.expect_err("refused").errno();
        let odd = fs.create(root, b"\xff", 0o644, who).map(drop);
        assert_eq!(errno(odd), Errno::ILSEQ);
        let device = fs.mknod(root, b"null", FileKind::CharDevice, 0o666, 0x103, who).map(drop);
        assert_eq!(errno(device), Errno::PERM);
        fs.create(root, b"a", 0o644, who).expect("a file");
        fs.create(root, b"b", 0o644, who).expect("a file");
        let exchange = fs.rename(root, b"a", root, b"b", RenameFlags::EXCHANGE);
        assert_eq!(errno(exchange), Errno::INVAL);
        assert!(Watched::new().script("nothing").is_err());
    }

    #[test]
    fn files_begin_without_a_name() {
        let watched = Watched::new();
        watched.begin();
        let (root, who) = (watched.root(), Creator::default());
        let kept = watched.tmpfile(root, 0o644, who).unwrap();
        assert_eq!(kept.nlink, 0);
        watched.write(kept.ino, 0, b"contents").unwrap();
        watched.fsync(kept.ino, false).unwrap();
        assert_eq!(watched.link(kept.ino, root, b"kept").unwrap().nlink, 1);
        watched.release(kept.ino);
        let dropped = watched.tmpfile(root, 0o644, who).unwrap();
        watched.write(dropped.ino, 0, b"for nobody").unwrap();
        watched.release(dropped.ino);
        let mut names = Vec::new();
        watched
            .readdir(root, 0, &mut |entry| {
                names.push(entry.name);
                true
            })
            .unwrap();
        names.retain(|name| name != b"." && name != b"..");
        assert_eq!(names, [b"kept"]);
        watched.script("test").unwrap();
    }
}
