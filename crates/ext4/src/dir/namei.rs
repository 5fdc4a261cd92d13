//! Names: making, linking and removing inodes (`namei.c`). What POSIX says about them is in
//! [`vfs::names`].

use std::sync::Arc;

use journal::ondisk::fast::Naming;
use vfs::names::{self, Names};
use vfs::{Attr, Errno, FileKind, InodeFlags, NewInode, acl};
use zerocopy::FromZeros;

use crate::dir::entries::{self, Found};
use crate::error::Result;
use crate::inode::cached::Inode;
use crate::inode::flags::inherited;
use crate::mount::draft::{Draft, ino as narrow};
use crate::mount::engine::Engine;
use crate::mount::want::{Halt, Step};
use crate::ondisk::extent::emit_leaf;
use crate::ondisk::features::RoCompat;
use crate::ondisk::inode::{Flags, GOOD_OLD_SIZE, RawInode};
use crate::ondisk::{Ino, LINK_MAX};

/// Set-group-id bit.
const S_ISGID: u16 = 0o2000;
/// Room in the log that most operations on names need.
pub(super) const ROOM: u32 = 16;

/// What the rules for names see of a volume, and where entries were found.
pub(crate) struct Seen<'d, 'a, 'v> {
    draft: &'d Draft<'a, 'v>,
    /// For directories in question: themselves and the directories above.
    above: &'d [Vec<Ino>],
}

impl<'d, 'a, 'v> Seen<'d, 'a, 'v> {
    pub(super) fn new(draft: &'d Draft<'a, 'v>, above: &'d [Vec<Ino>]) -> Self {
        Self { draft, above }
    }
}

impl Names for Seen<'_, '_, '_> {
    type Error = Halt;

    const WHITEOUTS: bool = true;

    fn node(&mut self, ino: vfs::Ino) -> Step<(FileKind, u32)> {
        let inode = self.draft.inode(narrow(ino)?)?;
        Ok((inode.kind(), inode.links()))
    }

    fn find(&mut self, dir: vfs::Ino, name: &[u8]) -> Step<Option<vfs::Ino>> {
        let found = entries::find(self.draft, self.draft.inode(narrow(dir)?)?, name)?;
        Ok(found.map(|found| found.ino.into()))
    }

    fn parent(&mut self, dir: vfs::Ino) -> Step<vfs::Ino> {
        self.find(dir, b"..")?.ok_or_else(|| Errno::UCLEAN.into())
    }

    fn is_empty(&mut self, dir: vfs::Ino) -> Step<bool> {
        entries::is_empty(self.draft, self.draft.inode(narrow(dir)?)?)
    }

    fn is_below(&mut self, dir: vfs::Ino, ancestor: vfs::Ino) -> Step<bool> {
        let (dir, ancestor) = (narrow(dir)?, narrow(ancestor)?);
        let above = self.above.iter().find(|above| above.first() == Some(&dir));
        Ok(dir == ancestor || above.is_some_and(|above| above.contains(&ancestor)))
    }

    fn flags(&mut self, ino: vfs::Ino) -> Step<InodeFlags> {
        Ok(self.draft.inode(narrow(ino)?)?.protection())
    }

    fn can_link(&self, kind: FileKind, links: u32) -> bool {
        let has_no_limit = self.draft.volume().sb.ro_compat.contains(RoCompat::DIR_NLINK);
        links < LINK_MAX || kind == FileKind::Directory && has_no_limit
    }
}

