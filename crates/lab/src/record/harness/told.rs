//! Which users have been told of what the cuts took, as Linux's `errseq_t` tells of failed
//! write-back: an fsync fails once through each handle that was open before the cut, and through a
//! later one if nobody has been told before.
//!
//! Once no file is open, errors are forgotten: a program that starts after a cut finds the files
//! that are left, and no errors.

use rustc_hash::FxHashMap;
use vfs::{Errno, Ino, Result};

/// See the module's header.
#[derive(Default)]
pub(super) struct Told {
    cuts: u64,
    /// The open handles, and the last cut of which each has been told, or that it came after.
    open: FxHashMap<u64, u64>,
    /// Files and directories of which a cut took changes.
    lost: FxHashMap<Ino, Loss>,
}

struct Loss {
    /// The last cut that took any.
    cut: u64,
    /// An fsync has failed since.
    is_told: bool,
}

impl Told {
    pub(super) fn opened(&mut self, ino: Ino, handle: u64) {
        let untold = self.lost.get(&ino).filter(|loss| !loss.is_told);
        let knows = untold.map_or(self.cuts, |loss| loss.cut - 1);
        self.open.insert(handle, knows);
    }

    pub(super) fn closed(&mut self, handle: u64) {
        self.open.remove(&handle);
        if self.open.is_empty() {
            self.lost.clear();
        }
    }

    /// Whether a program is there that can be told.
    pub(super) fn has_users(&self) -> bool {
        !self.open.is_empty()
    }

    /// A cut has taken changes of these.
    pub(super) fn lost(&mut self, from: impl IntoIterator<Item = Ino>) {
        self.cuts += 1;
        let loss = |ino| (ino, Loss { cut: self.cuts, is_told: false });
        self.lost.extend(from.into_iter().map(loss));
    }

    /// The inode is gone.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.lost.remove(&ino);
    }

    /// An fsync of `ino` begins, through `handle` if that is known. Fails if its caller has still
    /// to be told of a loss, and is told by that. Directories have no handles: the first fsync
    /// fails.
    pub(super) fn tell(&mut self, ino: Ino, handle: Option<u64>) -> Result<()> {
        let Some(loss) = self.lost.get_mut(&ino) else { return Ok(()) };
        let is_due = match handle.and_then(|handle| self.open.get_mut(&handle)) {
            Some(knows) => std::mem::replace(knows, loss.cut.max(*knows)) < loss.cut,
            None => !loss.is_told,
        };
        if !is_due {
            return Ok(());
        }
        loss.is_told = true;
        Err(Errno::IO.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_is_told_once() {
        let mut told = Told::default();
        let ok = |told: &mut Told, handle| told.tell(7, Some(handle)).is_ok();
        told.opened(7, 1);
        told.opened(7, 2);
        assert!(ok(&mut told, 1));
        told.lost([7]);
        assert_eq!([ok(&mut told, 1), ok(&mut told, 1)], [false, true]);
        // Opened after somebody was told.
        told.opened(7, 3);
        assert_eq!([ok(&mut told, 3), ok(&mut told, 2), ok(&mut told, 2)], [true, false, true]);
        told.lost([7]);
        // Opened before anybody was told.
        told.opened(7, 4);
        for handle in 1..=4 {
            assert_eq!([ok(&mut told, handle), ok(&mut told, handle)], [false, true], "{handle}");
        }
        assert!(told.tell(7, None).is_ok() && told.tell(8, None).is_ok());
    }

    #[test]
    fn a_directory_fails_once_and_nothing_is_told_when_all_is_closed() {
        let mut told = Told::default();
        told.opened(7, 1);
        told.lost([2]);
        assert!(told.tell(2, None).is_err() && told.tell(2, None).is_ok());
        told.lost([2]);
        told.closed(1);
        assert!(!told.has_users() && told.tell(2, None).is_ok());
    }
}
