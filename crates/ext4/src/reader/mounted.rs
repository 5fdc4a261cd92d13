//! A read-only mount: POSIX over a [`Reader`].

use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value};
use vfs::kind::{PageAt, Recovery, Volume};
use vfs::{
    Attr, DirEntry, Errno, FallocateMode, FileSystem, Gate, Ino, Look, NewInode, RenameFlags,
    Result, Seek, SetAttr, StatFs, XattrMode,
};

use super::Reader;
use crate::file::read_write::check_regular;
use crate::inode::cached::Inode;
use crate::inode::{map, xattr};
use crate::ondisk::inode::Flags;
use crate::ondisk::{NAME_MAX, ROOT_INO};

/// A volume mounted for reading.
pub(crate) struct Mounted {
    /// `None` once it is unmounted. Held alone for that only.
    reader: Gate<Option<Reader>>,
    options: String,
    recovery: Recovery,
}

/// The volume, as long as it is mounted.
struct Held<'a>(Look<'a, Option<Reader>>);

impl Held<'_> {
    fn reader(&self) -> Result<&Reader> {
        self.0.as_ref().ok_or_else(|| Errno::IO.into())
    }

    fn inode(&self, ino: Ino) -> Result<(&Reader, Arc<Inode>)> {
        let reader = self.reader()?;
        let ino = u32::try_from(ino).map_err(|_| Errno::NOENT)?;
        Ok((reader, reader.inode(ino)?))
    }

    /// An inode whose contents can be read with read(2).
    fn file(&self, ino: Ino) -> Result<(&Reader, Arc<Inode>)> {
        let (reader, inode) = self.inode(ino)?;
        check_regular(&inode)?;
        Ok((reader, inode))
    }
}

impl Mounted {
    /// `reader`, whose root directory is one, mounted with these `options`.
    pub(crate) fn new(reader: Reader, options: String, recovery: Recovery) -> crate::Result<Self> {
        reader.inode(ROOT_INO)?.check_directory()?;
        Ok(Self { reader: Gate::new("ext4", Some(reader)), options, recovery })
    }

    fn held(&self) -> Held<'_> {
        Held(self.reader.look())
    }

    fn read_only<T>(&self) -> Result<T> {
        self.held().reader()?;
        Err(Errno::ROFS.into())
    }
}

