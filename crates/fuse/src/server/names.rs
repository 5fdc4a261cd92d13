//! Names: looking up, making, linking, removing, moving and listing.

use vfs::{Attr, Creator, DirEntry, FileKind, Ino, RenameFlags};
use zerocopy::IntoBytes;

use super::{Done, Errno, Server, errno};
use crate::abi::{
    BatchForgetIn, CreateIn, Dirent, EntryOut, ForgetIn, ForgetOne, LinkIn, MkdirIn, MknodIn,
    ReadIn, Rename2In, RenameIn, op,
};
use crate::wire::{Reply, Request};

/// Entries of a directory begin at multiples of this.
const ALIGN: usize = 8;

fn creator(request: &Request<'_>) -> Creator {
    Creator { uid: request.header.uid, gid: request.header.gid }
}

impl Server {
    pub(super) fn lookup(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let parent = self.ino(request.header.nodeid);
        // open_by_handle_at(2) looks up the name `.` of an inode, which may be gone.
        let found = match request.name()? {
            b"." => self.fs.getattr(parent).map_err(|_| Errno::STALE),
            name => self.fs.lookup(parent, name).map_err(errno),
        };
        match found {
            Ok(attr) => reply.put(&self.entry(parent, &attr)),
            // The kernel can also remember that a name does not exist.
            Err(Errno::NOENT) => {
                let entry_valid = self.names_valid(parent);
                reply.put(&EntryOut { entry_valid, ..EntryOut::default() });
            }
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    pub(super) fn forget(&self, request: &Request<'_>) -> Done {
        if request.header.opcode == op::FORGET {
            let args: ForgetIn = request.args()?;
            self.nodes.forget(&*self.fs, self.ino(request.header.nodeid), args.nlookup);
            return Ok(());
        }
        let (args, list) = request.args_and_rest::<BatchForgetIn>()?;
        for one in list.chunks_exact(size_of::<ForgetOne>()).take(args.count as usize) {
            let one: ForgetOne =
                zerocopy::FromBytes::read_from_bytes(one).map_err(|_| Errno::IO)?;
            self.nodes.forget(&*self.fs, self.ino(one.nodeid), one.nlookup);
        }
        Ok(())
    }

    pub(super) fn mknod(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let parent = self.ino(request.header.nodeid);
        let (args, name) = request.args_and_name::<MknodIn>()?;
        let kind = FileKind::from_mode(args.mode).ok_or(Errno::INVAL)?;
        let attr = self.make(parent, args.mode, args.umask, |perm| {
            self.fs.mknod(parent, name, kind, perm, args.rdev.into(), creator(request))
        })?;
        reply.put(&self.entry(parent, &attr));
        Ok(())
    }

    pub(super) fn create(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let parent = self.ino(request.header.nodeid);
        let (args, name) = request.args_and_name::<CreateIn>()?;
        let attr = self.make(parent, args.mode, args.umask, |perm| {
            self.fs.create(parent, name, perm, creator(request))
        })?;
        self.nodes.set_unprivileged(attr.ino, true);
        let handle = self.new_handle(args.flags);
        self.fs.opened(attr.ino, handle, true).map_err(errno)?;
        reply.put(&self.entry(parent, &attr));
        reply.put(&self.open_out(attr.ino, handle, true));
        Ok(())
    }

    /// `O_TMPFILE`.
    pub(super) fn tmpfile(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let parent = self.ino(request.header.nodeid);
        let (args, _) = request.args_and_name::<CreateIn>()?;
        let perm = self.new_perm(parent, args.mode, args.umask);
        let attr = self.fs.tmpfile(parent, perm, creator(request)).map_err(errno)?;
        let handle = self.new_handle(args.flags);
        self.fs.opened(attr.ino, handle, true).map_err(errno)?;
        self.nodes.looked_up_nameless(attr.ino);
        reply.put(&self.entry_out(&attr));
        reply.put(&self.open_out(attr.ino, handle, true));
        Ok(())
    }

    pub(super) fn mkdir(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let parent = self.ino(request.header.nodeid);
        let (args, name) = request.args_and_name::<MkdirIn>()?;
        let attr = self.make(parent, args.mode, args.umask, |perm| {
            self.fs.mkdir(parent, name, perm, creator(request))
        })?;
        reply.put(&self.entry(parent, &attr));
        Ok(())
    }

    pub(super) fn symlink(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let parent = self.ino(request.header.nodeid);
        let (name, target) = request.names()?;
        let attr = self.fs.symlink(parent, name, target, creator(request)).map_err(errno)?;
        self.changed_dir(parent)?;
        reply.put(&self.entry(parent, &attr));
        Ok(())
    }

    /// Makes an inode with its final permission bits.
    fn make(
        &self,
        parent: Ino,
        mode: u32,
        umask: u32,
        make: impl FnOnce(u16) -> vfs::Result<Attr>,
    ) -> Result<Attr, Errno> {
        let attr = make(self.new_perm(parent, mode, umask)).map_err(errno)?;
        self.changed_dir(parent)?;
        Ok(attr)
    }

    /// The permission bits for a new inode in `parent`.
    fn new_perm(&self, parent: Ino, mode: u32, umask: u32) -> u16 {
        // Where new files inherit a list, it replaces the umask.
        let inherits = self.behaviour.acl && self.fs.getxattr(parent, vfs::acl::DEFAULT).is_ok();
        let mode = if inherits { mode } else { mode & !umask };
        (mode & 0o7777) as u16
    }

    pub(super) fn link(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let parent = self.ino(request.header.nodeid);
        let (args, name) = request.args_and_name::<LinkIn>()?;
        let ino = self.ino(args.oldnodeid);
        self.nodes.changed(ino);
        let attr = self.fs.link(ino, parent, name).map_err(errno)?;
        self.changed_dir(parent)?;
        reply.put(&self.entry(parent, &attr));
        Ok(())
    }

    pub(super) fn unlink(&self, request: &Request<'_>) -> Done {
        let (parent, name) = (self.ino(request.header.nodeid), request.name()?);
        let victim = self.fs.lookup(parent, name).map_err(errno)?;
        self.losing_name(&victim, || self.fs.unlink(parent, name))?;
        self.changed_dir(parent)
    }

    pub(super) fn rmdir(&self, request: &Request<'_>) -> Done {
        let (parent, name) = (self.ino(request.header.nodeid), request.name()?);
        let victim = self.fs.lookup(parent, name).map_err(errno)?;
        self.losing_name(&victim, || self.fs.rmdir(parent, name))?;
        self.changed_dir(parent)
    }

    pub(super) fn rename(&self, request: &Request<'_>) -> Done {
        let (args, name, new_name) = request.args_and_names::<RenameIn>()?;
        self.move_name(request, args.newdir, name, new_name, RenameFlags::empty())
    }

    pub(super) fn rename2(&self, request: &Request<'_>) -> Done {
        let (args, name, new_name) = request.args_and_names::<Rename2In>()?;
        let flags = RenameFlags::from_bits(args.flags).ok_or(Errno::INVAL)?;
        self.move_name(request, args.newdir, name, new_name, flags)
    }

    fn move_name(
        &self,
        request: &Request<'_>,
        new_node: u64,
        name: &[u8],
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Done {
        let (parent, new_parent) = (self.ino(request.header.nodeid), self.ino(new_node));
        let rename = || self.fs.rename(parent, name, new_parent, new_name, flags);
        match self.fs.lookup(new_parent, new_name).map_err(errno) {
            Ok(victim) if !flags.contains(RenameFlags::EXCHANGE) => {
                self.losing_name(&victim, rename)?;
            }
            _ => rename().map_err(errno)?,
        }
        self.changed_dir(parent)?;
        if new_parent == parent { Ok(()) } else { self.changed_dir(new_parent) }
    }

    /// Does something that takes a name from `victim`, which stays alive as long as the kernel
    /// knows it.
    fn losing_name(&self, victim: &Attr, change: impl FnOnce() -> vfs::Result<()>) -> Done {
        let last = victim.nlink <= 1 || victim.kind == FileKind::Directory;
        let pinned = last && self.nodes.pin(&*self.fs, victim.ino).map_err(errno)?;
        let done = change().map_err(errno);
        if done.is_err() && pinned {
            self.nodes.unpin(&*self.fs, victim.ino);
        }
        done
    }

    /// A directory was changed: makes that durable at once if the mount says so.
    fn changed_dir(&self, dir: Ino) -> Done {
        if self.behaviour.dirsync { self.fs.fsync(dir, false).map_err(errno) } else { Ok(()) }
    }

    pub(super) fn readlink(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let ino = self.ino(request.header.nodeid);
        reply.bytes(&self.fs.readlink(ino).map_err(errno)?);
        self.accessed(ino);
        Ok(())
    }

    pub(super) fn readdir(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let dir = self.ino(request.header.nodeid);
        let args: ReadIn = request.args()?;
        let size = args.size as usize;
        let mut add = |entry: DirEntry| put_dirent(reply, size, None, &entry);
        self.fs.readdir(dir, args.offset, &mut add).map_err(errno)?;
        self.accessed(dir);
        Ok(())
    }

    /// Entries with the attributes of their inodes. Each counts as a lookup.
    pub(super) fn readdirplus(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let dir = self.ino(request.header.nodeid);
        let args: ReadIn = request.args()?;
        let size = args.size as usize;
        let mut entries = Vec::new();
        let mut room = size.min(reply.room());
        let mut collect = |entry: DirEntry| {
            let len = dirent_len(true, &entry);
            let fits = len <= room;
            room -= len.min(room);
            if fits {
                entries.push(entry);
            }
            fits
        };
        self.fs.readdir(dir, args.offset, &mut collect).map_err(errno)?;
        for entry in &entries {
            let dots = entry.name == b"." || entry.name == b"..";
            // An inode that is gone by now has no attributes. The kernel looks it up if it needs
            // to.
            let attr = if dots { None } else { self.fs.getattr(entry.ino).ok() };
            let known = attr.map_or_else(EntryOut::default, |attr| self.entry(dir, &attr));
            put_dirent(reply, size, Some(&known), entry);
        }
        self.accessed(dir);
        Ok(())
    }
}

fn dirent_len(plus: bool, entry: &DirEntry) -> usize {
    let head = size_of::<Dirent>() + if plus { size_of::<EntryOut>() } else { 0 };
    (head + entry.name.len()).next_multiple_of(ALIGN)
}

/// Appends an entry; false if it does not fit in `size` bytes.
fn put_dirent(
    reply: &mut Reply<'_>,
    size: usize,
    known: Option<&EntryOut>,
    entry: &DirEntry,
) -> bool {
    let len = dirent_len(known.is_some(), entry);
    if reply.filled().len() + len > size || len > reply.room() {
        return false;
    }
    if let Some(known) = known {
        reply.put(known);
    }
    let head = Dirent {
        ino: entry.ino,
        off: entry.next,
        namelen: entry.name.len() as u32,
        kind: entry.kind.mode_bits() >> 12,
    };
    reply.bytes(head.as_bytes());
    reply.bytes(&entry.name);
    let padding = (size_of::<Dirent>() + entry.name.len()).next_multiple_of(ALIGN)
        - (size_of::<Dirent>() + entry.name.len());
    reply.bytes(&[0; ALIGN][..padding]);
    true
}