impl Engine {
    /// Makes an inode under a name.
    pub(crate) fn make(&self, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Attr> {
        self.change(&[parent.into()], ROOM, |draft| {
            let seen = &mut Seen::new(draft, &[]);
            names::check_create(seen, parent.into(), name, new.kind)?;
            let ino = draft.make_inode(parent, new)?;
            draft.add_entry(parent, name, ino, new.kind)?;
            draft.mark_born(ino, parent, name);
            if new.kind == FileKind::Directory {
                draft.init_dir(ino, parent)?;
                draft.add_link(parent)?;
            }
            let inode = draft.inode(ino)?;
            Ok(inode.attr(0, draft.volume().sb.block_size))
        })
    }

    /// Makes a file without a name, which is open from the start (`ext4_tmpfile`).
    pub(crate) fn make_nameless(&self, parent: Ino, new: NewInode<'_>) -> Result<Attr> {
        let attr = self.change(&[parent.into()], ROOM, |draft| {
            names::check_dir(&mut Seen::new(draft, &[]), parent.into())?;
            draft.inode(parent)?.protection().check_may_add()?;
            let ino = draft.make_inode(parent, &new)?;
            draft.inode_mut(ino)?.raw.links_count = 0.into();
            draft.add_orphan(ino)?;
            Ok(draft.inode(ino)?.attr(0, draft.volume().sb.block_size))
        })?;
        self.opens.open_nameless(attr.ino, true);
        Ok(attr)
    }

    /// Gives an inode another name.
    pub(crate) fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.change(&[parent.into(), ino.into()], ROOM, |draft| {
            let linkable = self.opens.is_linkable(ino.into());
            let seen = &mut Seen::new(draft, &[]);
            names::check_link(seen, ino.into(), parent.into(), name, linkable)?;
            let kind = draft.inode(ino)?.kind();
            draft.add_entry(parent, name, ino, kind)?;
            if draft.inode(ino)?.links() == 0 {
                draft.note_more();
                draft.remove_orphan(ino)?;
            }
            draft.add_link(ino)?;
            draft.mark_mixed(ino);
            draft.note_name(Naming::Link, parent, ino, name);
            let now = draft.now;
            draft.inode_mut(ino)?.raw.set_ctime(now);
            let promised = draft.cached(ino)?.promised;
            Ok(draft.inode(ino)?.attr(promised, draft.volume().sb.block_size))
        })
    }

    /// Removes a name; the inode that it stood for.
    pub(crate) fn unlink(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        self.change(&[parent.into()], ROOM, |draft| {
            let seen = &mut Seen::new(draft, &[]);
            let ino = narrow(names::check_unlink(seen, parent.into(), name)?)?;
            let found = draft.entry(parent, name)?;
            draft.remove_entry(parent, found)?;
            draft.note_name(Naming::Unlink, parent, ino, name);
            draft.drop_name(parent, ino)?;
            Ok(ino)
        })
    }

    /// Removes an empty directory; which one that was.
    pub(crate) fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        self.change(&[parent.into()], ROOM, |draft| {
            let seen = &mut Seen::new(draft, &[]);
            let ino = narrow(names::check_rmdir(seen, parent.into(), name)?)?;
            let found = draft.entry(parent, name)?;
            draft.remove_entry(parent, found)?;
            draft.check_freeable(ino)?;
            draft.take_link(parent)?;
            draft.mark_lost_name(parent);
            draft.drop_dir(ino)?;
            Ok(ino)
        })
    }
}

impl Draft<'_, '_> {
    /// The entry of a name that the rules have found.
    pub(super) fn entry(&self, dir: Ino, name: &[u8]) -> Step<Found> {
        let found = entries::find(self, self.inode(dir)?, name)?;
        found.ok_or_else(|| Errno::NOENT.into())
    }

