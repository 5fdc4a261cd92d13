//! Names: making, linking and removing inodes (`namei.c`).

use drive::{BLOCK_SIZE, Block};
use vfs::file::Write;
use vfs::{Creator, Errno, FileKind, Ino, acl};

use crate::alloc::nat::Cached;
use crate::dir::change::Entries;
use crate::dir::entries::{EntryPlace, Found, Names, init_dots};
use crate::error::{Error, Result};
use crate::inode::change::Change;
use crate::inode::flags::{self, Forbidden};
use crate::inode::protected::Protected;
use crate::mount::engine::Engine;
use crate::mount::faults::FaultType;
use crate::mount::quota::{Amount, Owner};
use crate::ondisk::dentry::DentryGeometry;
use crate::ondisk::inode::{
    Advise, DEFAULT_INLINE_XATTR_SLOTS, EXTRA_ISIZE, FileFlags, Inline, InodeLayout, RawInode,
    RawInodeBlock,
};
use crate::ondisk::node::RawNodeFooter;
use crate::ondisk::superblock::Features;
use crate::ondisk::{NAME_MAX, NEW_ADDR, Nid, SYMLINK_MAX};

/// Most links of an inode (`F2FS_LINK_MAX`).
const LINK_MAX: u32 = 0xffff_ffff;
/// Set-group-id bit.
const S_ISGID: u16 = 0o2000;

/// What kind of inode to make.
pub(crate) struct NewInode<'a> {
    pub(crate) parent: Nid,
    pub(crate) name: &'a [u8],
    pub(crate) kind: FileKind,
    pub(crate) perm: u16,
    pub(crate) rdev: u64,
    pub(crate) creator: Creator,
}

/// What a new inode has from its directory.
struct Inherited {
    flags: FileFlags,
    gid: u32,
    project: u32,
    /// The set-group-id bit, or nothing.
    mode: u16,
}

impl NewInode<'_> {
    /// What it has from `parent` (`inode_init_owner`, `f2fs_mask_flags`).
    fn inherited(&self, parent: &RawInode) -> Inherited {
        let flags = parent.file_flags() & flags::inherited(self.kind);
        let (gid, mode) = match (parent.mode.get() & S_ISGID, self.kind) {
            (0, _) => (self.creator.gid, 0),
            (_, FileKind::Directory) => (parent.gid.get(), S_ISGID),
            _ => (parent.gid.get(), 0),
        };
        let inherits = parent.file_flags().contains(FileFlags::PROJINHERIT);
        let project = parent.projid().filter(|_| inherits).unwrap_or(0);
        Inherited { flags, gid, project, mode }
    }
}

/// One end of a rename.
#[derive(Clone, Copy)]
pub(crate) struct NameIn<'a> {
    pub(crate) dir: Nid,
    pub(crate) name: &'a [u8],
}

pub(super) fn check_name(name: &[u8]) -> Result<()> {
    vfs::check_name(name).map_err(|error| Error::Posix(error.errno()))
}

pub(super) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Making and removing names and inodes.
pub(crate) trait Namei: Entries {
    /// Fails unless a new entry `name` can be made in `dir`.
    fn check_free(&mut self, dir: Nid, name: &[u8]) -> Result<(), Self::Error> {
        if name.len() <= NAME_MAX && self.find_entry(dir, name)?.is_some() {
            return Err(Error::from(Errno::EXIST).into());
        }
        self.check_has_key(dir)?;
        check_name(name)?;
        if self.view(dir)?.links.get() == 0 {
            return Err(Error::from(Errno::NOENT).into());
        }
        self.check_may_add(dir)
    }

    /// Counts a new inode for its owner, if the quotas have it.
    fn take_quota_of_new(&mut self, new: &NewInode<'_>) -> Result<Owner, Self::Error> {
        if !self.engine().quotas.is_on {
            return Ok(Owner::default());
        }
        let inherited = new.inherited(&*self.view(new.parent)?);
        let engine = self.engine();
        let has_projects = engine.sb.features.contains(Features::PRJQUOTA);
        let project = if has_projects { inherited.project } else { 0 };
        let owner = Owner::new(new.creator.uid, inherited.gid, project);
        engine.quotas.take(owner, Amount::INODE, engine.quota_time())?;
        Ok(owner)
    }

