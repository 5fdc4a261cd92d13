//! Copies what belongs to a file besides its contents, as far as it is kept.

use vfs::{Attr, Errno, FileKind, Result};

use super::{Copy, Sink, Source, Told, Xattrs};
use crate::out;

impl<S: Source, T: Sink> Copy<'_, S, T> {
    /// Owner, extended attributes, mode, times, in this order: a new owner clears set-id bits and
    /// capabilities, a new mode changes an ACL's mask, and all of them touch the times.
    pub(super) fn attributes(
        &mut self,
        source: &S::Node,
        attr: &Attr,
        node: &T::Node,
        path: &[u8],
    ) -> Result<(), Told> {
        let keep = &self.options.keep;
        let to = self.to.show(path);
        let mut perm = keep.perm(attr);
        if keep.ownership {
            match self.to.set_owner(node, attr.uid, attr.gid) {
                Ok(true) => {}
                // Only the owner may give set-id bits.
                Ok(false) => perm &= 0o1777,
                Err(e) => {
                    return Err(self.fail(format!("failed to preserve ownership for '{to}'"), &e));
                }
            }
        }
        let xattrs = if keep.xattr { self.xattrs_of(source)? } else { Vec::new() };
        let (acls, others): (Xattrs, Xattrs) =
            xattrs.into_iter().partition(|(name, _)| name.starts_with(b"system."));
        self.set_xattrs(&others, node, path)?;
        if attr.kind != FileKind::Symlink {
            let set = self.to.set_mode(node, perm);
            set.map_err(|e| self.fail(format!("preserving permissions for '{to}'"), &e))?;
        }
        self.set_xattrs(&acls, node, path)?;
        if keep.timestamps {
            let (atime, mtime) = self.options.times.of(attr);
            let set = self.to.set_times(node, atime, mtime);
            set.map_err(|e| self.fail(format!("preserving times for '{to}'"), &e))?;
        }
        Ok(())
    }

    fn xattrs_of(&mut self, source: &S::Node) -> Result<Xattrs, Told> {
        let found = self.from.xattrs(source);
        let from = self.from.show(source);
        found.map_err(|e| self.fail(format!("getting attributes of '{from}'"), &e))
    }

    fn set_xattrs(&mut self, xattrs: &Xattrs, node: &T::Node, path: &[u8]) -> Result<(), Told> {
        for (name, value) in xattrs {
            match self.to.set_xattr(node, name, value) {
                // Namespaces that the destination does not keep, or not for this user: as with `cp
                // -a`, that is an error only if attributes were asked for by name.
                Err(e)
                    if !self.options.keep.strict_xattr
                        && matches!(e.errno(), Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
                set => set.map_err(|e| {
                    let (name, to) = (out::lossy(name), self.to.show(path));
                    self.fail(format!("setting attribute '{name}' for '{to}'"), &e)
                })?,
            }
        }
        Ok(())
    }
}
