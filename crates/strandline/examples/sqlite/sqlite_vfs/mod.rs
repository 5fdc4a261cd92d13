//! An SQLite VFS in process: database, journal and WAL are files of a Strandline volume, no mount.
//!
//! `file` and `locks` do the work; `ffi` hands SQLite's calls to them and has all the `unsafe`. The
//! crates that offer a safe trait for this do not fit: sqlite-plugin builds with libclang and does
//! not tell whether a deletion must be durable; sqlite-vfs calls itself a prototype and has no WAL.

mod ffi;
mod file;
mod locks;

use std::ffi::CString;
use std::sync::Arc;

use f2fs::F2fs;
use rusqlite::{Connection, OpenFlags};

use file::SqliteVolume;

/// A volume that SQLite can open databases on, until this is dropped.
pub(crate) struct SqliteVfs {
    name: String,
    volume: Arc<SqliteVolume>,
}

impl SqliteVfs {
    /// Makes `fs` known to SQLite under `name`, which no other VFS has. The 200 or so bytes that
    /// SQLite keeps are never freed, because a connection may outlive this. With `atomic`, it
    /// commits through atomic writes where it would use a rollback journal.
    pub(crate) fn register(name: &str, fs: Arc<F2fs>, atomic: bool) -> rusqlite::Result<Self> {
        let volume = Arc::new(SqliteVolume::new(fs, atomic));
        let raw = CString::new(name).map_err(rusqlite::Error::NulError)?;
        ffi::register(raw, volume.clone())?;
        Ok(Self { name: name.to_owned(), volume })
    }

    /// Opens the database at `path` of the volume, making it if necessary.
    pub(crate) fn open(&self, path: &str) -> rusqlite::Result<Connection> {
        Connection::open_with_flags_and_vfs(path, OpenFlags::default(), self.name.as_str())
    }
}

impl Drop for SqliteVfs {
    fn drop(&mut self) {
        ffi::unregister(&self.name);
        self.volume.take_back();
    }
}
