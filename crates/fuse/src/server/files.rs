//! Contents of files: opening, reading, writing, durability, allocation.

use std::sync::atomic::Ordering;

use vfs::{FallocateMode, Ino, Seek, SetAttr};

use super::{Done, Errno, Server, errno};
use crate::abi::{
    CopyFileRangeIn, FOPEN_KEEP_CACHE, FOPEN_PARALLEL_DIRECT_WRITES, FSYNC_FDATASYNC, FallocateIn,
    FsyncIn, Init, LseekIn, LseekOut, O_ACCMODE, O_DIRECT, O_NOATIME, O_RDONLY, O_RDWR, O_TRUNC,
    O_WRONLY, OPEN_KILL_SUIDGID, OpenIn, OpenOut, ReadIn, ReleaseIn, WRITE_CACHE,
    WRITE_KILL_SUIDGID, WriteIn, WriteOut,
};
use crate::wire::{Reply, Request};

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Bits of a handle: it was opened for writing; also for reading, so the file may be mapped and
/// changed through it. Above them, handles are numbered.
pub(super) const HANDLE_WRITES: u64 = 1;
const HANDLE_MAPPABLE: u64 = 2;
const HANDLE_STEP: u64 = 4;
/// How often a search for a hole begins again, because what it found was none.
const SEEK_ROUNDS: usize = 64;
/// The most bytes that one request copies, because it cannot be interrupted.
const COPY_MAX: u64 = 64 << 20;

impl Server {
    pub(super) fn open(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let ino = self.ino(request.header.nodeid);
        let args: OpenIn = request.args()?;
        if args.flags & O_ACCMODE != O_RDONLY || args.flags & O_TRUNC != 0 {
            self.check_flags(ino, args.flags)?;
        }
        if args.flags & O_TRUNC != 0 {
            self.drop_privileges(request, ino, args.open_flags & OPEN_KILL_SUIDGID != 0)?;
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            self.fs.setattr(ino, &set).map_err(errno)?;
        }
        let reads = args.flags & O_ACCMODE != O_WRONLY && args.flags & O_NOATIME == 0;
        let must_see_read = reads && self.is_atime_due(ino)?.is_some();
        let handle = self.new_handle(args.flags);
        self.fs.opened(ino, handle, false).map_err(errno)?;
        reply.put(&self.open_out(ino, handle, !must_see_read));
        Ok(())
    }

    pub(super) fn read(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let ino = self.ino(request.header.nodeid);
        let args: ReadIn = request.args()?;
        let space = reply.space(args.size as usize);
        let read = match args.flags & O_DIRECT {
            0 => self.fs.read(ino, args.offset, space),
            _ => self.fs.read_direct(ino, args.offset, space),
        };
        reply.advance(read.map_err(errno)?);
        if args.flags & O_NOATIME == 0 {
            self.accessed(ino);
        }
        Ok(())
    }

    pub(super) fn write(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let ino = self.ino(request.header.nodeid);
        let (args, data) = request.args_and_rest::<WriteIn>()?;
        let data = data.get(..args.size as usize).ok_or(Errno::IO)?;
        self.drop_privileges(request, ino, args.write_flags & WRITE_KILL_SUIDGID != 0)?;
        let write = |done: usize| {
            let (offset, data) = (args.offset + done as u64, &data[done..]);
            match args.flags & O_DIRECT {
                0 => self.fs.write(ino, offset, data).map_err(errno),
                _ => self.fs.write_direct(ino, offset, data).map_err(errno),
            }
        };
        let mut written = write(0)?;
        // Of pages that it writes back the kernel takes all for written, unless there is an error,
        // which the next fsync returns (`fuse_writepage_end`).
        while args.write_flags & WRITE_CACHE != 0 && written < data.len() {
            match write(written)? {
                0 => return Err(Errno::IO),
                more => written += more,
            }
        }
        reply.put(&WriteOut { size: written as u32, padding: 0 });
        Ok(())
    }

    /// For files and directories.
    pub(super) fn fsync(&self, request: &Request<'_>) -> Done {
        let args: FsyncIn = request.args()?;
        let datasync = args.fsync_flags & FSYNC_FDATASYNC != 0;
        self.fs.fsync_through(self.ino(request.header.nodeid), args.fh, datasync).map_err(errno)
    }

