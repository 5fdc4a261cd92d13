//! Moving and swapping names (`f2fs_rename2`).

use vfs::{Creator, Errno, FileKind, RenameFlags};

use crate::dir::change::Entries;
use crate::dir::entries::Found;
use crate::dir::entries::Names;
use crate::dir::namei::{NameIn, Namei, NewInode, check_name, is_dots};
use crate::error::{Error, Result};
use crate::inode::flags::Forbidden;
use crate::inode::protected::Protected;
use crate::mount::engine::Engine;
use crate::ondisk::Nid;
use crate::ondisk::inode::RawInodeBlock;

/// Moving names.
pub(crate) trait Rename: Namei {
    /// What is called `from`, and `to` if there is that name.
    fn find_ends(
        &mut self,
        from: NameIn<'_>,
        to: NameIn<'_>,
        flags: RenameFlags,
    ) -> Result<(Found, Option<Found>), Self::Error> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let no_replace = flags.contains(RenameFlags::NOREPLACE);
        let whiteout = flags.contains(RenameFlags::WHITEOUT);
        let failed = |errno| Err(Error::from(errno).into());
        if exchange && (no_replace || whiteout) {
            return failed(Errno::INVAL);
        }
        self.check_dir(from.dir)?;
        self.check_dir(to.dir)?;
        self.check_has_key(from.dir)?;
        self.check_has_key(to.dir)?;
        if is_dots(from.name) || is_dots(to.name) {
            return failed(Errno::BUSY);
        }
        let source = self.find(from.dir, from.name)?;
        check_name(to.name)?;
        match self.find_entry(to.dir, to.name)? {
            Some(_) if no_replace => failed(Errno::EXIST),
            None if exchange => failed(Errno::NOENT),
            target => Ok((source, target)),
        }
    }

    /// Fails if `source` may not be moved, or not to where `target` is.
    fn check_may_move(
        &mut self,
        from: Nid,
        source: Found,
        to: Nid,
        target: Option<Found>,
    ) -> Result<(), Self::Error> {
        self.check_may_remove(from, source.ino)?;
        self.check_project(to, source.ino)?;
        match target {
            Some(found) => self.check_may_remove(to, found.ino),
            None => self.check_may_add(to),
        }
    }

    /// Updates what a moved inode says about its name.
    fn moved(&mut self, ino: Nid, to: NameIn<'_>) -> Result<(), Self::Error> {
        let now = self.engine().clock.now();
        let inode = &mut RawInodeBlock::of_mut(self.node_mut(ino, ino)?).i;
        inode.set_name(to.dir, to.name);
        inode.set_ctime(now);
        self.engine().since_checkpoint.moved(ino);
        Ok(())
    }
}

impl<N: Namei> Rename for N {}

