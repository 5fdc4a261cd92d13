//! Extended attributes, with the rules of Linux's generic layer (xattr(7)).

use super::node::Node;
use crate::{Errno, FileKind, Result, XattrMode};

/// Longest name with its prefix, `XATTR_NAME_MAX`.
const XATTR_NAME_MAX: usize = 255;
/// Longest value, `XATTR_SIZE_MAX`.
const XATTR_SIZE_MAX: usize = 65_536;

const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

impl Node {
    pub(super) fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.check_xattr_name(name, Errno::NODATA)?;
        self.xattrs.get(name).cloned().ok_or_else(|| Errno::NODATA.into())
    }

    pub(super) fn set_xattr(&mut self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if value.len() > XATTR_SIZE_MAX {
            return Err(Errno::TOOBIG.into());
        }
        self.check_xattr_name(name, Errno::PERM)?;
        if name == ACL_DEFAULT && self.kind() != FileKind::Directory {
            return Err(Errno::ACCESS.into());
        }
        match (mode, self.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => Err(Errno::EXIST.into()),
            (XattrMode::Replace, false) => Err(Errno::NODATA.into()),
            _ => {
                self.xattrs.insert(name.to_vec(), value.to_vec());
                self.touch_ctime();
                Ok(())
            }
        }
    }

    pub(super) fn remove_xattr(&mut self, name: &[u8]) -> Result<()> {
        self.check_xattr_name(name, Errno::PERM)?;
        if self.xattrs.remove(name).is_none() {
            return Err(Errno::NODATA.into());
        }
        self.touch_ctime();
        Ok(())
    }

    /// `user.` attributes belong to files and directories; on anything else the answer is
    /// `not_here`. ACLs belong to all but symbolic links.
    fn check_xattr_name(&self, name: &[u8], not_here: Errno) -> Result<()> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Errno::RANGE.into());
        }
        let kind = self.kind();
        if name == ACL_ACCESS || name == ACL_DEFAULT {
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
}