    pub(super) fn fallocate(&self, request: &Request<'_>) -> Done {
        let ino = self.ino(request.header.nodeid);
        let args: FallocateIn = request.args()?;
        let mode = FallocateMode::from_bits(args.mode).ok_or(Errno::OPNOTSUPP)?;
        // The kernel does not say whether the caller may keep set-id bits. Root may.
        self.drop_privileges(request, ino, request.header.uid != 0)?;
        self.fs.fallocate(ino, mode, args.offset, args.length).map_err(errno)
    }

    /// The kernel asks without writing back first, so whatever it may have dirty counts as data. If
    /// it collects writes it knows the size, and after `ENOSYS` it answers by itself: all is data.
    pub(super) fn lseek(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        if self.is_agreed(Init::WRITEBACK_CACHE) {
            return Err(Errno::NOSYS);
        }
        let args: LseekIn = request.args()?;
        let seek = match args.whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        let ino = self.ino(request.header.nodeid);
        let offset = if self.nodes.is_mappable(ino) {
            self.seek_mapped(ino, args.offset, seek)?
        } else {
            self.fs.lseek(ino, args.offset, seek).map_err(errno)?
        };
        reply.put(&LseekOut { offset });
        Ok(())
    }

    /// `SEEK_DATA` and `SEEK_HOLE` in a file of which the kernel may have dirty pages. A hole is
    /// one only if it still is when they have been written back. Where that cannot be waited for,
    /// all is data.
    fn seek_mapped(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64, Errno> {
        let size = self.fs.getattr(ino).map_err(errno)?.size;
        let find = |from: u64, seek: Seek| match self.fs.lseek(ino, from, seek).map_err(errno) {
            Err(Errno::NXIO) => Ok(size.max(from)),
            found => found,
        };
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let flush = self.write_backs.begin();
        for _ in 0..if flush.is_some() { SEEK_ROUNDS } else { 0 } {
            let found = find(offset, seek)?;
            let hole = match seek {
                Seek::Data => offset..found,
                Seek::Hole => found..find(found, Seek::Data)?,
            };
            if !hole.is_empty() {
                self.device.forget_range(self.node(ino), hole);
            }
            if find(offset, seek)? == found {
                let is_end = seek == Seek::Data && found >= size;
                return if is_end { Err(Errno::NXIO) } else { Ok(found) };
            }
        }
        Ok(if seek == Seek::Data { offset } else { size })
    }

    /// Every request names its inode. A handle only says who ends an atomic write, who was told of
    /// a loss, and how it was opened.
    pub(super) fn new_handle(&self, flags: u32) -> u64 {
        let number = self.handles.fetch_add(HANDLE_STEP, Ordering::Relaxed);
        match flags & O_ACCMODE {
            O_RDONLY => number,
            O_RDWR => number | HANDLE_WRITES | HANDLE_MAPPABLE,
            _ => number | HANDLE_WRITES,
        }
    }

    pub(super) fn open_out(&self, ino: Ino, fh: u64, keep_cache: bool) -> OpenOut {
        let keep = if keep_cache && !self.behaviour.uncached { FOPEN_KEEP_CACHE } else { 0 };
        if fh & HANDLE_MAPPABLE != 0 {
            self.nodes.opened_mappable(ino);
        }
        OpenOut { fh, open_flags: keep | FOPEN_PARALLEL_DIRECT_WRITES, backing_id: 0 }
    }

    /// The last close of a handle. If it started an atomic write and did not commit it, that is
    /// dropped.
    pub(super) fn release(&self, request: &Request<'_>) -> Done {
        let args: ReleaseIn = request.args()?;
        let ino = self.ino(request.header.nodeid);
        if args.fh & HANDLE_MAPPABLE != 0 {
            self.nodes.closed_mappable(ino);
        }
        self.fs.closed(ino, args.fh);
        if self.nodes.atomic_by(ino) == Some(args.fh) {
            self.abort_atomic_write(ino)?;
        }
        Ok(())
    }

    pub(super) fn copy_file_range(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let from = self.ino(request.header.nodeid);
        let args: CopyFileRangeIn = request.args()?;
        let to = self.ino(args.nodeid_out);
        self.drop_privileges(request, to, request.header.uid != 0)?;
        let len = args.len.min(COPY_MAX);
        let copied =
            self.fs.copy_file_range(from, args.off_in, to, args.off_out, len).map_err(errno)?;
        self.accessed(from);
        reply.put(&WriteOut { size: copied as u32, padding: 0 });
        Ok(())
    }
}
