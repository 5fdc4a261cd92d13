//! Renames (`ext4_rename`, `ext4_cross_rename`).

use journal::ondisk::fast::Naming;
use vfs::names::{self, Rename};
use vfs::{Creator, Errno, FileKind, NewInode, RenameFlags};

use crate::dir::entries::{self, Found};
use crate::dir::namei::{ROOM, Seen};
use crate::error::Result;
use crate::mount::draft::Draft;
use crate::mount::engine::Engine;
use crate::mount::want::Step;
use crate::ondisk::{Ino, ROOT_INO};

/// One end of a rename.
pub(crate) type NameIn<'a> = (Ino, &'a [u8]);

impl Engine {
    /// Moves a name, or exchanges two. Returns the inode that has lost its name to the other one.
    pub(crate) fn rename(
        &self,
        from: NameIn<'_>,
        to: NameIn<'_>,
        flags: RenameFlags,
    ) -> Result<Option<Ino>> {
        // Only renames between directories change what lies above a directory.
        let crosses = (from.0 != to.0).then(|| self.renames.lock());
        let above = match &crosses {
            Some(_) => vec![self.above(from.0)?, self.above(to.0)?],
            None => Vec::new(),
        };
        let inos = [from.0.into(), to.0.into()];
        self.change(&inos, ROOM, |draft| {
            let seen = &mut Seen::new(draft, &above);
            let (old, new) = ((from.0.into(), from.1), (to.0.into(), to.1));
            match names::check_rename(seen, old, new, flags)? {
                Rename::Nothing => Ok(None),
                Rename::Move { moved, replaced, whiteout } => {
                    let replaced = replaced.map(|ino| ino as Ino);
                    draft.move_name(from, to, moved as Ino, replaced, whiteout)?;
                    Ok(replaced)
                }
                Rename::Exchange { moved, other } => {
                    draft.exchange(from, to, moved as Ino, other as Ino)?;
                    Ok(None)
                }
            }
        })
    }

    /// Directory `dir`, and those above it up to the root. The caller holds the lock of renames.
    fn above(&self, dir: Ino) -> Result<Vec<Ino>> {
        let mut above = vec![dir];
        let mut here = dir;
        while here != ROOT_INO {
            let parent = self.look(here.into(), |shard| {
                let inode = &shard.inode(here)?.inode;
                match inode.kind() {
                    FileKind::Directory if inode.links() == 0 => return Ok(None),
                    FileKind::Directory => {}
                    _ => return Ok(None),
                }
                entries::find(self, inode, b"..")
            })?;
            let Some(parent) = parent else { break };
            if above.contains(&parent.ino) {
                return Err(Errno::UCLEAN.into());
            }
            here = parent.ino;
            above.push(here);
        }
        Ok(above)
    }
}

impl Draft<'_, '_> {
    fn is_dir(&self, ino: Ino) -> Step<bool> {
        Ok(self.inode(ino)?.kind() == FileKind::Directory)
    }

    fn move_name(
        &mut self,
        (parent, name): NameIn<'_>,
        (new_parent, new_name): NameIn<'_>,
        moved: Ino,
        replaced: Option<Ino>,
        whiteout: bool,
    ) -> Step<()> {
        let kind = self.inode(moved)?.kind();
        match replaced {
            Some(_) => {
                let found = self.entry(new_parent, new_name)?;
                self.set_entry(new_parent, found, moved, kind)?;
                self.touch_dir(new_parent)?;
            }
            None => self.add_entry(new_parent, new_name, moved, kind)?,
        }
        if let Some(replaced) = replaced {
            self.note_name(Naming::Unlink, new_parent, replaced, new_name);
        }
        self.note_name(Naming::Link, new_parent, moved, new_name);
        self.note_name(Naming::Unlink, parent, moved, name);
        // Only now: the new entry may have moved what is beside the old one.
        let old = self.entry(parent, name)?;
        match whiteout {
            true => self.put_whiteout(parent, old)?,
            false => self.remove_entry(parent, old)?,
        }
        if let Some(replaced) = replaced {
            if self.is_dir(replaced)? {
                self.check_freeable(replaced)?;
                self.take_link(new_parent)?;
                self.mark_lost_name(new_parent);
                self.drop_dir(replaced)?;
            } else {
                self.drop_name(new_parent, replaced)?;
            }
        }
        self.mark_lost_name(parent);
        self.settle(moved, parent, new_parent)
    }

    /// A device 0:0 takes the place of a name, for overlayfs (`ext4_whiteout_for_rename`).
    fn put_whiteout(&mut self, dir: Ino, name: Found) -> Step<()> {
        let kind = FileKind::CharDevice;
        let creator = Creator::default();
        let white = self.make_inode(dir, &NewInode::plain(kind, 0, creator))?;
        self.note_more();
        self.mark_mixed(white);
        self.set_entry(dir, name, white, kind)?;
        self.touch_dir(dir)
    }

    fn exchange(
        &mut self,
        (parent, name): NameIn<'_>,
        (new_parent, new_name): NameIn<'_>,
        moved: Ino,
        other: Ino,
    ) -> Step<()> {
        let (moved_kind, other_kind) = (self.inode(moved)?.kind(), self.inode(other)?.kind());
        let (old, new) = (self.entry(parent, name)?, self.entry(new_parent, new_name)?);
        self.set_entry(parent, old, other, other_kind)?;
        self.touch_dir(parent)?;
        self.set_entry(new_parent, new, moved, moved_kind)?;
        self.touch_dir(new_parent)?;
        self.mark_lost_name(parent);
        self.mark_lost_name(new_parent);
        self.settle(moved, parent, new_parent)?;
        self.settle(other, new_parent, parent)
    }

    /// An inode has a name in another directory: the `..` of a directory counts there.
    fn settle(&mut self, ino: Ino, from: Ino, to: Ino) -> Step<()> {
        let now = self.now;
        self.inode_mut(ino)?.raw.set_ctime(now);
        self.mark_mixed(ino);
        if !self.is_dir(ino)? {
            return Ok(());
        }
        self.mark_moved_dir();
        if from == to {
            return Ok(());
        }
        let dots = self.entry(ino, b"..")?;
        self.set_entry(ino, dots, to, FileKind::Directory)?;
        self.take_link(from)?;
        self.add_link(to)
    }
}
