//! What the kernel offers through ioctls and flags of open, as methods (`f2fs_ioctl`,
//! uapi/linux/f2fs.h).
//!
//! Permissions are checked by the layer that knows users. Atomic writes are in `atomic_write`. Left
//! out: compression, resizing.

use std::ops::Range;

use queue::WriteSet;
use vfs::kind::Shutdown;
use vfs::{Attr, Creator, Errno, FileKind, Health, Ino, Timespec, file};

use crate::F2fs;
use crate::alloc::gc::{Hands, Policy};
use crate::dir::namei::NewInode;
use crate::error::{Error, Result};
use crate::file::writeback::WritePages;
use crate::inode::attr::Stat;
use crate::inode::mapping::{Lookup, Mapping};
use crate::mount::engine::{Caller, Engine};
use crate::mount::fs::nid;
use crate::mount::quota::Owner;
use crate::ondisk::sit::LogType;
use crate::ondisk::superblock::Features;
use crate::ondisk::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, is_data_addr};

impl F2fs {
    /// `F2FS_IOC_SHUTDOWN`: stops the volume as a power failure would. From then on changes fail
    /// with `EIO`, and unmounting writes nothing.
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.change()?;
        match how {
            Shutdown::FullSync => {
                let written = self.write_back_files();
                self.write_checkpoint()?;
                written?;
            }
            Shutdown::MetaSync => self.write_checkpoint()?,
            Shutdown::NoSync => {}
            Shutdown::MetaFlush => {
                let mut volume = self.settled();
                let mut set = WriteSet::default();
                volume.io.submit_meta(&mut set);
                volume.finish(set, Ok(()))?;
            }
        }
        self.settled().health = Health::Shutdown;
        Ok(())
    }

    /// `F2FS_IOC_GARBAGE_COLLECT`: cleans one section, greedily if `sync`; `ENODATA` if none is
    /// worth it.
    pub fn garbage_collect(&self, sync: bool) -> Result<()> {
        let caller = caller_of_gc(sync);
        let policy = if sync { Policy::Greedy } else { self.lock().background_policy(false) };
        if self.clean_one(policy, 0, caller)? { Ok(()) } else { Err(Errno::NODATA.into()) }
    }

    /// `F2FS_IOC_GARBAGE_COLLECT_RANGE`: cleans every section that `blocks`, addresses of the main
    /// area, touch.
    pub fn garbage_collect_range(&self, sync: bool, blocks: Range<u64>) -> Result<()> {
        let caller = caller_of_gc(sync);
        let mut volume = self.change()?;
        let main = u64::from(volume.sb.main_blkaddr)..u64::from(volume.sb.main_end());
        if blocks.is_empty() || blocks.start < main.start || blocks.end > main.end {
            return Err(Errno::INVAL.into());
        }
        let per_section = u64::from(volume.sb.blocks_per_section());
        let section = |block: u64| ((block - main.start) / per_section) as u32;
        for section in section(blocks.start)..=section(blocks.end - 1) {
            let segments = volume.sb.segments_of(section);
            if !segments.clone().any(|segno| volume.logs.get_mut().is_current(segno)) {
                self.empty_segments(volume, segments, caller)?;
                volume = self.change()?;
            }
        }
        self.checkpoint(volume, caller).map(drop)
    }

    /// `FS_IOC_GETFLAGS`: `FS_*_FL`.
    pub fn inode_flags(&self, ino: Ino) -> Result<u32> {
        self.volume()?.flags(nid(ino)?)
    }

    /// `FS_IOC_SETFLAGS`.
    pub fn set_inode_flags(&self, ino: Ino, flags: u32) -> Result<()> {
        self.change()?.set_flags(nid(ino)?, flags)
    }

    /// Project that the inode is accounted to; 0 where the format keeps none.
    pub fn project_id(&self, ino: Ino) -> Result<u32> {
        Ok(self.volume()?.inode(nid(ino)?)?.projid().unwrap_or(0))
    }

    /// Sets the project (`f2fs_ioc_setproject`). Without project quota there is only 0.
    pub fn set_project_id(&self, ino: Ino, project: u32) -> Result<()> {
        self.change()?.set_project(nid(ino)?, project)
    }

    /// `FS_IOC_GETVERSION`: the generation of the inode, which tells files apart that had the
    /// number one after the other.
    pub fn generation(&self, ino: Ino) -> Result<u32> {
        Ok(self.volume()?.inode(nid(ino)?)?.generation.get())
    }

    /// `F2FS_IOC_SET_PIN_FILE`: from now on the file's blocks stay where they are.
    pub fn set_pin_file(&self, ino: Ino, pin: bool) -> Result<()> {
        if pin && self.options().oprw {
            // Data overwritten in place from now on must not be compared with the checksums of an
            // earlier fsync.
            self.checkpoint(self.settled(), Caller::Foreground)?;
        }
        self.change()?.set_pinned(nid(ino)?, pin)
    }

    /// `F2FS_IOC_GET_PIN_FILE`: how often cleaning had to leave a block of the file where it was.
    pub fn pin_file(&self, ino: Ino) -> Result<u32> {
        self.volume()?.pin_failures(nid(ino)?)
    }

    /// `F2FS_IOC_DEFRAGMENT`: rewrites the blocks of a byte range side by side. Returns the bytes
    /// moved, or 0 if they lay side by side already.
    pub fn defragment(&self, ino: Ino, start: u64, len: u64) -> Result<u64> {
        let block = BLOCK_SIZE as u64;
        let end = start.checked_add(len).ok_or(Error::Posix(Errno::INVAL))?;
        if !start.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(Errno::INVAL.into());
        }
        let ino = nid(ino)?;
        let _turn = self.take_turn(ino);
        self.write_back_held(ino)?;
        Ok(self.change()?.defragment(ino, start / block..end / block)? * block)
    }

    /// `F2FS_IOC_FLUSH_DEVICE`: cleans up to `segments` segments of one of several devices, so that
    /// it can be taken away. Not of the last one, to which their blocks may go.
    pub fn flush_device(&self, device: u32, segments: u32) -> Result<()> {
        let mut volume = self.change()?;
        let devices = &volume.sb.devices;
        if device as usize + 1 >= devices.len() || volume.sb.segs_per_sec != 1 {
            return Err(Errno::INVAL.into());
        }
        let blocks = |count: usize| {
            let all: u32 = devices[..count].iter().map(|device| device.segments).sum();
            volume.sb.segment0_blkaddr + all * BLOCKS_PER_SEGMENT
        };
        let end = blocks(device as usize + 1);
        let start = if device == 0 { 0 } else { blocks(device as usize) };
        let main = start.max(volume.sb.main_blkaddr)..end.max(volume.sb.main_blkaddr);
        let of_device = volume.sb.segments_with(&main);
        let current: Vec<_> = volume.logs.get_mut().current().collect();
        let table = volume.segments.get_mut();
        let used = of_device.filter(|s| table.entry(*s).valid > 0 && !current.contains(s));
        let used: Vec<_> = used.take(segments as usize).collect();
        for segno in used {
            self.empty_segments(volume, segno..segno + 1, Caller::Foreground)?;
            volume = self.change()?;
        }
        self.checkpoint(volume, Caller::Foreground).map(drop)
    }

    /// `F2FS_IOC_PRECACHE_EXTENTS` is a hint. Node blocks are cached anyway as they are used.
    pub fn precache_extents(&self, ino: Ino) -> Result<()> {
        self.volume()?.inode(nid(ino)?).map(drop)
    }

    /// `F2FS_IOC_GET_FEATURES`.
    pub fn features(&self) -> u32 {
        self.lock().sb.features.bits()
    }

    /// Sets the access time in memory. It reaches the drive with the inode's next write or the next
    /// checkpoint (`lazytime`). Nothing happens if the file has `FS_NOATIME_FL` or the volume
    /// cannot be changed. If as many wait as nodes may change between checkpoints, it writes one.
    pub fn touch_atime(&self, ino: Ino, time: Timespec) -> Result<()> {
        let mut volume = self.volume()?;
        volume.touch_atime(nid(ino)?, time)?;
        if !volume.has_excess_atimes() {
            return Ok(());
        }
        drop(volume);
        let volume = self.settled();
        if volume.has_excess_atimes() {
            self.checkpoint(volume, Caller::Background)?;
        }
        Ok(())
    }

    /// `O_TMPFILE`: makes a regular file without a name, in the file system of `parent`. It is
    /// open, as by [`vfs::FileSystem::open`], and gone with the last release unless
    /// [`vfs::FileSystem::link`] has named it.
    pub fn tmpfile(&self, parent: Ino, perm: u16, creator: Creator) -> Result<Attr> {
        let (parent, kind) = (nid(parent)?, FileKind::Regular);
        let mut volume = self.change()?;
        let new = NewInode { parent, name: b"", kind, perm, rdev: 0, creator };
        let ino = volume.make_nameless(&new)?;
        volume.attr(ino)
    }
}

