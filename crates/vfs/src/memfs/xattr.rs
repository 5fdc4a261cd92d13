//! Extended attributes, with the rules of Linux's generic layer (xattr(7)).

use super::node::Node;
use crate::{Errno, FileKind, Result, XattrMode, check_xattr_name};

/// Longest value, `XATTR_SIZE_MAX`.
const XATTR_SIZE_MAX: usize = 65_536;

const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

impl Node {
    pub(super) fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(self.kind(), name, Errno::NODATA)?;
        self.xattrs.get(name).cloned().ok_or_else(|| Errno::NODATA.into())
    }

    pub(super) fn set_xattr(&mut self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if value.len() > XATTR_SIZE_MAX {
            return Err(Errno::TOOBIG.into());
        }
        check_xattr_name(self.kind(), name, Errno::PERM)?;
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
        check_xattr_name(self.kind(), name, Errno::PERM)?;
        if self.xattrs.remove(name).is_none() {
            return Err(Errno::NODATA.into());
        }
        self.touch_ctime();
        Ok(())
    }
}