impl Engine {
    /// Moves or swaps names.
    pub(crate) fn rename(
        &mut self,
        from: NameIn<'_>,
        to: NameIn<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let whiteout = flags.contains(RenameFlags::WHITEOUT);
        let (source, target) = self.find_ends(from, to, flags)?;
        if source.kind == FileKind::Directory && self.is_within(to.dir, source.ino)? {
            return Err(Errno::INVAL.into());
        }
        self.check_may_move(from.dir, source, to.dir, target)?;
        let move_over = |volume: &mut Self, target| match whiteout {
            true => volume.replace_by_whiteout(from, source, to, target),
            false => volume.replace(from, source, to, target, None),
        };
        let Some(found) = target else { return move_over(self, None) };
        if found.kind == FileKind::Directory && self.is_within(from.dir, found.ino)? {
            return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into());
        }
        if found.ino == source.ino {
            Ok(())
        } else if exchange {
            self.check_project(from.dir, found.ino)?;
            self.exchange(from, source, to, found)
        } else {
            move_over(self, target)
        }
    }

    /// Leaves a device 0:0 behind under the old name (`RENAME_WHITEOUT`), for overlayfs.
    fn replace_by_whiteout(
        &mut self,
        from: NameIn<'_>,
        source: Found,
        to: NameIn<'_>,
        target: Option<Found>,
    ) -> Result<()> {
        let NameIn { dir: parent, name } = from;
        let (kind, creator) = (FileKind::CharDevice, Creator::default());
        let white = self.new_inode(&NewInode { parent, name, kind, perm: 0, rdev: 0, creator })?;
        let moved = self.replace(from, source, to, target, Some(white));
        if moved.is_err() {
            self.evict(white)?;
        }
        moved
    }

    /// Whether `dir` is `ancestor` or lies below it.
    fn is_within(&mut self, mut dir: Nid, ancestor: Nid) -> Result<bool> {
        // A tree is not deeper than its number of inodes. More steps mean that `..` leads in a
        // circle.
        for _ in 0..=self.space.used().inodes {
            if dir == ancestor {
                return Ok(true);
            }
            if dir == self.sb.root_ino {
                return Ok(false);
            }
            dir = self.find(dir, b"..")?.ino;
        }
        Err(Error::corrupt("dir_entry ..", dir, "a circle", "a way to the root"))
    }

    fn replace(
        &mut self,
        from: NameIn<'_>,
        source: Found,
        to: NameIn<'_>,
        target: Option<Found>,
        white: Option<Nid>,
    ) -> Result<()> {
        let is_dir = source.kind == FileKind::Directory;
        let dots = self.dots_that_change(source, from.dir, to.dir)?;
        if let Some(target) = target {
            let lives_on = is_dir || self.inode(target.ino)?.links.get() > 1;
            match (is_dir, target.kind == FileKind::Directory) {
                (true, false) => return Err(Errno::NOTDIR.into()),
                (false, true) => return Err(Errno::ISDIR.into()),
                (true, true) if !self.is_empty_dir(target.ino)? => {
                    return Err(Errno::NOTEMPTY.into());
                }
                _ => {}
            }
            self.check_orphan_room()?;
            self.set_entry(to.dir, target.place, source.ino, source.kind)?;
            self.since_checkpoint.lost_name(to, lives_on);
        } else {
            if self.inode(to.dir)?.links.get() == 0 {
                return Err(Errno::NOENT.into());
            }
            self.add_entry(to.dir, to.name, source.ino, source.kind)?;
        }
        // Adding may have moved the old entry out of the inode, so look again.
        let old = self.find(from.dir, from.name)?;
        match white {
            Some(white) => self.set_entry(from.dir, old.place, white, FileKind::CharDevice)?,
            None => self.remove_entry(from.dir, old.place)?,
        }
        self.since_checkpoint.lost_name(from, true);
        if is_dir && from.dir != to.dir {
            self.add_links(from.dir, -1)?;
            self.add_links(to.dir, 1)?;
        }
        self.moved(source.ino, to)?;
        self.point_up(source.ino, dots, to.dir)?;
        self.touch_dir(from.dir)?;
        self.touch_dir(to.dir)?;
        match target {
            Some(target) if is_dir => {
                self.add_links(to.dir, -1)?;
                self.drop_dir(target.ino)
            }
            Some(target) => self.drop_link(target.ino),
            None => Ok(()),
        }
    }

    fn exchange(
        &mut self,
        from: NameIn<'_>,
        source: Found,
        to: NameIn<'_>,
        target: Found,
    ) -> Result<()> {
        let source_dots = self.dots_that_change(source, from.dir, to.dir)?;
        let target_dots = self.dots_that_change(target, to.dir, from.dir)?;
        self.set_entry(from.dir, source.place, target.ino, target.kind)?;
        self.set_entry(to.dir, target.place, source.ino, source.kind)?;
        if from.dir != to.dir {
            let dirs = |found: Found| i32::from(found.kind == FileKind::Directory);
            let gain = dirs(source) - dirs(target);
            self.add_links(to.dir, gain)?;
            self.add_links(from.dir, -gain)?;
        }
        for (found, dots, to) in [(source, source_dots, to), (target, target_dots, from)] {
            self.moved(found.ino, to)?;
            self.point_up(found.ino, dots, to.dir)?;
        }
        self.since_checkpoint.lost_name(from, true);
        self.since_checkpoint.lost_name(to, true);
        self.touch_dir(from.dir)?;
        self.touch_dir(to.dir)
    }

    /// The entry `..` of a directory that moves from `dir` to another. It is looked up before
    /// anything changes, so that an unreadable directory stays where it is.
    fn dots_that_change(&mut self, what: Found, dir: Nid, to: Nid) -> Result<Option<Found>> {
        let changes = what.kind == FileKind::Directory && dir != to;
        if changes { self.find(what.ino, b"..").map(Some) } else { Ok(None) }
    }

    /// Points `dots`, the entry `..` of a directory that moved, to its new parent.
    fn point_up(&mut self, dir: Nid, dots: Option<Found>, parent: Nid) -> Result<()> {
        dots.map_or(Ok(()), |dots| self.set_entry(dir, dots.place, parent, FileKind::Directory))
    }
}
