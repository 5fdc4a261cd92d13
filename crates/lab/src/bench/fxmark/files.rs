//! The calls that the loads make: of a volume in this process, or of the kernel, on a directory of
//! whatever is mounted there.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfs::kind::Volume;
use vfs::{Creator, Ino, RenameFlags, SetAttr, path};

use super::BLOCK;
use crate::{Error, Result};

/// Bytes of directory entries asked for at a time, as the C library does.
const LIST_BYTES: usize = 32 << 10;

/// Length of an entry without its name (`struct linux_dirent64`).
const ENTRY_BYTES: usize = 19;

/// What a load needs of a file system.
pub(super) trait Files: Send + Sync + 'static {
    /// A directory that was found.
    type Dir: Clone + Send + 'static;
    /// An open file.
    type File: Send + 'static;
    /// An open directory.
    type Entries: Send + 'static;

    /// The directory in which everything takes place.
    fn root(&self) -> Self::Dir;
    /// Makes a directory.
    fn mkdir(&self, parent: &Self::Dir, name: &str) -> Result<Self::Dir>;
    /// Makes and opens a file that is not there yet.
    fn create(&self, dir: &Self::Dir, name: &str) -> Result<Self::File>;
    /// Opens a file that is there.
    fn open(&self, dir: &Self::Dir, name: &str) -> Result<Self::File>;
    /// Writes all of `data`.
    fn write(&self, file: &Self::File, at: u64, data: &[u8]) -> Result<()>;
    /// Fills `data`.
    fn read(&self, file: &Self::File, at: u64, data: &mut [u8]) -> Result<()>;
    /// Sets a file's size.
    fn truncate(&self, file: &Self::File, size: u64) -> Result<()>;
    /// Makes a file durable.
    fn fsync(&self, file: &Self::File) -> Result<()>;
    /// Moves a name.
    fn rename(&self, from: &Self::Dir, name: &str, to: &Self::Dir, new_name: &str) -> Result<()>;
    /// Removes a name.
    fn unlink(&self, dir: &Self::Dir, name: &str) -> Result<()>;
    /// Opens a directory to be read.
    fn entries(&self, dir: &Self::Dir) -> Result<Self::Entries>;
    /// Takes the next entry; false at the end.
    fn next(&self, entries: &mut Self::Entries) -> Result<bool>;
    /// Attributes of what `path`, from the root, leads to.
    fn stat(&self, path: &str) -> Result<()>;
    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
}

/// A volume in this process.
pub(super) struct InProcess {
    pub(super) volume: Arc<dyn Volume>,
    /// Whether files are opened with `O_DIRECT`.
    pub(super) direct: bool,
}

/// An inode that is kept while this is there.
pub(super) struct Open {
    volume: Arc<dyn Volume>,
    ino: Ino,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.volume.release(self.ino);
    }
}

/// A directory on the way to its end.
pub(super) struct Listing {
    dir: Ino,
    /// Entries that were fetched and not yet taken.
    fetched: usize,
    /// Behind them.
    cookie: u64,
}

impl InProcess {
    fn opened(&self, ino: Ino, name: &str) -> Result<Open> {
        self.volume.open(ino).map_err(Error::at("open", name.as_bytes()))?;
        Ok(Open { volume: self.volume.clone(), ino })
    }
}

impl Files for InProcess {
    type Dir = Ino;
    type File = Open;
    type Entries = Listing;

    fn root(&self) -> Ino {
        self.volume.root()
    }

    fn mkdir(&self, parent: &Ino, name: &str) -> Result<Ino> {
        let made = self.volume.mkdir(*parent, name.as_bytes(), 0o755, Creator::default());
        Ok(made.map_err(Error::at("mkdir", name.as_bytes()))?.ino)
    }

    fn create(&self, dir: &Ino, name: &str) -> Result<Open> {
        let made = self.volume.create(*dir, name.as_bytes(), 0o700, Creator::default());
        self.opened(made.map_err(Error::at("create", name.as_bytes()))?.ino, name)
    }

    fn open(&self, dir: &Ino, name: &str) -> Result<Open> {
        let found = self.volume.lookup(*dir, name.as_bytes());
        self.opened(found.map_err(Error::at("lookup", name.as_bytes()))?.ino, name)
    }

    fn write(&self, file: &Open, at: u64, data: &[u8]) -> Result<()> {
        let written = match self.direct {
            true => self.volume.write_direct(file.ino, at, data),
            false => self.volume.write(file.ino, at, data),
        };
        match written.map_err(Error::at("write", b""))? {
            all if all == data.len() => Ok(()),
            _ => Err(Error::Full),
        }
    }

    fn read(&self, file: &Open, at: u64, data: &mut [u8]) -> Result<()> {
        let read = match self.direct {
            true => self.volume.read_direct(file.ino, at, data),
            false => self.volume.read(file.ino, at, data),
        };
        match read.map_err(Error::at("read", b""))? {
            all if all == data.len() => Ok(()),
            short => {
                let message = format!("{short} bytes of {} at {at}", data.len());
                Err(Error::Volume { step: "read", message })
            }
        }
    }

    fn truncate(&self, file: &Open, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.volume.setattr(file.ino, &set).map(drop).map_err(Error::at("truncate", b""))
    }

    fn fsync(&self, file: &Open) -> Result<()> {
        self.volume.fsync(file.ino, false).map_err(Error::at("fsync", b""))
    }

    fn rename(&self, from: &Ino, name: &str, to: &Ino, new_name: &str) -> Result<()> {
        let (old, new) = (name.as_bytes(), new_name.as_bytes());
        let done = self.volume.rename(*from, old, *to, new, RenameFlags::empty());
        done.map_err(Error::at("rename", old))
    }

