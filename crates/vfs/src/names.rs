//! POSIX's rules for names: what link(2), unlink(2), rmdir(2), rename(2) and whatever makes an
//! inode check, in the order in which Linux checks it (`fs/namei.c`).
//!
//! A file system answers for its directories through [`Names`]; nothing here changes anything.
//! Permissions and the sticky bit belong to the caller.

use crate::path::NAME_MAX;
use crate::{Errno, FileKind, Ino, InodeFlags, RenameFlags, check_name};

/// What the rules ask a file system.
pub trait Names {
    /// What can go wrong, a miss in a cache included.
    type Error: From<Errno>;

    /// Whether the file system has whiteouts, device nodes 0:0, for `RENAME_WHITEOUT`.
    const WHITEOUTS: bool = false;

    /// Type and number of links. `ENOENT` if there is no inode of this number.
    fn node(&mut self, ino: Ino) -> Result<(FileKind, u32), Self::Error>;

    /// The inode that `name` stands for in a directory. It is neither `.` nor `..` nor too long.
    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, Self::Error>;

    /// What `..` stands for in a directory.
    fn parent(&mut self, dir: Ino) -> Result<Ino, Self::Error>;

    /// Whether a directory has no entries but `.` and `..`.
    fn is_empty(&mut self, dir: Ino) -> Result<bool, Self::Error>;

    /// Whether directory `dir` is `ancestor`, or below it.
    fn is_below(&mut self, dir: Ino, ancestor: Ino) -> Result<bool, Self::Error>;

    /// Whether an inode of this kind with `links` can have one more.
    fn can_link(&self, kind: FileKind, links: u32) -> bool;

    /// Flags of an inode, some of which forbid changes of its names. Without flags nothing is.
    fn flags(&mut self, ino: Ino) -> Result<InodeFlags, Self::Error> {
        let _ = ino;
        Ok(InodeFlags::empty())
    }
}

/// What a rename has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// Both names stand for the same inode.
    Nothing,
    /// The name moves.
    Move {
        /// What it stands for.
        moved: Ino,
        /// What the new name stood for.
        replaced: Option<Ino>,
        /// A whiteout stays under the old name.
        whiteout: bool,
    },
    /// The names change places.
    Exchange {
        /// What the first stands for.
        moved: Ino,
        /// What the second stands for.
        other: Ino,
    },
}

/// A directory that still has a name. If it was removed while in use, Linux finds nothing in it and
/// makes nothing there.
///
/// # Errors
///
/// `ENOENT`, `ENOTDIR`.
pub fn check_dir<N: Names>(names: &mut N, ino: Ino) -> Result<(), N::Error> {
    match names.node(ino)? {
        (FileKind::Directory, 0) => Err(Errno::NOENT.into()),
        (FileKind::Directory, _) => Ok(()),
        _ => Err(Errno::NOTDIR.into()),
    }
}

/// What `name` stands for in `parent`.
///
/// # Errors
///
/// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`.
pub fn lookup<N: Names>(names: &mut N, parent: Ino, name: &[u8]) -> Result<Ino, N::Error> {
    find(names, parent, name)?.ok_or_else(|| Errno::NOENT.into())
}

fn find<N: Names>(names: &mut N, parent: Ino, name: &[u8]) -> Result<Option<Ino>, N::Error> {
    check_dir(names, parent)?;
    match name {
        b"." => Ok(Some(parent)),
        b".." => names.parent(parent).map(Some),
        _ if name.len() > NAME_MAX => Err(Errno::NAMETOOLONG.into()),
        _ => names.find(parent, name),
    }
}

fn is_dir<N: Names>(names: &mut N, ino: Ino) -> Result<bool, N::Error> {
    Ok(names.node(ino)?.0 == FileKind::Directory)
}

fn check_links<N: Names>(names: &mut N, ino: Ino) -> Result<(), N::Error> {
    let (kind, links) = names.node(ino)?;
    if names.can_link(kind, links) { Ok(()) } else { Err(Errno::MLINK.into()) }
}

/// Whether an inode of `kind` can be made under `name`.
///
/// # Errors
///
/// `EEXIST`, `EPERM` for an immutable directory, `EMLINK`, and those of a directory and a name.
pub fn check_create<N: Names>(
    names: &mut N,
    parent: Ino,
    name: &[u8],
    kind: FileKind,
) -> Result<(), N::Error> {
    if find(names, parent, name)?.is_some() {
        return Err(Errno::EXIST.into());
    }
    check_name(name).map_err(|error| error.errno())?;
    names.flags(parent)?.check_may_add()?;
    if kind == FileKind::Directory { check_links(names, parent) } else { Ok(()) }
}

/// Whether the name of `ino` may be removed from `dir` (`may_delete`).
fn check_may_remove<N: Names>(names: &mut N, dir: Ino, ino: Ino) -> Result<(), N::Error> {
    let flags = names.flags(ino)?;
    Ok(names.flags(dir)?.check_may_remove(flags)?)
}

/// Whether `ino` can be given the name `name`. `linkable` if it was made without one (`O_TMPFILE`).
///
/// # Errors
///
/// `EEXIST`, `EPERM` for a directory and for what flags forbid, `ENOENT` for an inode that has lost
/// its last name, `EMLINK`.
pub fn check_link<N: Names>(
    names: &mut N,
    ino: Ino,
    parent: Ino,
    name: &[u8],
    linkable: bool,
) -> Result<(), N::Error> {
    check_create(names, parent, name, FileKind::Regular)?;
    names.flags(ino)?.check_changeable()?;
    match names.node(ino)? {
        (FileKind::Directory, _) => Err(Errno::PERM.into()),
        (_, 0) if !linkable => Err(Errno::NOENT.into()),
        _ => check_links(names, ino),
    }
}

