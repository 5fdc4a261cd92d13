//! The rules that Linux's generic layer keeps for every file system: names, extended attribute
//! names (xattr(7)), fallocate modes (`vfs_fallocate`).

use crate::path::NAME_MAX;
use crate::{Errno, FallocateMode, FileKind, Result};

/// Longest name with its prefix, `XATTR_NAME_MAX`.
const XATTR_NAME_MAX: usize = 255;

/// Whether an inode of `kind` may have an attribute `name` (with its prefix).
///
/// `user.` attributes belong to files and directories; on anything else the answer is `not_here`.
/// ACLs belong to everything but symbolic links. All prefixes but `user.`, `trusted.`, `security.`
/// and those of ACLs are `EOPNOTSUPP`.
pub fn check_xattr_name(kind: FileKind, name: &[u8], not_here: Errno) -> Result<()> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Errno::RANGE.into());
    }
    if name == b"system.posix_acl_access" || name == b"system.posix_acl_default" {
        return match kind {
            FileKind::Symlink => Err(Errno::OPNOTSUPP.into()),
            _ => Ok(()),
        };
    }
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let Some(prefix) = prefixes.into_iter().find(|prefix| name.starts_with(prefix)) else {
        return Err(Errno::OPNOTSUPP.into());
    };
    if prefix == b"user." && !matches!(kind, FileKind::Regular | FileKind::Directory) {
        return Err(not_here.into());
    }
    if name.len() == prefix.len() {
        return Err(Errno::INVAL.into());
    }
    Ok(())
}

/// Whether an entry can have this `name`: it is not empty and not too long, and has no slash and no
/// NUL.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        Err(Errno::NOENT.into())
    } else if name.len() > NAME_MAX {
        Err(Errno::NAMETOOLONG.into())
    } else if name.iter().any(|&b| b == b'/' || b == 0) {
        Err(Errno::INVAL.into())
    } else {
        Ok(())
    }
}

/// Whether `fallocate` takes this mode and range at all, whatever the file.
pub fn check_fallocate(mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
    let alone = |flag| mode.contains(flag) && mode != flag;
    if len == 0 || offset > i64::MAX as u64 || len > i64::MAX as u64 {
        return Err(Errno::INVAL.into());
    }
    let punch = mode.contains(FallocateMode::PUNCH_HOLE);
    let zero = mode.contains(FallocateMode::ZERO_RANGE);
    if !FallocateMode::all().contains(mode)
        || punch && (zero || !mode.contains(FallocateMode::KEEP_SIZE))
    {
        return Err(Errno::OPNOTSUPP.into());
    }
    if alone(FallocateMode::COLLAPSE_RANGE) || alone(FallocateMode::INSERT_RANGE) {
        return Err(Errno::INVAL.into());
    }
    Ok(())
}
