//! The nouns of POSIX: inode numbers, attributes, directory entries, flags.

use bitflags::bitflags;

/// Inode number.
pub type Ino = u64;

/// Seconds and nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timespec {
    /// Whole seconds; negative before 1970.
    pub secs: i64,
    /// 0..1_000_000_000.
    pub nanos: u32,
}

/// `S_IFMT` as a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
}

impl FileKind {
    /// The `S_IFMT` bits of a mode.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The kind a mode names, if it names one.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// The number that directory entries of Linux's own file systems store (`FT_REG_FILE` and so
    /// on, `include/linux/fs_types.h`).
    pub const fn dirent_type(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }

    /// The kind that such a number names, if it names one.
    pub const fn from_dirent_type(file_type: u8) -> Option<Self> {
        Some(match file_type {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }
}

/// `struct stat`, and the creation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// File type.
    pub kind: FileKind,
    /// Permission bits, including set-id and sticky (`mode & 0o7777`).
    pub perm: u16,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node (Linux `makedev` encoding).
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Allocated 512-byte units.
    pub blocks: u64,
    /// Last access.
    pub atime: Timespec,
    /// Last data change.
    pub mtime: Timespec,
    /// Last inode change.
    pub ctime: Timespec,
    /// Creation; zero where the file system does not keep it.
    pub crtime: Timespec,
    /// Tells apart two inodes that had the same number one after the other.
    pub generation: u32,
}

/// What `setattr` changes; `None` leaves a field as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// New permission bits.
    pub perm: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// Truncate or extend.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<Timespec>,
    /// New modification time.
    pub mtime: Option<Timespec>,
    /// Time of this change of the inode; now, if not given.
    pub ctime: Option<Timespec>,
}

/// On whose behalf something is created. Permission checks happen above the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Creator {
    /// Owner of the new inode.
    pub uid: u32,
    /// Group of the new inode (a set-group-id parent overrides it).
    pub gid: u32,
}

/// What an inode is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// Its kind.
    pub kind: FileKind,
    /// After the umask.
    pub perm: u16,
    /// Of a device; 0 otherwise.
    pub rdev: u64,
    /// Of a symbolic link; empty otherwise.
    pub target: &'a [u8],
    /// Who makes it.
    pub creator: Creator,
}

impl NewInode<'_> {
    /// One that is neither a device nor a symbolic link.
    pub fn plain(kind: FileKind, perm: u16, creator: Creator) -> Self {
        Self { kind, perm, rdev: 0, target: b"", creator }
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Name, without `/` and NUL.
    pub name: Vec<u8>,
    /// Inode it names.
    pub ino: Ino,
    /// Type of that inode.
    pub kind: FileKind,
    /// Where to continue reading after this entry.
    pub next: u64,
}

/// `struct statvfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub block_size: u32,
    /// Blocks users can have.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for users other than root.
    pub blocks_available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name.
    pub name_max: u32,
}

bitflags! {
    /// `renameat2` flags.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail with `EEXIST` if the target exists.
        const NOREPLACE = 1;
        /// Swap the two.
        const EXCHANGE = 2;
        /// Leave a whiteout under the old name.
        const WHITEOUT = 4;
    }
}

bitflags! {
    /// `fallocate` mode, Linux values. Empty = preallocate and extend.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FallocateMode: u32 {
        /// Leave the size alone.
        const KEEP_SIZE = 0x01;
        /// Deallocate; goes with `KEEP_SIZE`.
        const PUNCH_HOLE = 0x02;
        /// Remove a range and close the gap.
        const COLLAPSE_RANGE = 0x08;
        /// Make a range read as zeroes.
        const ZERO_RANGE = 0x10;
        /// Insert a hole, moving what follows.
        const INSERT_RANGE = 0x20;
    }
}

bitflags! {
    /// Flags of an inode as chattr(1) sets them, `FS_*_FL`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// What is written is durable before the call returns.
        const SYNC = 0x08;
        /// Nothing about it may change.
        const IMMUTABLE = 0x10;
        /// It can only be appended to.
        const APPEND = 0x20;
        /// dump(8) skips it.
        const NODUMP = 0x40;
        /// Reading does not change its access time.
        const NOATIME = 0x80;
        /// As `SYNC`, for a directory's names.
        const DIRSYNC = 0x1_0000;
    }
}

/// `setxattr` flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    #[default]
    Set,
    /// `XATTR_CREATE`: fail with `EEXIST` if there.
    Create,
    /// `XATTR_REPLACE`: fail with `ENODATA` if not there.
    Replace,
}

/// What `lseek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Next byte that is data.
    Data,
    /// Next byte in a hole; the end of the file counts as one.
    Hole,
}
