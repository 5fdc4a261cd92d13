//! Everything that changes which inode a name stands for.

use super::MemFs;
use super::node::{Body, Node};
use super::state::{ROOT, State};
use crate::{Attr, Creator, Errno, Ino, RenameFlags, Result, check_name};

const SET_GID: u16 = 0o2000;

impl State {
    /// Makes an inode with one name. In a set-group-ID directory it gets the directory's group,
    /// and a new directory the bit as well.
    pub(super) fn make(
        &mut self,
        parent: Ino,
        name: &[u8],
        body: Body,
        perm: u16,
        creator: Creator,
    ) -> Result<Attr> {
        self.check_free(parent, name)?;
        let is_dir = matches!(body, Body::Dir(_));
        if is_dir {
            self.check_links(parent)?;
        }
        let mut node = Node::new(body, perm, creator);
        let above = self.node_mut(parent)?;
        if above.perm & SET_GID != 0 {
            node.gid = above.gid;
            node.perm |= if is_dir { SET_GID } else { 0 };
        }
        above.nlink += u32::from(is_dir);
        let ino = self.ino_next;
        self.ino_next += 1;
        self.change_dir(parent, |dir| dir.put(name, ino));
        let attr = node.attr(ino);
        self.nodes.insert(ino, node);
        Ok(attr)
    }

    pub(super) fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.check_free(parent, name)?;
        if self.is_dir(ino) {
            return Err(Errno::PERM.into());
        }
        if self.node(ino)?.nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        self.check_links(ino)?;
        let node = self.node_mut(ino)?;
        node.nlink += 1;
        node.touch_ctime();
        self.change_dir(parent, |dir| dir.put(name, ino));
        self.attr(ino)
    }

    pub(super) fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let ino = self.lookup(parent, name)?;
        if self.is_dir(ino) {
            return Err(Errno::ISDIR.into());
        }
        self.change_dir(parent, |dir| dir.take(name));
        self.unlink_node(ino);
        Ok(())
    }

    pub(super) fn rmdir(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        match name {
            b"." => return Err(Errno::INVAL.into()),
            b".." => return Err(Errno::NOTEMPTY.into()),
            _ => {}
        }
        let ino = self.lookup(parent, name)?;
        if !self.dir(ino)?.entries.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.change_dir(parent, |dir| dir.take(name));
        self.node_mut(parent)?.nlink -= 1;
        self.unlink_node(ino);
        Ok(())
    }

    /// rename(2) and renameat2(2). The checks stand in the order in which Linux makes them.
    pub(super) fn rename(
        &mut self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
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
        self.dir(parent)?;
        self.dir(new_parent)?;
        if matches!(name, b"." | b"..") || matches!(new_name, b"." | b"..") {
            return Err(Errno::BUSY.into());
        }
        let moved = self.lookup(parent, name)?;
        let target = match self.lookup(new_parent, new_name) {
            Ok(_) if no_replace => return Err(Errno::EXIST.into()),
            Ok(ino) => Some(ino),
            Err(error) if error.errno() == Errno::NOENT && !exchange => None,
            Err(error) => return Err(error),
        };
        check_name(new_name)?;
        if self.is_below(new_parent, moved) {
            return Err(Errno::INVAL.into());
        }
        if let Some(target) = target
            && self.is_below(parent, target)
        {
            return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into());
        }
        match target {
            Some(target) if target == moved => Ok(()),
            Some(target) if exchange => {
                self.exchange((parent, name, moved), (new_parent, new_name, target))
            }
            _ => self.replace((parent, name, moved), (new_parent, new_name, target)),
        }
    }

    fn exchange(
        &mut self,
        (parent, name, moved): (Ino, &[u8], Ino),
        (new_parent, new_name, target): (Ino, &[u8], Ino),
    ) -> Result<()> {
        if parent != new_parent && self.is_dir(moved) != self.is_dir(target) {
            let gains = if self.is_dir(moved) { new_parent } else { parent };
            self.check_links(gains)?;
        }
        self.settle(moved, parent, new_parent);
        self.settle(target, new_parent, parent);
        self.change_dir(parent, |dir| dir.put(name, target));
        self.change_dir(new_parent, |dir| dir.put(new_name, moved));
        Ok(())
    }

    fn replace(
        &mut self,
        (parent, name, moved): (Ino, &[u8], Ino),
        (new_parent, new_name, target): (Ino, &[u8], Option<Ino>),
    ) -> Result<()> {
        let moved_is_dir = self.is_dir(moved);
        if let Some(target) = target {
            match (moved_is_dir, self.is_dir(target)) {
                (true, false) => return Err(Errno::NOTDIR.into()),
                (false, true) => return Err(Errno::ISDIR.into()),
                (true, true) if !self.dir(target)?.entries.is_empty() => {
                    return Err(Errno::NOTEMPTY.into());
                }
                _ => {}
            }
        } else if moved_is_dir && parent != new_parent {
            self.check_links(new_parent)?;
        }
        self.settle(moved, parent, new_parent);
        self.change_dir(parent, |dir| dir.take(name));
        self.change_dir(new_parent, |dir| dir.put(new_name, moved));
        if let Some(target) = target {
            if moved_is_dir {
                self.node_mut(new_parent)?.nlink -= 1;
            }
            self.unlink_node(target);
        }
        Ok(())
    }

    /// Gives an inode its new parent. A directory's `..` counts as a link to the parent.
    fn settle(&mut self, ino: Ino, from: Ino, to: Ino) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.touch_ctime();
        let Body::Dir(dir) = &mut node.body else { return };
        dir.parent = to;
        if from != to {
            for (parent, change) in [(from, -1), (to, 1)] {
                if let Some(node) = self.nodes.get_mut(&parent) {
                    node.nlink = node.nlink.saturating_add_signed(change);
                }
            }
        }
    }

    /// Whether `ino` is `ancestor` or lies below it.
    fn is_below(&self, ino: Ino, ancestor: Ino) -> bool {
        let mut here = ino;
        loop {
            if here == ancestor {
                return true;
            }
            match self.dir(here) {
                Ok(dir) if here != ROOT => here = dir.parent,
                _ => return false,
            }
        }
    }

    /// Whether a new entry `name` can be made in `parent`.
    fn check_free(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match self.lookup(parent, name) {
            Ok(_) => Err(Errno::EXIST.into()),
            Err(error) if error.errno() != Errno::NOENT => Err(error),
            Err(_) => {
                self.dir(parent)?;
                check_name(name)
            }
        }
    }

    fn check_links(&self, ino: Ino) -> Result<()> {
        if self.node(ino)?.nlink >= MemFs::LINK_MAX {
            return Err(Errno::MLINK.into());
        }
        Ok(())
    }
}