fn caller_of_gc(sync: bool) -> Caller {
    if sync { Caller::Foreground } else { Caller::Background }
}

impl Engine {
    fn set_project(&mut self, ino: Nid, project: u32) -> Result<()> {
        let inode = self.inode(ino)?;
        let before = inode.projid();
        let to = Owner::new(inode.uid.get(), inode.gid.get(), project);
        drop(inode);
        if before.unwrap_or(0) == project {
            return Ok(());
        }
        if before.is_none() || !self.sb.features.contains(Features::PRJQUOTA) {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.move_quota(ino, to, true)?;
        let now = self.clock.now();
        let inode = self.inode_mut(ino)?;
        inode.set_ctime(now);
        if let Some(extra) = inode.extra_mut() {
            extra.projid.set(project);
        }
        Ok(())
    }

    /// Rewrites the blocks of some pages side by side. Returns how many.
    fn defragment(&mut self, ino: Nid, pages: Range<u64>) -> Result<u64> {
        if self.kind_of(ino)? != FileKind::Regular || self.is_pinned(ino)? {
            return Err(Errno::INVAL.into());
        }
        self.check_not_atomic(ino)?;
        if self.layout(ino)?.cluster().is_some() {
            // The blocks of a compressed cluster are not the contents of its pages.
            return Err(Errno::OPNOTSUPP.into());
        }
        if self.has_inline_data(ino)? {
            return Ok(0);
        }
        let end = self.raw_inode(ino)?.size.get().div_ceil(BLOCK_SIZE as u64).min(pages.end);
        let mut found = Vec::new();
        let mut from = pages.start;
        while let Some(page) = self.next_allocated(ino, from..end, true)? {
            let addr = self.addr_of(ino, page)?;
            if is_data_addr(addr) {
                found.push((page, addr));
            }
            from = page + 1;
        }
        if found.windows(2).all(|pair| pair[1].1 == pair[0].1 + 1) {
            return Ok(0);
        }
        let mut set = WriteSet::default();
        let moved = found.iter().try_for_each(|(page, addr)| {
            let Some(block) = file::page(self, ino, *page, end)?.cloned() else { return Ok(()) };
            let Lookup::Slot(slot) = self.lookup_slot(ino, *page)? else { return Ok(()) };
            let to = self.move_block(ino, slot, *addr, LogType::WarmData)?;
            self.inodes.of(ino).unflushed.insert(ino);
            set.push(self.io.writer(), to.into(), block);
            Ok(())
        });
        self.finish(set, moved)?;
        self.flush_moved()?;
        Ok(found.len() as u64)
    }
}
