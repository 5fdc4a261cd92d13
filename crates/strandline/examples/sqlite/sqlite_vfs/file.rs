//! SQLite's idea of files, on a Strandline volume. No `unsafe` here.
//!
//! What a commit rests on: xSync is `fsync`, or `fdatasync` where that is all SQLite asks for. A
//! new file's name is durable with its first fsync, as F2FS has it, so its directory needs none. A
//! rollback journal that is deleted is the commit of its transaction, and with `synchronous=FULL`
//! SQLite does not make sure that it becomes durable. Here the journal is emptied, which commits as
//! well, fsynced and then unlinked: one fsync makes every commit durable.

use std::collections::BTreeMap;
use std::os::raw::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cores::Mutex;
use f2fs::F2fs;
use rusqlite::ffi;
use vfs::path::{resolve, resolve_parent};
use vfs::{Attr, Creator, Errno, FileSystem, Ino, SetAttr};

use super::locks::{Held, Shared};

/// An extended result code of SQLite.
pub(crate) type Code = c_int;

/// A volume as SQLite sees it.
pub(crate) struct SqliteVolume {
    /// None once the volume has been taken back.
    fs: Mutex<Option<Arc<F2fs>>>,
    shared: Mutex<BTreeMap<Ino, Arc<Shared>>>,
    next_id: AtomicU64,
    /// Whether SQLite may commit through F2FS's atomic writes.
    atomic: bool,
}

/// One open file.
pub(crate) struct File {
    fs: Arc<F2fs>,
    ino: Ino,
    /// Whether SQLite may commit through atomic writes.
    pub(super) atomic: bool,
    pub(super) shared: Arc<Shared>,
    pub(super) held: Held,
}

/// An error of the volume as SQLite names it: full, or `otherwise`.
fn code(otherwise: Code) -> impl Fn(vfs::Error) -> Code {
    move |error| if error.errno() == Errno::NOSPC { ffi::SQLITE_FULL } else { otherwise }
}

fn set_size(fs: &dyn FileSystem, ino: Ino, size: u64) -> vfs::Result<Attr> {
    fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() })
}

impl SqliteVolume {
    pub(crate) fn new(fs: Arc<F2fs>, atomic: bool) -> Self {
        let shared = Mutex::new(BTreeMap::new());
        Self { fs: Mutex::new(Some(fs)), shared, next_id: AtomicU64::new(0), atomic }
    }

    /// Lets go of the file system; files that are open keep it.
    pub(crate) fn take_back(&self) {
        *self.fs.lock() = None;
    }

    fn fs(&self) -> Result<Arc<F2fs>, Code> {
        self.fs.lock().clone().ok_or(ffi::SQLITE_CANTOPEN)
    }

    /// xOpen. Without a path: a file without a name that vanishes when it is closed.
    pub(crate) fn open(&self, path: Option<&[u8]>, flags: c_int) -> Result<File, Code> {
        let fs = self.fs()?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let temporary = format!("/.sqlite-{id}").into_bytes();
        let path_or = path.unwrap_or(&temporary);
        let opened = open(&*fs, path_or, flags).map_err(code(ffi::SQLITE_CANTOPEN))?;
        fs.open(opened.ino).map_err(code(ffi::SQLITE_CANTOPEN))?;
        let shared = self.shared.lock().entry(opened.ino).or_default().clone();
        let (held, atomic) = (Held::nothing(id), self.atomic);
        let file = File { fs: fs.clone(), ino: opened.ino, atomic, shared, held };
        if path.is_none() || flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0 {
            let (dir, name) = resolve_parent(&*fs, path_or).map_err(code(ffi::SQLITE_CANTOPEN))?;
            fs.unlink(dir, name).map_err(code(ffi::SQLITE_CANTOPEN))?;
        }
        Ok(file)
    }

    /// xClose.
    pub(crate) fn close(&self, file: File) {
        let File { fs, ino, shared, mut held, .. } = file;
        shared.unmap(&mut held);
        shared.unlock(&mut held, ffi::SQLITE_LOCK_NONE);
        let mut all = self.shared.lock();
        // The map's and this one: the file is not open elsewhere.
        if Arc::strong_count(&shared) == 2 {
            all.remove(&ino);
        }
        drop(shared);
        drop(all);
        fs.release(ino);
    }

