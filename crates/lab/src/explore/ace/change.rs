//! The operations of sequences, and what may follow each.

/// An operation. The files: `/a` of three blocks, `/d/b` of two. Those that come after
/// [`Change::ALL`] are for calls that are durable when they return, and have more: `/a` has a
/// second name `/d/k` and an extended attribute; `/p` is in pieces; `/d/f` and `/g` are empty
/// directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Two blocks of `/a` anew.
    Overwrite,
    /// More of `/a` at its end, which lies within a block.
    Append,
    /// More of `/a` behind a hole.
    Beyond,
    /// `/a` shorter, to within a block.
    Shrink,
    /// `/a` longer, by a hole.
    Grow,
    /// A new file `/c` with contents.
    Create,
    /// `/a` goes.
    Unlink,
    /// `/a` moves to `/d/a`.
    Rename,
    /// `/d/b` moves to `/a`, replacing it.
    Replace,
    /// `/a` is `/d/l` too.
    Link,
    /// A new directory `/e`.
    Mkdir,
    /// A symbolic link `/s`.
    Symlink,
    /// An attribute of `/a`, larger than fits its inode.
    Xattr,
    /// Mode, owner and time of `/a`.
    Chmod,
    /// A hole in `/p`, whose ends are within blocks.
    Punch,
    /// Zeroes in `/a`.
    Zero,
    /// Blocks behind the end of `/a`, which moves.
    Allocate,
    /// The holes of `/p` are written to.
    Fill,
    /// `/p` is empty.
    Empty,
    /// `/a` and `/d/b` change places.
    Exchange,
    /// A directory and a file do.
    ExchangeDir,
    /// `/d/f` goes.
    Rmdir,
    /// `/d/f` moves to `/f`.
    MoveDir,
    /// `/d/f` moves to `/g`, replacing it.
    ReplaceDir,
    /// A fifo `/n`.
    Node,
    /// A file with a name of several lines.
    Long,
    /// The extended attribute of `/a` goes.
    DropXattr,
    /// `/p` goes while it is open.
    Orphan,
}

impl Change {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Overwrite,
        Self::Append,
        Self::Beyond,
        Self::Shrink,
        Self::Grow,
        Self::Create,
        Self::Unlink,
        Self::Rename,
        Self::Replace,
        Self::Link,
        Self::Mkdir,
        Self::Symlink,
        Self::Xattr,
        Self::Chmod,
    ];

    /// Those for calls that are durable when they return.
    pub const AT_RETURN: [Self; 28] = [
        Self::Overwrite,
        Self::Append,
        Self::Beyond,
        Self::Shrink,
        Self::Grow,
        Self::Create,
        Self::Unlink,
        Self::Rename,
        Self::Replace,
        Self::Link,
        Self::Mkdir,
        Self::Symlink,
        Self::Xattr,
        Self::Chmod,
        Self::Punch,
        Self::Zero,
        Self::Allocate,
        Self::Fill,
        Self::Empty,
        Self::Exchange,
        Self::ExchangeDir,
        Self::Rmdir,
        Self::MoveDir,
        Self::ReplaceDir,
        Self::Node,
        Self::Long,
        Self::DropXattr,
        Self::Orphan,
    ];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Append => "append",
            Self::Beyond => "beyond",
            Self::Shrink => "shrink",
            Self::Grow => "grow",
            Self::Create => "create",
            Self::Unlink => "unlink",
            Self::Rename => "rename",
            Self::Replace => "replace",
            Self::Link => "link",
            Self::Mkdir => "mkdir",
            Self::Symlink => "symlink",
            Self::Xattr => "xattr",
            Self::Chmod => "chmod",
            Self::Punch => "punch",
            Self::Zero => "zero",
            Self::Allocate => "allocate",
            Self::Fill => "fill",
            Self::Empty => "empty",
            Self::Exchange => "exchange",
            Self::ExchangeDir => "exchange-dir",
            Self::Rmdir => "rmdir",
            Self::MoveDir => "move-dir",
            Self::ReplaceDir => "replace-dir",
            Self::Node => "mknod",
            Self::Long => "long-name",
            Self::DropXattr => "removexattr",
            Self::Orphan => "unlink-open",
        }
    }

    /// In words, for tables.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite 8 KiB",
            Self::Append => "append 5 kB",
            Self::Beyond => "write behind a hole",
            Self::Shrink => "truncate, shorter",
            Self::Grow => "truncate, longer",
            Self::Create => "create and write",
            Self::Unlink => "unlink",
            Self::Rename => "rename",
            Self::Replace => "rename over a file",
            Self::Link => "link",
            Self::Mkdir => "mkdir",
            Self::Symlink => "symlink",
            Self::Xattr => "setxattr 2 kB",
            Self::Chmod => "chmod, chown, utimes",
            Self::Punch => "punch a hole",
            Self::Zero => "zero a range",
            Self::Allocate => "fallocate, longer",
            Self::Fill => "fill holes",
            Self::Empty => "truncate, to nothing",
            Self::Exchange => "exchange two files",
            Self::ExchangeDir => "exchange a directory and a file",
            Self::Rmdir => "rmdir",
            Self::MoveDir => "rename a directory",
            Self::ReplaceDir => "rename over a directory",
            Self::Node => "mknod",
            Self::Long => "create, long name",
            Self::DropXattr => "removexattr",
            Self::Orphan => "unlink an open file",
        }
    }
}

/// What makes it durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// fsync of what was changed, by an open descriptor.
    Fsync,
    /// fdatasync of it.
    Fdatasync,
    /// fsync of the directory it is in now.
    FsyncDir,
    /// sync.
    Sync,
}

impl Then {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Nothing, Self::Fsync, Self::Fdatasync, Self::FsyncDir, Self::Sync];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::FsyncDir => "fsync-dir",
            Self::Sync => "sync",
        }
    }
}