    /// Fails if `ino` may not get a name in `dir`, whose files belong to its project.
    fn check_project(&mut self, dir: Nid, ino: Nid) -> Result<(), Self::Error> {
        let dir = self.view(dir)?;
        let inherits = dir.file_flags().contains(FileFlags::PROJINHERIT);
        let project = dir.projid().unwrap_or(0);
        let has_projects = self.engine().sb.features.contains(Features::PRJQUOTA);
        if has_projects && inherits && self.view(ino)?.projid().unwrap_or(0) != project {
            return Err(Error::from(Errno::XDEV).into());
        }
        Ok(())
    }

    /// Puts a new inode into memory. Its number `ino` has been taken, and its place is `known`.
    fn put_inode(
        &mut self,
        ino: Nid,
        known: Cached,
        new: &NewInode<'_>,
    ) -> Result<(), Self::Error> {
        let inherited = new.inherited(&*self.view(new.parent)?);
        let (block, layout) = self.engine().format_inode(ino, new, &inherited);
        self.nat(|nat| nat.put(known, ino, ino, NEW_ADDR));
        self.shard_mut(ino)?.nodes.insert_new(ino, ino, block, layout);
        Ok(())
    }

    /// A new inode has its name: its directory shows that.
    fn named(&mut self, new: &NewInode<'_>) -> Result<(), Self::Error> {
        if new.kind == FileKind::Directory {
            self.add_links(new.parent, 1)?;
        }
        self.touch_dir(new.parent)
    }

    /// The name of `found`, unless it is a directory's, and whether the inode has others.
    fn find_to_unlink(&mut self, at: NameIn<'_>) -> Result<(Found, bool), Self::Error> {
        let found = self.find(at.dir, at.name)?;
        if found.kind == FileKind::Directory {
            return Err(Error::from(Errno::ISDIR).into());
        }
        self.check_may_remove(at.dir, found.ino)?;
        let lives_on = self.view(found.ino)?.links.get() > 1;
        if !lives_on {
            self.engine().check_orphan_room()?;
        }
        Ok((found, lives_on))
    }

    /// Takes the name at `place` out of its directory. Whether its inode `lives_on` is known
    /// already.
    fn remove_name(
        &mut self,
        at: NameIn<'_>,
        place: EntryPlace,
        lives_on: bool,
    ) -> Result<(), Self::Error> {
        self.remove_entry(at.dir, place)?;
        self.engine().since_checkpoint.lost_name(at, lives_on);
        self.touch_dir(at.dir)
    }

    /// An inode has lost one of its names. How many it has left.
    fn take_link(&mut self, ino: Nid) -> Result<u32, Self::Error> {
        let now = self.engine().clock.now();
        self.add_links(ino, -1)?;
        let inode = &mut RawInodeBlock::of_mut(self.node_mut(ino, ino)?).i;
        inode.set_ctime(now);
        Ok(inode.links.get())
    }

    fn add_links(&mut self, ino: Nid, delta: i32) -> Result<(), Self::Error> {
        let inode = &mut RawInodeBlock::of_mut(self.node_mut(ino, ino)?).i;
        inode.links.set(inode.links.get().saturating_add_signed(delta));
        Ok(())
    }

    fn touch_dir(&mut self, dir: Nid) -> Result<(), Self::Error> {
        let now = self.engine().clock.now();
        let inode = &mut RawInodeBlock::of_mut(self.node_mut(dir, dir)?).i;
        inode.set_mtime(now);
        inode.set_ctime(now);
        Ok(())
    }
}

impl<E: Entries> Namei for E {}

impl Engine {
    /// Makes an inode and its name.
    pub(crate) fn make(&mut self, new: &NewInode<'_>) -> Result<Nid> {
        self.check_free(new.parent, new.name)?;
        let ino = self.new_inode(new)?;
        let linked = acl::inherit(self, new.parent.into(), ino.into())
            .and_then(|()| self.add_entry(new.parent, new.name, ino, new.kind));
        if let Err(error) = linked {
            self.evict(ino)?;
            return Err(error);
        }
        self.named(new)?;
        Ok(ino)
    }

    /// Makes a file without a name, which is open from the start (`O_TMPFILE`).
    pub(crate) fn make_nameless(&mut self, new: &NewInode<'_>) -> Result<Nid> {
        self.check_dir(new.parent)?;
        self.check_may_add(new.parent)?;
        self.check_orphan_room()?;
        let ino = self.new_inode(new)?;
        if let Err(error) = acl::inherit(self, new.parent.into(), ino.into()) {
            self.evict(ino)?;
            return Err(error);
        }
        self.inode_mut(ino)?.links.set(0);
        self.orphans.insert(ino);
        self.opens.open_nameless(ino.into(), true);
        Ok(ino)
    }