/// Calls that change something.
macro_rules! refused {
    ($(fn $name:ident(&self $(, $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self $(, _: $type)*) -> $result {
            self.read_only()
        })*
    };
}

impl FileSystem for Mounted {
    refused! {
        fn make(&self, Ino, &[u8], &NewInode<'_>) -> Result<Attr>;
        fn link(&self, Ino, Ino, &[u8]) -> Result<Attr>;
        fn unlink(&self, Ino, &[u8]) -> Result<()>;
        fn rmdir(&self, Ino, &[u8]) -> Result<()>;
        fn rename(&self, Ino, &[u8], Ino, &[u8], RenameFlags) -> Result<()>;
        fn setattr(&self, Ino, &SetAttr) -> Result<Attr>;
        fn write(&self, Ino, u64, &[u8]) -> Result<usize>;
        fn fallocate(&self, Ino, FallocateMode, u64, u64) -> Result<()>;
        fn setxattr(&self, Ino, &[u8], &[u8], XattrMode) -> Result<()>;
        fn removexattr(&self, Ino, &[u8]) -> Result<()>;
    }

    fn root(&self) -> Ino {
        ROOT_INO.into()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let held = self.held();
        let (reader, dir) = held.inode(parent)?;
        let inode = reader.inode(reader.lookup(&dir, name)?)?;
        Ok(reader.attr(&inode))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let held = self.held();
        let (reader, inode) = held.inode(ino)?;
        Ok(reader.attr(&inode))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let held = self.held();
        let (reader, inode) = held.inode(ino)?;
        Ok(reader.read_link(&inode)?)
    }

    fn open(&self, ino: Ino) -> Result<()> {
        self.held().inode(ino).map(drop)
    }

    /// Nothing is freed here.
    fn release(&self, _: Ino) {}

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let held = self.held();
        let (reader, inode) = held.file(ino)?;
        Ok(reader.read_file(&inode, offset, buf)?)
    }

    fn fsync(&self, ino: Ino, _datasync: bool) -> Result<()> {
        self.held().inode(ino).map(drop)
    }

    fn lseek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64> {
        let held = self.held();
        let (reader, inode) = held.file(ino)?;
        Ok(reader.seek(&inode, offset, seek)?)
    }

    fn readdir(&self, ino: Ino, from: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let held = self.held();
        let (reader, dir) = held.inode(ino)?;
        dir.check_directory()?;
        Ok(reader.list_dir(&dir, from, emit)?)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let held = self.held();
        let (reader, inode) = held.inode(ino)?;
        Ok(xattr::get(reader, &inode, name)?)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let held = self.held();
        let (reader, inode) = held.inode(ino)?;
        Ok(xattr::list(reader, &inode)?)
    }

    fn statfs(&self) -> Result<StatFs> {
        let held = self.held();
        let sb = &held.reader()?.sb;
        let free = sb.raw.free_blocks_count().min(sb.blocks);
        Ok(StatFs {
            block_size: sb.block_size,
            blocks: sb.user_blocks(),
            blocks_free: free,
            blocks_available: free.saturating_sub(sb.raw.r_blocks_count()),
            files: sb.raw.inodes_count.get().into(),
            files_free: sb.raw.free_inodes_count.get().min(sb.raw.inodes_count.get()).into(),
            name_max: NAME_MAX as u32,
        })
    }

    fn sync(&self) -> Result<()> {
        self.held().reader().map(drop)
    }

    fn unmount(&self) -> Result<()> {
        self.held().reader()?;
        self.reader.hold().take();
        Ok(())
    }
}

impl Volume for Mounted {
    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn options(&self) -> String {
        self.options.clone()
    }

    fn status(&self) -> Map<String, Value> {
        let held = self.held();
        let Ok(reader) = held.reader() else { return Map::new() };
        let sb = &reader.sb;
        let text = |words: &dyn std::fmt::Display| Value::from(words.to_string());
        [
            ("features", text(&format_args!("{} {} {}", sb.compat, sb.incompat, sb.ro_compat))),
            ("block_size", sb.block_size.into()),
            ("blocks", sb.blocks.into()),
            ("free_blocks", sb.raw.free_blocks_count().into()),
            ("inodes", sb.raw.inodes_count.get().into()),
            ("free_inodes", sb.raw.free_inodes_count.get().into()),
            ("groups", sb.groups.into()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    fn flags(&self, ino: Ino) -> Result<u32> {
        let held = self.held();
        let (_, inode) = held.inode(ino)?;
        Ok(inode.flags().shown())
    }

    fn project(&self, ino: Ino) -> Result<u32> {
        let held = self.held();
        let (_, inode) = held.inode(ino)?;
        Ok(inode.raw.projid.get())
    }

    /// Only where a block is a page: with smaller ones the caller must read the file.
    fn pages(
        &self,
        ino: Ino,
        range: Range<u64>,
        see: &mut dyn FnMut(u64, PageAt<'_>),
    ) -> Result<bool> {
        let held = self.held();
        let (reader, inode) = held.file(ino)?;
        let is_inline = inode.flags().contains(Flags::INLINE_DATA);
        if reader.sb.block_size as usize != drive::BLOCK_SIZE || is_inline {
            return Ok(false);
        }
        let mut page = range.start;
        while let Ok(block) = u32::try_from(page)
            && page < range.end
        {
            let found = map::find(reader, &inode, block)?;
            let end = range.end.min(found.end());
            if let Some(start) = found.written_at(block) {
                for (at, page) in (start..).zip(page..end) {
                    see(page, PageAt::Drive(at));
                }
            }
            page = end;
        }
        Ok(true)
    }
}