    /// Makes a new inode for directory `parent`, without a name.
    pub(crate) fn make_inode(&mut self, parent: Ino, new: &NewInode<'_>) -> Step<Ino> {
        let is_dir = new.kind == FileKind::Directory;
        let above = self.inode(parent)?.raw;
        let ino = self.take_inode(parent, is_dir)?;
        let engine = self.volume();
        let mut raw = RawInode::new_zeroed();
        let has_gid_bit = above.mode.get() & S_ISGID != 0;
        let gid_bit = if has_gid_bit && is_dir { S_ISGID } else { 0 };
        let mode = new.kind.mode_bits() as u16 | new.perm & 0o7777 | gid_bit;
        raw.mode = mode.into();
        raw.links_count = if is_dir { 2 } else { 1 }.into();
        raw.set_uid(new.creator.uid);
        raw.set_gid(if has_gid_bit || engine.grpid { above.gid() } else { new.creator.gid });
        raw.generation = (engine.generations.fetch_add(1) as u32).into();
        let extra = engine.inode_size().saturating_sub(GOOD_OLD_SIZE).min(32);
        raw.extra_isize = (extra as u16).into();
        for set in [RawInode::set_atime, RawInode::set_mtime, RawInode::set_ctime] {
            set(&mut raw, self.now);
        }
        raw.set_crtime(self.now);
        let flags = inherited(new.kind, above.flags());
        raw.flags = flags.bits().into();
        match new.kind {
            FileKind::Regular | FileKind::Directory => {
                raw.flags = (flags | Flags::EXTENTS).bits().into();
                emit_leaf(&mut raw.block, &[]);
            }
            FileKind::CharDevice | FileKind::BlockDevice => raw.set_rdev(new.rdev),
            FileKind::Symlink | FileKind::Fifo | FileKind::Socket => {}
        }
        let rest = vec![0; engine.inode_size() - GOOD_OLD_SIZE - extra];
        self.note_old_attributes(ino, rest.len())?;
        let seed = engine.sb.checksums.inode_seed(ino, raw.generation.get());
        let (at, _) = engine.inode_slot(ino)?;
        self.put_inode(ino, Inode { ino, at, raw, rest: Arc::from(rest), size: 0, seed });
        if new.kind == FileKind::Symlink {
            self.init_symlink(ino, new.target)?;
        }
        acl::inherit(self, parent.into(), ino.into())?;
        Ok(ino)
    }

    /// Adds a link. A directory that would have too many has 1 from then on (`ext4_inc_count`).
    pub(crate) fn add_link(&mut self, ino: Ino) -> Step<()> {
        let inode = self.inode_mut(ino)?;
        let is_dir = inode.kind() == FileKind::Directory;
        let links = match inode.links() {
            1 if is_dir => 1,
            links if is_dir && links >= LINK_MAX => 1,
            links => links + 1,
        };
        inode.raw.links_count = (links as u16).into();
        Ok(())
    }

    /// Takes a link from a directory that loses a subdirectory (`ext4_dec_count`).
    pub(crate) fn take_link(&mut self, dir: Ino) -> Step<()> {
        let inode = self.inode_mut(dir)?;
        if inode.links() > 2 {
            inode.raw.links_count = (inode.links() as u16 - 1).into();
        }
        Ok(())
    }

    /// As `drop_link`, of a name in `dir` that was removed or given to another inode.
    pub(super) fn drop_name(&mut self, dir: Ino, ino: Ino) -> Step<()> {
        if self.inode(ino)?.links() <= 1 {
            self.check_freeable(ino)?;
        }
        self.drop_link(ino)?;
        self.mark_mixed(ino);
        if self.inode(ino)?.links() > 0 {
            self.mark_lost_name(dir);
        }
        Ok(())
    }

    /// Takes the link of a name that was removed. Without links, the inode is an orphan.
    pub(crate) fn drop_link(&mut self, ino: Ino) -> Step<()> {
        let now = self.now;
        let inode = self.inode_mut(ino)?;
        let links = inode.links().saturating_sub(1);
        inode.raw.links_count = (links as u16).into();
        inode.raw.set_ctime(now);
        if links == 0 { self.add_orphan(ino) } else { Ok(()) }
    }

    /// Takes all links of a directory whose name was removed.
    pub(crate) fn drop_dir(&mut self, ino: Ino) -> Step<()> {
        let now = self.now;
        let inode = self.inode_mut(ino)?;
        inode.raw.links_count = 0.into();
        inode.raw.set_ctime(now);
        self.add_orphan(ino)
    }
}