    /// Fails if an inode cannot lose its last name (`f2fs_acquire_orphan_inode`). Linux has room
    /// for so many orphans; here only a fault makes it fail.
    pub(super) fn check_orphan_room(&self) -> Result<()> {
        if self.faults.fires(FaultType::ORPHAN) { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Makes an inode that has no name yet.
    pub(crate) fn new_inode(&mut self, new: &NewInode<'_>) -> Result<Nid> {
        let owner = self.take_quota_of_new(new)?;
        let taken = self.take_node(true);
        let ino = taken.inspect_err(|_| self.quotas.give(owner, Amount::INODE))?;
        let known = self.place_of(ino)?;
        self.put_inode(ino, known, new)?;
        if new.kind == FileKind::Directory && !self.options.inline_dentry {
            let mut page = [0; BLOCK_SIZE];
            init_dots(DentryGeometry::BLOCK, &mut page, ino, new.parent);
            if let Err(error) = self.reserve_block(ino, 0) {
                self.evict(ino)?;
                return Err(error);
            }
            self.inodes.of(ino).pages.insert_dirty(Ino::from(ino), 0, Block::new(page));
        }
        Ok(ino)
    }

    /// The first contents of a new inode's block (`f2fs_new_inode`, `init_inode_metadata`).
    fn format_inode(
        &self,
        ino: Nid,
        new: &NewInode<'_>,
        inherited: &Inherited,
    ) -> (Block, InodeLayout) {
        let mut flags = inherited.flags;
        let now = self.clock.now();
        let features = self.sb.features;
        let inline = self.inline_flags(new.kind);
        let flexible = features.contains(Features::FLEXIBLE_INLINE_XATTR);
        let has_xattr_room = if flexible {
            inline.contains(Inline::XATTR)
        } else {
            inline.intersects(Inline::XATTR | Inline::DENTRY)
        };
        let xattr = if has_xattr_room { DEFAULT_INLINE_XATTR_SLOTS } else { 0 };
        let extra_isize = if features.contains(Features::EXTRA_ATTR) { EXTRA_ISIZE } else { 0 };
        let layout = InodeLayout::new(extra_isize, xattr);

        let mut bytes = [0; BLOCK_SIZE];
        let block = RawInodeBlock::of_mut(&mut bytes);
        block.footer = RawNodeFooter::new(ino, ino, 0);
        block.footer.set_cold(new.kind != FileKind::Directory);
        let i = &mut block.i;
        i.mode.set(new.kind.mode_bits() as u16 | new.perm & 0o7777 | inherited.mode);
        i.set_inline(inline);
        i.uid.set(new.creator.uid);
        i.gid.set(inherited.gid);
        i.links.set(if new.kind == FileKind::Directory { 2 } else { 1 });
        i.blocks.set(1);
        i.set_atime(now);
        i.set_mtime(now);
        i.set_ctime(now);
        i.generation.set(self.generations.fetch_add(1) as u32);
        i.set_name(new.parent, new.name);
        i.set_advise(self.temperature(new));
        if let Some(extra) = i.extra_mut() {
            extra.extra_isize.set(extra_isize);
            extra.inline_xattr_size.set(if flexible { xattr } else { 0 });
            if features.contains(Features::PRJQUOTA) {
                extra.projid.set(inherited.project);
            }
            if features.contains(Features::INODE_CRTIME) {
                extra.crtime.set(now.secs.cast_unsigned());
                extra.crtime_nsec.set(now.nanos);
            }
        }
        match new.kind {
            FileKind::Directory => {
                i.current_depth.set(1);
                i.dir_level = self.knobs.dir_level as u8;
                flags |= FileFlags::INDEX;
                let size = if inline.contains(Inline::DENTRY) {
                    layout.inline_capacity()
                } else {
                    BLOCK_SIZE
                };
                i.size.set(size as u64);
            }
            FileKind::BlockDevice | FileKind::CharDevice => i.set_rdev(&layout, new.rdev),
            _ => {}
        }
        i.flags.set(flags.bits());
        if inline.contains(Inline::DENTRY) {
            let area = &mut bytes[layout.inline_range()];
            init_dots(layout.inline_dentries(), area, ino, new.parent);
        }
        (Block::new(bytes), layout)
    }

    fn inline_flags(&self, kind: FileKind) -> Inline {
        let mut inline = Inline::empty();
        inline.set(Inline::EXTRA_ATTR, self.sb.features.contains(Features::EXTRA_ATTR));
        inline.set(Inline::XATTR, self.options.inline_xattr);
        let may_hold_data = matches!(kind, FileKind::Regular | FileKind::Symlink);
        inline.set(Inline::DATA, self.options.inline_data && may_hold_data);
        let is_dir = kind == FileKind::Directory;
        inline.set(Inline::DENTRY, self.options.inline_dentry && is_dir);
        inline
    }

    /// Hot or cold by the name's extension (`set_file_temperature`): any part behind a dot that
    /// begins with a listed extension counts.
    fn temperature(&self, new: &NewInode<'_>) -> Advise {
        if new.kind != FileKind::Regular {
            return Advise::empty();
        }
        let matches = |list: &[String]| {
            new.name.split(|b| *b == b'.').skip(1).any(|part| {
                list.iter().any(|ext| {
                    let ext = ext.as_bytes();
                    !ext.is_empty()
                        && part.get(..ext.len()).is_some_and(|p| p.eq_ignore_ascii_case(ext))
                })
            })
        };
        if matches(&self.sb.cold_extensions) {
            Advise::COLD
        } else if matches(&self.sb.hot_extensions) {
            Advise::HOT
        } else {
            Advise::empty()
        }
    }

    /// Makes a symbolic link.
    pub(crate) fn symlink(&mut self, new: &NewInode<'_>, target: &[u8]) -> Result<Nid> {
        if target.len() > SYMLINK_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let ino = self.make(new)?;
        if let Err(error) = self.write_file(ino, Write::new(0, target)) {
            self.unlink(new.parent, new.name)?;
            return Err(error);
        }
        Ok(ino)
    }

    /// Gives `ino` one more name.
    pub(crate) fn link(&mut self, ino: Nid, dir: Nid, name: &[u8]) -> Result<()> {
        self.check_free(dir, name)?;
        self.check_changeable(ino)?;
        self.check_project(dir, ino)?;
        let linkable = self.opens.is_linkable(ino.into());
        let inode = self.inode(ino)?;
        let kind = inode.file_kind();
        match inode.links.get() {
            0 if linkable => {}
            _ if kind == FileKind::Directory => return Err(Errno::PERM.into()),
            0 => return Err(Errno::NOENT.into()),
            LINK_MAX => return Err(Errno::MLINK.into()),
            _ => {}
        }
        drop(inode);
        self.add_entry(dir, name, ino, kind)?;
        self.add_links(ino, 1)?;
        self.orphans.remove(&ino);
        self.opens.name(ino.into());
        let now = self.clock.now();
        let inode = self.inode_mut(ino)?;
        inode.set_ctime(now);
        inode.set_name(dir, name);
        self.since_checkpoint.moved(ino);
        self.touch_dir(dir)
    }

    /// Removes a name, unless it is a directory's.
    pub(crate) fn unlink(&mut self, dir: Nid, name: &[u8]) -> Result<()> {
        let at = NameIn { dir, name };
        let (found, lives_on) = self.find_to_unlink(at)?;
        self.remove_name(at, found.place, lives_on)?;
        self.drop_link(found.ino)
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&mut self, dir: Nid, name: &[u8]) -> Result<()> {
        match name {
            b"." => return Err(Errno::INVAL.into()),
            b".." => return Err(Errno::NOTEMPTY.into()),
            _ => {}
        }
        let found = self.find(dir, name)?;
        if found.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        self.check_may_remove(dir, found.ino)?;
        if !self.is_empty_dir(found.ino)? {
            return Err(Errno::NOTEMPTY.into());
        }
        self.check_orphan_room()?;
        self.remove_name(NameIn { dir, name }, found.place, true)?;
        self.add_links(dir, -1)?;
        self.drop_dir(found.ino)
    }

    /// Removes a name during recovery, whatever it names.
    pub(crate) fn drop_name(&mut self, dir: Nid, found: Found) -> Result<()> {
        self.remove_entry(dir, found.place)?;
        if found.kind == FileKind::Directory {
            self.add_links(dir, -1)?;
            return self.drop_dir(found.ino);
        }
        self.drop_link(found.ino)
    }

    /// An empty directory has lost its name.
    pub(super) fn drop_dir(&mut self, ino: Nid) -> Result<()> {
        self.inode_mut(ino)?.links.set(0);
        self.orphan_or_evict(ino);
        Ok(())
    }

    /// An inode has lost one of its names.
    pub(super) fn drop_link(&mut self, ino: Nid) -> Result<()> {
        if self.take_link(ino)? == 0 {
            self.orphan_or_evict(ino);
        }
        Ok(())
    }
}