/// The inode whose name unlink(2) removes.
///
/// # Errors
///
/// `ENOENT`, `EPERM` for what flags forbid, `EISDIR`.
pub fn check_unlink<N: Names>(names: &mut N, parent: Ino, name: &[u8]) -> Result<Ino, N::Error> {
    let ino = lookup(names, parent, name)?;
    check_may_remove(names, parent, ino)?;
    if is_dir(names, ino)? { Err(Errno::ISDIR.into()) } else { Ok(ino) }
}

/// The directory that rmdir(2) removes.
///
/// # Errors
///
/// `EINVAL` for `.`, `EPERM` for what flags forbid, `ENOTEMPTY`, `ENOTDIR`, `ENOENT`.
pub fn check_rmdir<N: Names>(names: &mut N, parent: Ino, name: &[u8]) -> Result<Ino, N::Error> {
    match name {
        b"." => return Err(Errno::INVAL.into()),
        b".." => return Err(Errno::NOTEMPTY.into()),
        _ => {}
    }
    let ino = lookup(names, parent, name)?;
    check_may_remove(names, parent, ino)?;
    check_dir(names, ino)?;
    if names.is_empty(ino)? { Ok(ino) } else { Err(Errno::NOTEMPTY.into()) }
}

/// What rename(2) or renameat2(2) has to do.
///
/// # Errors
///
/// `EINVAL` for flags that do not go together, and where a directory would move below itself;
/// `EBUSY` for `.` and `..`; `EEXIST`, `ENOTDIR`, `EISDIR`, `ENOTEMPTY` for what the new name
/// stands for; `EPERM` for what flags forbid; `EMLINK`.
pub fn check_rename<N: Names>(
    names: &mut N,
    (parent, name): (Ino, &[u8]),
    (new_parent, new_name): (Ino, &[u8]),
    flags: RenameFlags,
) -> Result<Rename, N::Error> {
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    let whiteout = flags.contains(RenameFlags::WHITEOUT);
    let no_replace = flags.contains(RenameFlags::NOREPLACE);
    let wrong = exchange && (no_replace || whiteout) || whiteout && !N::WHITEOUTS;
    if wrong || !RenameFlags::all().contains(flags) {
        return Err(Errno::INVAL.into());
    }
    check_dir(names, parent)?;
    check_dir(names, new_parent)?;
    if matches!(name, b"." | b"..") || matches!(new_name, b"." | b"..") {
        return Err(Errno::BUSY.into());
    }
    let moved = lookup(names, parent, name)?;
    let target = match find(names, new_parent, new_name)? {
        Some(_) if no_replace => return Err(Errno::EXIST.into()),
        None if exchange => return Err(Errno::NOENT.into()),
        target => target,
    };
    check_name(new_name).map_err(|error| error.errno())?;
    check_loops(names, (parent, moved), (new_parent, target), exchange)?;
    match target {
        Some(target) if target == moved => Ok(Rename::Nothing),
        Some(other) if exchange => {
            check_may_remove(names, parent, moved)?;
            check_may_remove(names, new_parent, other)?;
            check_exchange(names, (parent, moved), (new_parent, other))?;
            Ok(Rename::Exchange { moved, other })
        }
        replaced => {
            check_may_remove(names, parent, moved)?;
            match replaced {
                Some(replaced) => check_may_remove(names, new_parent, replaced)?,
                None => names.flags(new_parent)?.check_may_add()?,
            }
            check_replace(names, (parent, moved), (new_parent, replaced))?;
            Ok(Rename::Move { moved, replaced, whiteout })
        }
    }
}

/// No directory may come to lie below itself.
fn check_loops<N: Names>(
    names: &mut N,
    (parent, moved): (Ino, Ino),
    (new_parent, target): (Ino, Option<Ino>),
    exchange: bool,
) -> Result<(), N::Error> {
    if names.is_below(new_parent, moved)? {
        return Err(Errno::INVAL.into());
    }
    if let Some(target) = target
        && names.is_below(parent, target)?
    {
        return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into());
    }
    Ok(())
}

fn check_exchange<N: Names>(
    names: &mut N,
    (parent, moved): (Ino, Ino),
    (new_parent, other): (Ino, Ino),
) -> Result<(), N::Error> {
    let (moves_dir, takes_dir) = (is_dir(names, moved)?, is_dir(names, other)?);
    if parent != new_parent && moves_dir != takes_dir {
        check_links(names, if moves_dir { new_parent } else { parent })?;
    }
    Ok(())
}

fn check_replace<N: Names>(
    names: &mut N,
    (parent, moved): (Ino, Ino),
    (new_parent, replaced): (Ino, Option<Ino>),
) -> Result<(), N::Error> {
    let moves_dir = is_dir(names, moved)?;
    let Some(replaced) = replaced else {
        return if moves_dir && parent != new_parent {
            check_links(names, new_parent)
        } else {
            Ok(())
        };
    };
    match (moves_dir, is_dir(names, replaced)?) {
        (true, false) => Err(Errno::NOTDIR.into()),
        (false, true) => Err(Errno::ISDIR.into()),
        (true, true) if !names.is_empty(replaced)? => Err(Errno::NOTEMPTY.into()),
        _ => Ok(()),
    }
}
