//! How the lists of a file system follow its permission bits (`posix_acl.c`, `acl.c`): what setting
//! a list, chmod(2) and making a file do to the other.

use super::Acl;
use crate::{Errno, FileKind, Ino};

/// Which of an inode's two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Who may use it.
    Access,
    /// What new entries of a directory inherit.
    Default,
}

/// A file system that stores lists.
pub trait Holder {
    /// What can go wrong.
    type Error: From<Errno>;

    /// The stored list, if there is one.
    fn acl(&mut self, ino: Ino, which: Which) -> Result<Option<Acl>, Self::Error>;

    /// Stores a list, or removes it, if it is there.
    fn put_acl(&mut self, ino: Ino, which: Which, acl: Option<&Acl>) -> Result<(), Self::Error>;

    /// Type of an inode, and its permission bits.
    fn kind_and_perm(&mut self, ino: Ino) -> Result<(FileKind, u16), Self::Error>;

    /// Sets the permission bits, and the time of this change.
    fn set_perm(&mut self, ino: Ino, perm: u16) -> Result<(), Self::Error>;
}

/// Sets the access list, and the permission bits according to it. A list that says no more than
/// these bits is not stored.
fn set_access<H: Holder>(holder: &mut H, ino: Ino, acl: &Acl) -> Result<(), H::Error> {
    let (_, perm) = holder.kind_and_perm(ino)?;
    holder.set_perm(ino, perm & !0o777 | acl.perm())?;
    holder.put_acl(ino, Which::Access, Some(acl).filter(|acl| !acl.is_minimal()))
}

/// Sets a list to the `value` of its extended attribute, or removes it.
///
/// # Errors
///
/// `EINVAL`, `EOPNOTSUPP` for a value that is no list, `EACCES` for a default list of anything but
/// a directory.
pub fn set<H: Holder>(
    holder: &mut H,
    ino: Ino,
    which: Which,
    value: Option<&[u8]>,
) -> Result<(), H::Error> {
    let acl = match value.map(Acl::from_xattr).transpose() {
        Ok(acl) => acl.flatten(),
        Err(error) => return Err(error.errno().into()),
    };
    let (kind, _) = holder.kind_and_perm(ino)?;
    match (which, acl) {
        (Which::Default, Some(_)) if kind != FileKind::Directory => Err(Errno::ACCESS.into()),
        (Which::Access, Some(acl)) => set_access(holder, ino, &acl),
        (which, acl) => holder.put_acl(ino, which, acl.as_ref()),
    }
}

/// Makes the access list follow a change of the permission bits to `perm`.
///
/// # Errors
///
/// Those of the file system.
pub fn chmod<H: Holder>(holder: &mut H, ino: Ino, perm: u16) -> Result<(), H::Error> {
    match holder.acl(ino, Which::Access)? {
        Some(acl) => holder.put_acl(ino, Which::Access, Some(&acl.chmod(perm))),
        None => Ok(()),
    }
}

/// Gives the new inode `ino` the lists that it inherits from directory `dir`. Its permission bits
/// are still those that were requested.
///
/// # Errors
///
/// Those of the file system.
pub fn inherit<H: Holder>(holder: &mut H, dir: Ino, ino: Ino) -> Result<(), H::Error> {
    let (kind, perm) = holder.kind_and_perm(ino)?;
    if kind == FileKind::Symlink {
        return Ok(());
    }
    let Some(default) = holder.acl(dir, Which::Default)? else { return Ok(()) };
    let (acl, _) = default.inherited(perm);
    set_access(holder, ino, &acl)?;
    match kind {
        FileKind::Directory => holder.put_acl(ino, Which::Default, Some(&default)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Tag};
    use super::*;

    #[derive(Default)]
    struct Two {
        lists: [[Option<Acl>; 2]; 2],
        perm: [u16; 2],
    }

    impl Holder for Two {
        type Error = Errno;

        fn acl(&mut self, ino: Ino, which: Which) -> Result<Option<Acl>, Errno> {
            Ok(self.lists[ino as usize][which as usize].clone())
        }

        fn put_acl(&mut self, ino: Ino, which: Which, acl: Option<&Acl>) -> Result<(), Errno> {
            self.lists[ino as usize][which as usize] = acl.cloned();
            Ok(())
        }

        fn kind_and_perm(&mut self, ino: Ino) -> Result<(FileKind, u16), Errno> {
            let kind = if ino == 0 { FileKind::Directory } else { FileKind::Regular };
            Ok((kind, self.perm[ino as usize]))
        }

        fn set_perm(&mut self, ino: Ino, perm: u16) -> Result<(), Errno> {
            self.perm[ino as usize] = perm;
            Ok(())
        }
    }

    fn list(perm: [u16; 5]) -> Acl {
        let tags = [Tag::UserObj, Tag::User(7), Tag::GroupObj, Tag::Mask, Tag::Other];
        let entries = tags.into_iter().zip(perm).map(|(tag, perm)| Entry { tag, perm });
        Acl::new(entries.collect()).unwrap()
    }

    #[test]
    fn lists_and_bits_follow_each_other() {
        let mut two = Two { perm: [0o755, 0o1640], ..Two::default() };
        let default = list([7, 6, 5, 5, 0]);
        let value = default.to_xattr();
        set(&mut two, 0, Which::Default, Some(&value)).unwrap();
        assert_eq!(set(&mut two, 1, Which::Default, Some(&value)), Err(Errno::ACCESS));
        assert_eq!(set(&mut two, 1, Which::Access, Some(b"no")), Err(Errno::INVAL));
        inherit(&mut two, 0, 1).unwrap();
        assert_eq!(two.perm[1], 0o1640, "what was asked for, less what the list forbids");
        assert_eq!(two.lists[1][0], Some(list([6, 6, 5, 4, 0])));
        chmod(&mut two, 1, 0o700).unwrap();
        assert_eq!(two.lists[1][0].as_ref().unwrap().perm(), 0o700);
        let minimal = [(Tag::UserObj, 6), (Tag::GroupObj, 0), (Tag::Other, 0)];
        let minimal = Acl::new(minimal.map(|(tag, perm)| Entry { tag, perm }).into()).unwrap();
        set(&mut two, 1, Which::Access, Some(&minimal.to_xattr())).unwrap();
        assert_eq!((&two.lists[1][0], two.perm[1]), (&None, 0o1600));
        set(&mut two, 0, Which::Default, None).unwrap();
        assert_eq!(two.lists[0][1], None);
    }
}