    /// xDelete. `sync_dir`: SQLite needs the name's removal to be durable, as for the journal of a
    /// transaction over several databases, which commits by its name.
    pub(crate) fn delete(&self, path: &[u8], sync_dir: bool) -> Result<(), Code> {
        let fs = self.fs()?;
        let failed = |error: vfs::Error| match error.errno() {
            Errno::NOENT => ffi::SQLITE_IOERR_DELETE_NOENT,
            _ => ffi::SQLITE_IOERR_DELETE,
        };
        let ino = resolve(&*fs, path, true).map_err(failed)?.ino;
        let (dir, name) = resolve_parent(&*fs, path).map_err(failed)?;
        if sync_dir {
            fs.unlink(dir, name).map_err(failed)?;
            return fs.fsync(dir, false).map_err(code(ffi::SQLITE_IOERR_DIR_FSYNC));
        }
        set_size(&*fs, ino, 0).map_err(failed)?;
        fs.fsync(ino, false).map_err(failed)?;
        fs.unlink(dir, name).map_err(failed)
    }

    /// xAccess: an empty file counts as none, as a journal without contents does.
    pub(crate) fn exists(&self, path: &[u8]) -> Result<bool, Code> {
        match resolve(&*self.fs()?, path, true) {
            Ok(attr) => Ok(attr.size > 0),
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(_) => Err(ffi::SQLITE_IOERR_ACCESS),
        }
    }
}

fn open(fs: &dyn FileSystem, path: &[u8], flags: c_int) -> vfs::Result<Attr> {
    match resolve(fs, path, true) {
        Ok(_) if flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0 => Err(Errno::EXIST.into()),
        Err(error) if error.errno() == Errno::NOENT && flags & ffi::SQLITE_OPEN_CREATE != 0 => {
            let (dir, name) = resolve_parent(fs, path)?;
            fs.create(dir, name, 0o644, Creator::default())
        }
        found => found,
    }
}

impl File {
    /// xRead: how much there was.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Code> {
        self.fs.read(self.ino, offset, buf).map_err(code(ffi::SQLITE_IOERR_READ))
    }

    /// xWrite.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), Code> {
        vfs::path::write_all(&*self.fs, self.ino, offset, data)
            .map_err(code(ffi::SQLITE_IOERR_WRITE))
    }

    /// xTruncate.
    pub(crate) fn truncate(&self, size: u64) -> Result<(), Code> {
        set_size(&*self.fs, self.ino, size).map(drop).map_err(code(ffi::SQLITE_IOERR_TRUNCATE))
    }

    /// xSync.
    pub(crate) fn sync(&self, flags: c_int) -> Result<(), Code> {
        let data_only = flags & ffi::SQLITE_SYNC_DATAONLY != 0;
        self.fs.fsync(self.ino, data_only).map_err(code(ffi::SQLITE_IOERR_FSYNC))
    }

    /// xFileControl, of atomic writes: SQLite then needs no journal, and no xSync.
    pub(crate) fn control(&self, op: c_int) -> Result<(), Code> {
        let (done, failed) = match op {
            ffi::SQLITE_FCNTL_BEGIN_ATOMIC_WRITE => {
                (self.fs.start_atomic_write(self.ino), ffi::SQLITE_IOERR_BEGIN_ATOMIC)
            }
            ffi::SQLITE_FCNTL_COMMIT_ATOMIC_WRITE => {
                (self.fs.commit_atomic_write(self.ino), ffi::SQLITE_IOERR_COMMIT_ATOMIC)
            }
            ffi::SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE => {
                (self.fs.abort_atomic_write(self.ino), ffi::SQLITE_IOERR_ROLLBACK_ATOMIC)
            }
            _ => return Err(ffi::SQLITE_NOTFOUND),
        };
        done.map_err(|_| failed)
    }

    /// xFileSize.
    pub(crate) fn size(&self) -> Result<u64, Code> {
        self.fs.getattr(self.ino).map(|attr| attr.size).map_err(code(ffi::SQLITE_IOERR_FSTAT))
    }
}