    fn unlink(&self, dir: &Ino, name: &str) -> Result<()> {
        self.volume.unlink(*dir, name.as_bytes()).map_err(Error::at("unlink", name.as_bytes()))
    }

    fn entries(&self, dir: &Ino) -> Result<Listing> {
        Ok(Listing { dir: *dir, fetched: 0, cookie: 0 })
    }

    fn next(&self, entries: &mut Listing) -> Result<bool> {
        if entries.fetched == 0 {
            let Listing { dir, fetched, cookie } = entries;
            let mut bytes = 0;
            let read = self.volume.readdir(*dir, *cookie, &mut |entry| {
                bytes += ENTRY_BYTES + entry.name.len();
                (*fetched, *cookie) = (*fetched + 1, entry.next);
                bytes < LIST_BYTES
            });
            read.map_err(Error::at("readdir", b""))?;
        }
        let one = entries.fetched > 0;
        entries.fetched -= usize::from(one);
        Ok(one)
    }

    fn stat(&self, path: &str) -> Result<()> {
        let found = path::resolve(&*self.volume, path.as_bytes(), true);
        found.map(drop).map_err(Error::at("stat", path.as_bytes()))
    }

    fn sync(&self) -> Result<()> {
        self.volume.sync().map_err(Error::at("sync", b""))
    }
}

/// A directory of its own on whatever the kernel has mounted there. Dropping this removes it, but a
/// signal that ends the process leaves it.
pub(super) struct Mounted {
    root: PathBuf,
    /// Whether files are opened with `O_DIRECT`.
    direct: bool,
}

/// A block where `O_DIRECT` may ask a buffer to be.
#[repr(align(4096))]
struct Aligned([u8; BLOCK as usize]);

impl Mounted {
    /// Makes the directory below `dir`.
    pub(super) fn below(dir: &Path, direct: bool) -> Result<Self> {
        let root = dir.join(format!("strandline-fxmark-{}", std::process::id()));
        fs::create_dir(&root).map_err(Error::host(&root))?;
        Ok(Self { root, direct })
    }

    /// How files are opened.
    fn options(&self) -> fs::OpenOptions {
        let mut options = fs::OpenOptions::new();
        let flags =
            if self.direct { rustix::fs::OFlags::DIRECT } else { rustix::fs::OFlags::empty() };
        options.read(true).write(true).custom_flags(flags.bits().cast_signed());
        options
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What cannot be removed now is left for its owner to see.
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Files for Mounted {
    type Dir = PathBuf;
    type File = fs::File;
    type Entries = fs::ReadDir;

    fn root(&self) -> PathBuf {
        self.root.clone()
    }

    fn mkdir(&self, parent: &PathBuf, name: &str) -> Result<PathBuf> {
        let path = parent.join(name);
        fs::create_dir(&path).map_err(Error::host(&path))?;
        Ok(path)
    }

    fn create(&self, dir: &PathBuf, name: &str) -> Result<fs::File> {
        let path = dir.join(name);
        self.options().create_new(true).open(&path).map_err(Error::host(&path))
    }

    fn open(&self, dir: &PathBuf, name: &str) -> Result<fs::File> {
        let path = dir.join(name);
        self.options().open(&path).map_err(Error::host(&path))
    }

    fn write(&self, file: &fs::File, at: u64, data: &[u8]) -> Result<()> {
        let mut block = Aligned([0; BLOCK as usize]);
        let data = match block.0.get_mut(..data.len()) {
            Some(block) if self.direct => {
                block.copy_from_slice(data);
                block
            }
            _ => data,
        };
        match file.write_all_at(data, at) {
            Err(error) if error.kind() == ErrorKind::StorageFull => Err(Error::Full),
            done => done.map_err(Error::host(&self.root)),
        }
    }

    fn read(&self, file: &fs::File, at: u64, data: &mut [u8]) -> Result<()> {
        let mut block = Aligned([0; BLOCK as usize]);
        let read = match block.0.get_mut(..data.len()) {
            Some(block) if self.direct => {
                file.read_exact_at(block, at).map(|()| data.copy_from_slice(block))
            }
            _ => file.read_exact_at(data, at),
        };
        read.map_err(Error::host(&self.root))
    }

    fn truncate(&self, file: &fs::File, size: u64) -> Result<()> {
        file.set_len(size).map_err(Error::host(&self.root))
    }

    fn fsync(&self, file: &fs::File) -> Result<()> {
        file.sync_all().map_err(Error::host(&self.root))
    }

    fn rename(&self, from: &PathBuf, name: &str, to: &PathBuf, new_name: &str) -> Result<()> {
        let old = from.join(name);
        fs::rename(&old, to.join(new_name)).map_err(Error::host(&old))
    }

    fn unlink(&self, dir: &PathBuf, name: &str) -> Result<()> {
        let path = dir.join(name);
        fs::remove_file(&path).map_err(Error::host(&path))
    }

    fn entries(&self, dir: &PathBuf) -> Result<fs::ReadDir> {
        fs::read_dir(dir).map_err(Error::host(dir))
    }

    fn next(&self, entries: &mut fs::ReadDir) -> Result<bool> {
        Ok(entries.next().transpose().map_err(Error::host(&self.root))?.is_some())
    }

    fn stat(&self, path: &str) -> Result<()> {
        let path = self.root.join(path);
        fs::metadata(&path).map(drop).map_err(Error::host(&path))
    }

    fn sync(&self) -> Result<()> {
        let root = fs::File::open(&self.root).map_err(Error::host(&self.root))?;
        root.sync_all().map_err(Error::host(&self.root))
    }
}
