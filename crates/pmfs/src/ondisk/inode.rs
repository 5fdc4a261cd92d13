//! An inode: 128 bytes of attributes, then the first eight extents of its contents. In designs with
//! logs the attributes are those of its birth, and what follows are a word for its log, one for the
//! logs of cores, and an extent that it was born with.
//!
//! Its kind is part of the mode; a mode of zero is a free inode. Size and the times of a change lie
//! side by side, so that the record of a plain write is short.

use vfs::{Attr, FileKind, Ino, Timespec};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Corrupt;

/// Bytes of an inode in the table.
pub(crate) const INODE_SIZE: u64 = 256;
/// Where the extents begin.
pub(crate) const EXTENTS_AT: u64 = 128;
/// In designs with logs: where the block of the log's first page is, or zero.
pub(crate) const LOG_AT: u64 = 128;
/// Where the block of the global log is, or zero.
pub(crate) const CORES_AT: u64 = 136;
/// Where the extent of birth is.
pub(crate) const BIRTH_AT: u64 = 144;
/// Largest size of a file: 16 TiB.
pub(crate) const FILE_SIZE_MAX: u64 = 1 << 44;
/// How many hard links an inode may have, as on ext4.
pub(crate) const LINK_MAX: u32 = 65_000;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawInode {
    /// `S_IFMT` and permission bits; zero if the inode is free.
    pub(crate) mode: U32,
    pub(crate) links: U32,
    pub(crate) uid: U32,
    pub(crate) gid: U32,
    pub(crate) size: U64,
    pub(crate) mtime: I64,
    pub(crate) ctime: I64,
    pub(crate) mtime_nanos: U32,
    pub(crate) ctime_nanos: U32,
    pub(crate) atime: I64,
    pub(crate) crtime: I64,
    pub(crate) atime_nanos: U32,
    pub(crate) crtime_nanos: U32,
    /// Stays when the inode is freed, and is one more for the next.
    pub(crate) generation: U32,
    /// `FS_*_FL`.
    pub(crate) flags: U32,
    pub(crate) rdev: U64,
    /// A directory's parent.
    pub(crate) parent: U64,
    /// First block of the extended attributes in 48 bits, and how many blocks.
    pub(crate) xattrs: U64,
    /// The first map block, or zero.
    pub(crate) map: U64,
    pub(crate) reserved: [U64; 2],
}

const _: () = assert!(size_of::<RawInode>() as u64 == EXTENTS_AT);

impl RawInode {
    /// A free inode of this generation.
    pub(crate) fn free(generation: u32) -> Self {
        Self { generation: generation.into(), ..Self::new_zeroed() }
    }

    /// What it is; `None` if it is free.
    pub(crate) fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode.get())
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }

    pub(crate) fn perm(&self) -> u16 {
        (self.mode.get() & 0o7777) as u16
    }

    pub(crate) fn set_perm(&mut self, perm: u16) {
        self.mode = (self.mode.get() & !0o7777 | u32::from(perm & 0o7777)).into();
    }

    /// Fails unless it is a live inode that can be read.
    pub(crate) fn check(&self, at: u64) -> Result<FileKind, Corrupt> {
        let wrong =
            |what, found, allowed| Err(Corrupt { structure: "inode", at, what, found, allowed });
        let Some(kind) = self.kind() else {
            return wrong("mode", self.mode.get().into(), "a mode of a known kind");
        };
        if self.size.get() > FILE_SIZE_MAX {
            return wrong("size", self.size.get(), "16 TiB at most");
        }
        for nanos in [self.mtime_nanos, self.ctime_nanos, self.atime_nanos, self.crtime_nanos] {
            if nanos.get() >= 1_000_000_000 {
                return wrong("nanoseconds", nanos.get().into(), "less than a second");
            }
        }
        Ok(kind)
    }

    pub(crate) fn set_mtime(&mut self, time: Timespec) {
        (self.mtime, self.mtime_nanos) = (time.secs.into(), time.nanos.into());
    }

    pub(crate) fn set_ctime(&mut self, time: Timespec) {
        (self.ctime, self.ctime_nanos) = (time.secs.into(), time.nanos.into());
    }

    pub(crate) fn set_atime(&mut self, time: Timespec) {
        (self.atime, self.atime_nanos) = (time.secs.into(), time.nanos.into());
    }

    /// The contents or entries changed.
    pub(crate) fn touch_data(&mut self) {
        let now = now();
        self.set_mtime(now);
        self.set_ctime(now);
    }

    pub(crate) fn touch_ctime(&mut self) {
        self.set_ctime(now());
    }

    /// All times, at the start.
    pub(crate) fn born(&mut self, now: Timespec) {
        self.set_mtime(now);
        self.set_ctime(now);
        self.set_atime(now);
        (self.crtime, self.crtime_nanos) = (now.secs.into(), now.nanos.into());
    }

    /// As stat(2) shows it. `blocks` are those of 4 KiB.
    pub(crate) fn attr(&self, ino: Ino, kind: FileKind, blocks: u64) -> Attr {
        let time = |secs: I64, nanos: U32| Timespec { secs: secs.get(), nanos: nanos.get() };
        Attr {
            ino,
            kind,
            perm: self.perm(),
            nlink: self.links.get(),
            uid: self.uid.get(),
            gid: self.gid.get(),
            rdev: self.rdev.get(),
            size: self.size.get(),
            blocks: blocks * 8,
            atime: time(self.atime, self.atime_nanos),
            mtime: time(self.mtime, self.mtime_nanos),
            ctime: time(self.ctime, self.ctime_nanos),
            crtime: time(self.crtime, self.crtime_nanos),
            generation: self.generation.get(),
        }
    }
}

/// The clock, as a file system keeps it.
pub(crate) fn now() -> Timespec {
    let now = cores::wall_clock();
    Timespec { secs: now.as_secs() as i64, nanos: now.subsec_nanos() }
}
