//! The FUSE protocol, version 7: the structures, operations and flags that cross `/dev/fuse`.
//!
//! Source: `include/uapi/linux/fuse.h`. Everything is in the host's byte order. Names are the
//! kernel's without their prefix `fuse_`/`FUSE_`. Structures have no implicit padding.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the protocol; all 7.x understand one another.
pub(crate) const KERNEL_VERSION: u32 = 7;
/// The newest minor version whose structures are described here.
pub(crate) const KERNEL_MINOR_VERSION: u32 = 42;
/// The oldest kernel that is served: 5.4, the first with all structures below in their present
/// size.
pub(crate) const MINOR_VERSION_MIN: u32 = 31;
/// Node id of the root directory.
pub(crate) const ROOT_ID: u64 = 1;

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident $size:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

wire! {
    /// Before every request.
    InHeader 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Before every reply. `error` is 0, a negated errno, or the code of a notification.
    OutHeader 16 { len: u32, error: i32, unique: u64, }
    /// What `stat` returns.
    Attr 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32,
        rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    ForgetIn 8 { nlookup: u64, }
    BatchForgetIn 8 { count: u32, dummy: u32, }
    ForgetOne 16 { nodeid: u64, nlookup: u64, }
    MknodIn 16 { mode: u32, rdev: u32, umask: u32, padding: u32, }
    MkdirIn 8 { mode: u32, umask: u32, }
    RenameIn 8 { newdir: u64, }
    Rename2In 16 { newdir: u64, flags: u32, padding: u32, }
    LinkIn 8 { oldnodeid: u64, }
    SetattrIn 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    OpenIn 8 { flags: u32, open_flags: u32, }
    CreateIn 16 { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    OpenOut 16 { fh: u64, open_flags: u32, backing_id: u32, }
    ReleaseIn 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    ReadIn 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteOut 8 { size: u32, padding: u32, }
    StatfsOut 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    FsyncIn 16 { fh: u64, fsync_flags: u32, padding: u32, }
    SetxattrIn 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    /// Of a kernel that does not offer `SETXATTR_EXT`.
    SetxattrCompatIn 8 { size: u32, flags: u32, }
    GetxattrIn 8 { size: u32, padding: u32, }
    GetxattrOut 8 { size: u32, padding: u32, }
    InitIn 16 { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    /// Follows [`InitIn`] if that says `INIT_EXT`.
    InitInExt 48 { flags2: u32, unused: [u32; 11], }
    InitOut 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    IoctlIn 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    IoctlOut 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    FallocateIn 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// Followed by the name and padding to 8 bytes.
    Dirent 24 { ino: u64, off: u64, namelen: u32, kind: u32, }
    LseekIn 24 { fh: u64, offset: u64, whence: u32, padding: u32, }
    LseekOut 8 { offset: u64, }
    CopyFileRangeIn 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    StatxIn 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }
    SxTime 16 { tv_sec: i64, tv_nsec: u32, reserved: i32, }
    StatxOut 288 {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2],
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    NotifyInvalInodeOut 24 { ino: u64, off: i64, len: i64, }
    /// What an entry of a ring has besides its payload: an [`InHeader`] or [`OutHeader`] in
    /// `in_out`, the operation's structure in `op_in`, and `struct fuse_uring_ent_in_out` in the
    /// rest.
    UringReqHeader 288 {
        in_out: [u64; 16], op_in: [u64; 16],
        flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64,
    }
    /// Command of a ring's submission entry.
    UringCmdReq 24 { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6], }
}

/// Subcommands of a ring, `enum fuse_uring_cmd`: hand an entry over for the first time; send its
/// reply and get the next request in it.
pub(crate) const URING_CMD_REGISTER: u32 = 1;
pub(crate) const URING_CMD_COMMIT_AND_FETCH: u32 = 2;

/// Code of a notification: forget what is cached of an inode.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// Code of a notification: look up every name again (Linux 6.16).
pub(crate) const NOTIFY_INC_EPOCH: i32 = 8;

/// Operations, as in [`InHeader::opcode`].
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

bitflags! {
    /// What the kernel and the file system agree on, `FUSE_INIT`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Init: u64 {
        const ASYNC_READ = 1 << 0;
        const ATOMIC_O_TRUNC = 1 << 3;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const HAS_IOCTL_DIR = 1 << 11;
        const DO_READDIRPLUS = 1 << 13;
        const WRITEBACK_CACHE = 1 << 16;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const OVER_IO_URING = 1 << 41;
    }
}

bitflags! {
    /// Which fields of [`SetattrIn`] count.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Fattr: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }
}

/// [`OpenOut`]: the page cache keeps what it has of the file.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// [`OpenOut`]: direct writes to one file need not wait for one another.
pub(crate) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// [`OpenIn`]: truncating takes the set-id bits away.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// [`WriteIn`]: pages of the kernel's cache, which it writes back.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// [`WriteIn`]: writing takes the set-id bits away.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// [`FsyncIn`]: `fdatasync`.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// [`SetxattrIn`]: this ACL takes the set-group-id bit away.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `STATX_BASIC_STATS`.
pub(crate) const STATX_BASIC: u32 = 0x7ff;
/// `STATX_BTIME`.
pub(crate) const STATX_BTIME: u32 = 0x800;

/// `O_APPEND`, as in `open(2)`.
pub(crate) const O_APPEND: u32 = 0o2000;
/// `O_TRUNC`, as in `open(2)` on every architecture Linux shares these with.
pub(crate) const O_TRUNC: u32 = 0o1000;
/// `O_ACCMODE`.
pub(crate) const O_ACCMODE: u32 = 0o3;
/// `O_RDONLY`.
pub(crate) const O_RDONLY: u32 = 0;
/// `O_WRONLY`.
pub(crate) const O_WRONLY: u32 = 0o1;
/// `O_RDWR`.
pub(crate) const O_RDWR: u32 = 0o2;
/// `O_DIRECT`, which is not the same on every architecture. The kernel passes its own cache by, and
/// keeps that coherent; a request says with this what the file was opened with.
pub(crate) const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
/// `O_NOATIME`.
pub(crate) const O_NOATIME: u32 = 0o1_000_000;
