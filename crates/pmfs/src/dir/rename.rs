//! rename(2) and renameat2(2): one change of up to four inodes. The checks stand in the order in
//! which Linux makes them.

use vfs::{Errno, FileKind, Ino, RenameFlags, Result, check_name};

use super::names::Locked;
use crate::commit::Change;
use crate::mount::Pmfs;
use crate::ondisk::Corrupt;

/// A name, and the directory that it is in.
type Name<'a> = (Ino, &'a [u8]);

/// What is at both names.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Found {
    moved: (Ino, FileKind),
    target: Option<(Ino, FileKind)>,
}

impl Pmfs {
    pub(crate) fn rename_name(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        if flags.contains(RenameFlags::WHITEOUT) {
            // As on Linux, where the file system has no whiteouts.
            return Err(Errno::INVAL.into());
        }
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let no_replace = flags.contains(RenameFlags::NOREPLACE);
        if exchange && no_replace || !RenameFlags::all().contains(flags) {
            return Err(Errno::INVAL.into());
        }
        // Keeps the way up from every directory as it is, for the check against circles.
        let renames = (from.0 != to.0).then(|| self.renames.lock());
        let _gate = self.change()?;
        loop {
            let found = self.find_both(from, to, exchange, no_replace)?;
            if renames.is_some() {
                self.check_circles(from.0, to.0, found, exchange)?;
            }
            if found.target.is_some_and(|target| target.0 == found.moved.0) {
                return Ok(());
            }
            let target = found.target.map(|target| target.0);
            let inos: Vec<Ino> = [from.0, to.0, found.moved.0].into_iter().chain(target).collect();
            let Some(mut nodes) = self.nodes(&inos)? else { continue };
            let mut locked = Locked::new(&mut nodes);
            if Some(found) != locked.both(from, to)? {
                continue;
            }
            return match found.target {
                Some(target) if exchange => self.exchange(locked, from, to, found.moved, target),
                _ => self.replace(locked, from, to, found),
            };
        }
    }

    fn find_both(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        exchange: bool,
        no_replace: bool,
    ) -> Result<Found> {
        for dir in [from.0, to.0] {
            self.node(dir)?.lock.read().check_dir()?;
        }
        let is_dots = |name: &[u8]| matches!(name, b"." | b"..");
        if is_dots(from.1) || is_dots(to.1) {
            return Err(Errno::BUSY.into());
        }
        let moved = self.look(from.0, from.1)?;
        let target = match self.look(to.0, to.1) {
            Ok(_) if no_replace => return Err(Errno::EXIST.into()),
            Ok(target) => Some(target),
            Err(error) if error.errno() == Errno::NOENT && !exchange => None,
            Err(error) => return Err(error),
        };
        check_name(to.1)?;
        Ok(Found { moved, target })
    }

    /// A directory cannot go below itself, nor be replaced by what is below it. Within one
    /// directory neither can happen.
    fn check_circles(&self, from: Ino, to: Ino, found: Found, exchange: bool) -> Result<()> {
        if self.is_below(to, found.moved.0)? {
            return Err(Errno::INVAL.into());
        }
        match found.target {
            Some((target, _)) if self.is_below(from, target)? => {
                Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether directory `ino` is `ancestor` or lies below it.
    fn is_below(&self, ino: Ino, ancestor: Ino) -> Result<bool> {
        let mut here = ino;
        for _ in self.layout.inodes() {
            if here == ancestor {
                return Ok(true);
            }
            let parent = self.node(here)?.lock.read().raw.parent.get();
            if parent == here {
                return Ok(false);
            }
            here = parent;
        }
        let at = self.layout.inode_at(ino).unwrap_or(0);
        let (structure, what, allowed) = ("inode", "parent", "a way to the root");
        Err(Corrupt { structure, at, what, found: here, allowed }.into())
    }

    fn exchange(
        &self,
        mut locked: Locked<'_>,
        from: Name<'_>,
        to: Name<'_>,
        moved: (Ino, FileKind),
        target: (Ino, FileKind),
    ) -> Result<()> {
        let [moved_dir, target_dir] = [moved, target].map(|it| it.1 == FileKind::Directory);
        if from.0 != to.0 && moved_dir != target_dir {
            locked.get(if moved_dir { to.0 } else { from.0 })?.check_links()?;
        }
        self.reserve(locked.iter_mut(), false)?;
        let mut change = Change::new(&*self.pm);
        for (at, new) in [(from, target), (to, moved)] {
            locked.get(at.0)?.replace_name(&mut change, at.1, new);
        }
        locked.settle(&mut change, moved, from.0, to.0)?;
        locked.settle(&mut change, target, to.0, from.0)?;
        let _done = self.commit(change, locked.iter_mut());
        Ok(())
    }

    fn replace(
        &self,
        mut locked: Locked<'_>,
        from: Name<'_>,
        to: Name<'_>,
        Found { moved, target }: Found,
    ) -> Result<()> {
        let is_dir = moved.1 == FileKind::Directory;
        if let Some((target, kind)) = target {
            match (is_dir, kind == FileKind::Directory) {
                (true, false) => return Err(Errno::NOTDIR.into()),
                (false, true) => return Err(Errno::ISDIR.into()),
                (true, true) if !locked.get(target)?.index.is_empty() => {
                    return Err(Errno::NOTEMPTY.into());
                }
                _ => {}
            }
        } else if is_dir && from.0 != to.0 {
            locked.get(to.0)?.check_links()?;
        }
        self.reserve(locked.iter_mut(), false)?;
        let mut change = Change::new(&*self.pm);
        match target {
            Some(_) => locked.get(to.0)?.replace_name(&mut change, to.1, moved),
            None => {
                self.make_room(locked.get(to.0)?, &mut change, to.1.len())?;
                locked.get(to.0)?.add_name(&mut change, to.1, moved);
            }
        }
        locked.get(from.0)?.remove_name(&mut change, from.1);
        locked.settle(&mut change, moved, from.0, to.0)?;
        let mut freed = false;
        if let Some((target, _)) = target {
            if is_dir {
                locked.get(to.0)?.edit(&mut change, |raw| raw.links -= 1);
            }
            freed = self.drop_link(locked.get(target)?, target, &mut change);
        }
        let _done = self.commit(change, locked.iter_mut());
        if let (Some((target, _)), true) = (target, freed) {
            self.free_inode(locked.get(target)?, target);
        }
        Ok(())
    }
}

impl Locked<'_> {
    /// What both names stand for, now that everything is locked.
    fn both(&mut self, from: Name<'_>, to: Name<'_>) -> Result<Option<Found>> {
        let mut find = |(dir, name): Name<'_>| match self.get(dir)?.find(dir, name) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.errno() == Errno::NOENT => Ok(None),
            Err(error) => Err(error),
        };
        let (moved, target) = (find(from)?, find(to)?);
        Ok(moved.map(|moved| Found { moved, target }))
    }

    /// Gives a moved inode its new parent. A directory's `..` counts as a link to the parent.
    fn settle(
        &mut self,
        change: &mut Change<'_>,
        (ino, kind): (Ino, FileKind),
        from: Ino,
        to: Ino,
    ) -> Result<()> {
        let is_dir = kind == FileKind::Directory;
        self.get(ino)?.edit(change, |raw| {
            raw.touch_ctime();
            if is_dir {
                raw.parent = to.into();
            }
        });
        if is_dir && from != to {
            self.get(from)?.edit(change, |raw| raw.links -= 1);
            self.get(to)?.edit(change, |raw| raw.links += 1);
        }
        Ok(())
    }
}
