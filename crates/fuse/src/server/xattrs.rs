//! Extended attributes, and the requests to [`super::Control`] that look like them.

use vfs::{XattrMode, acl};

use super::{Done, Errno, Server, errno};
use crate::abi::{
    GetxattrIn, GetxattrOut, Init, SETXATTR_ACL_KILL_SGID, SetxattrCompatIn, SetxattrIn,
};
use crate::wire::{Reply, Request, split_name};

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const BOTH: u32 = XATTR_CREATE | XATTR_REPLACE;
/// Prefix of the names of access control lists.
const ACL: &[u8] = b"system.posix_acl_";
/// The request for which [`super::Control::reopen`] is called.
const REOPEN: &[u8] = b"remount=rw";
/// Prefix of the requests to [`super::Control`].
const CONTROL: &[u8] = b"user.strandline.";

impl Server {
    pub(super) fn getxattr(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let ino = self.ino(request.header.nodeid);
        let (args, name) = request.args_and_name::<GetxattrIn>()?;
        let value = match self.control_name(request, name) {
            Some((control, request)) => control.ask(request)?,
            None if self.is_off(name) => return Err(Errno::OPNOTSUPP),
            None => self.fs.getxattr(ino, name).map_err(errno)?,
        };
        put_sized(&value, args.size, reply)
    }

    /// Whether the request asks for a read-only volume to be mounted for writing.
    pub(super) fn is_to_reopen(&self, request: &Request<'_>) -> bool {
        let Ok((_, name)) = request.args_and_name::<GetxattrIn>() else { return false };
        let asked = self.control_name(request, name);
        self.behaviour.read_only && asked.is_some_and(|(_, asked)| asked == REOPEN)
    }

    pub(super) fn setxattr(&self, request: &Request<'_>) -> Done {
        let ino = self.ino(request.header.nodeid);
        let (args, rest) = self.setxattr_args(request)?;
        let (name, value) = split_name(rest)?;
        let value = value.get(..args.size as usize).ok_or(Errno::IO)?;
        if self.is_off(name) {
            return Err(Errno::OPNOTSUPP);
        }
        let mode = match args.flags {
            0 => XattrMode::Set,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            // Nothing is both there and not there.
            BOTH => return Err(self.fs.getxattr(ino, name).map_or_else(errno, |_| Errno::EXIST)),
            _ => return Err(Errno::INVAL),
        };
        self.gains_attribute(ino, name);
        self.fs.setxattr(ino, name, value, mode).map_err(errno)?;
        // The kernel asks for it with default lists, too, which leave the mode as it is.
        let kills = args.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
        if kills && name == acl::ACCESS { self.drop_sgid(ino) } else { Ok(()) }
    }

    /// Kernels before 5.12 send only half of the structure.
    fn setxattr_args<'a>(&self, request: &Request<'a>) -> Result<(SetxattrIn, &'a [u8]), Errno> {
        if self.is_agreed(Init::SETXATTR_EXT) {
            return request.args_and_rest();
        }
        let (compat, rest) = request.args_and_rest::<SetxattrCompatIn>()?;
        let SetxattrCompatIn { size, flags } = compat;
        Ok((SetxattrIn { size, flags, ..SetxattrIn::default() }, rest))
    }

    pub(super) fn listxattr(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let ino = self.ino(request.header.nodeid);
        let args: GetxattrIn = request.args()?;
        let mut list = Vec::new();
        for name in self.fs.listxattr(ino).map_err(errno)? {
            // As in other file systems, a caller that could not read them does not see them.
            if request.header.uid == 0 || !name.starts_with(b"trusted.") {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        put_sized(&list, args.size, reply)
    }

    pub(super) fn removexattr(&self, request: &Request<'_>) -> Done {
        let ino = self.ino(request.header.nodeid);
        let name = request.name()?;
        if self.is_off(name) {
            return Err(Errno::OPNOTSUPP);
        }
        self.nodes.changed(ino);
        self.fs.removexattr(ino, name).map_err(errno)
    }

    /// Whether this mount does not offer attributes of this kind.
    fn is_off(&self, name: &[u8]) -> bool {
        !self.behaviour.acl && name.starts_with(ACL)
    }

    /// The request in an attribute's name, if the attribute is one of the root directory and the
    /// caller may make the request.
    fn control_name<'a>(
        &self,
        request: &Request<'_>,
        name: &'a [u8],
    ) -> Option<(&dyn super::Control, &'a [u8])> {
        let name = name.strip_prefix(CONTROL)?;
        let is_root = self.ino(request.header.nodeid) == self.root;
        self.control(request).filter(|_| is_root).map(|control| (control, name))
    }
}

/// Answers with a value, or with its size if that is what the caller asks for.
pub(super) fn put_sized(value: &[u8], size: u32, reply: &mut Reply<'_>) -> Done {
    if size == 0 {
        reply.put(&GetxattrOut { size: value.len() as u32, padding: 0 });
        return Ok(());
    }
    if value.len() > size as usize || value.len() > reply.room() {
        return Err(Errno::RANGE);
    }
    reply.bytes(value);
    Ok(())
}
