//! ioctl(2), as far as FUSE lets it through: only numbers that say how much they read and write
//! (`include/uapi/linux/fs.h`). The volume handles those that not every file system has.

use vfs::Ino;
use vfs::kind::{Atomic, Ioctl};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::files::HANDLE_WRITES;
use super::{Done, Errno, Server, errno};
use crate::abi::{Init, IoctlIn, IoctlOut, O_APPEND, O_TRUNC};
use crate::wire::{Reply, Request};

/// `FS_IMMUTABLE_FL` and `FS_APPEND_FL`.
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
/// `FS_JOURNAL_DATA_FL`.
const JOURNAL_DATA: u32 = 0x4000;
/// `FS_CASEFOLD_FL`.
const CASEFOLD: u32 = 0x4000_0000;

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
/// `F2FS_IOC_START_ATOMIC_WRITE` and the like. Programs use these numbers to ask for atomic writes,
/// whatever the file system.
const START_ATOMIC_WRITE: u32 = 0xf501;
const COMMIT_ATOMIC_WRITE: u32 = 0xf502;
const ABORT_ATOMIC_WRITE: u32 = 0xf505;

/// `struct fsxattr`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Fsxattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}
const _: () = assert!(size_of::<Fsxattr>() == 28);

/// Pairs of `FS_*_FL` and `FS_XFLAG_*`: synchronous, immutable, append only, not dumped, no access
/// times, project inherited.
const XFLAGS: [(u32, u32); 6] =
    [(0x8, 0x20), (0x10, 0x8), (0x20, 0x10), (0x40, 0x80), (0x80, 0x40), (0x2000_0000, 0x200)];

/// The `FS_*_FL` of a file with these `FS_XFLAG_*` that had `old`; `None` if there is no such flag.
fn flags_of(xflags: u32, old: u32) -> Option<u32> {
    let (flags, known) = XFLAGS.iter().fold((old, 0), |(flags, known), (flag, xflag)| {
        let set = if xflags & xflag == 0 { 0 } else { *flag };
        (flags & !flag | set, known | xflag)
    });
    (xflags & !known == 0).then_some(flags)
}

fn xflags_of(flags: u32) -> u32 {
    XFLAGS.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, xflag)| xflag).sum()
}

impl Server {
    /// `FS_IOC_FSGETXATTR` or, with `set`, `FS_IOC_FSSETXATTR`.
    fn fsxattr(&self, ino: Ino, set: Option<Fsxattr>, reply: &mut Reply<'_>) -> Done {
        let flags = self.fs.flags(ino).map_err(errno)?;
        let projid = self.fs.project(ino).map_err(errno)?;
        let Some(wanted) = set else {
            reply.put(&IoctlOut::default());
            reply.put(&Fsxattr { xflags: xflags_of(flags), projid, ..Fsxattr::default() });
            return Ok(());
        };
        let new = flags_of(wanted.xflags, flags).ok_or(Errno::OPNOTSUPP)?;
        self.nodes.changed(ino);
        if wanted.projid != projid {
            self.fs.set_project(ino, wanted.projid).map_err(errno)?;
        }
        self.fs.set_flags(ino, new).map_err(errno)?;
        self.device.forget_attributes(self.node(ino));
        reply.put(&IoctlOut::default());
        Ok(())
    }

    fn set_flags(&self, uid: u32, ino: Ino, flags: u32) -> Done {
        // `CAP_SYS_RESOURCE` of ext4; the VFS checks what other flags ask for.
        let toggled = flags ^ self.fs.flags(ino).map_err(errno)?;
        if uid != 0 && toggled & JOURNAL_DATA != 0 {
            return Err(Errno::PERM);
        }
        self.nodes.changed(ino);
        let folded = self.folds(ino);
        self.fs.set_flags(ino, flags).map_err(errno)?;
        // The kernel does not know that the time of change is another.
        self.device.forget_attributes(self.node(ino));
        if folded != (flags & CASEFOLD != 0) {
            self.nodes.refold(ino);
            // The directory is empty, but the kernel may know names that it does not have.
            self.device.forget_names();
        }
        Ok(())
    }

    /// Whether the entries of a directory have other spellings.
    pub(super) fn folds(&self, dir: Ino) -> bool {
        self.nodes.folds(dir, || self.fs.flags(dir).is_ok_and(|flags| flags & CASEFOLD != 0))
    }

    /// Not if the kernel collects writes, because a commit would miss some. Not over rings either,
    /// where an abort would wait for readers that the same thread has to answer.
    fn can_write_atomically(&self) -> bool {
        !self.behaviour.writeback
            && !self.behaviour.read_only
            && !self.is_agreed(Init::OVER_IO_URING)
    }

    /// Starts, commits or aborts an atomic write. Only the owner may, through a handle that can
    /// write.
    fn atomic_write(&self, request: &Request<'_>, ino: Ino, fh: u64, step: Atomic) -> Done {
        let uid = request.header.uid;
        if fh & HANDLE_WRITES == 0 {
            return Err(Errno::BADF);
        }
        if uid != 0 && uid != self.fs.getattr(ino).map_err(errno)?.uid {
            return Err(Errno::ACCESS);
        }
        if !self.can_write_atomically() {
            return Err(Errno::OPNOTSUPP);
        }
        if step == Atomic::Abort {
            return self.abort_atomic_write(ino);
        }
        self.nodes.changed(ino);
        self.fs.atomic_write(ino, step).map_err(errno)?;
        let starts = step == Atomic::Start;
        self.nodes.set_atomic_by(ino, starts.then(|| self.nodes.atomic_by(ino).unwrap_or(fh)));
        Ok(())
    }

    /// Aborts an atomic write. The file is then as before, and the kernel must not show anything
    /// else.
    pub(super) fn abort_atomic_write(&self, ino: Ino) -> Done {
        self.nodes.set_atomic_by(ino, None);
        self.fs.atomic_write(ino, Atomic::Abort).map_err(errno)?;
        self.device.forget_contents(self.node(ino));
        Ok(())
    }

    /// Fails if the flags of `ino` forbid opening it in this way (`may_open`, which does not know
    /// them).
    pub(super) fn check_flags(&self, ino: Ino, open: u32) -> Done {
        let flags = match self.fs.flags(ino).map_err(errno) {
            // It has none.
            Err(Errno::NOTTY) => return Ok(()),
            flags => flags?,
        };
        let appends = open & O_APPEND != 0 && open & O_TRUNC == 0;
        let forbidden = flags & IMMUTABLE != 0 || flags & APPEND != 0 && !appends;
        if forbidden { Err(Errno::PERM) } else { Ok(()) }
    }

    pub(super) fn ioctl(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let (args, data) = request.args_and_rest::<IoctlIn>()?;
        let data = data.get(..args.in_size as usize).ok_or(Errno::IO)?;
        let ino = self.ino(request.header.nodeid);
        let step = match args.cmd {
            FSGETXATTR => return self.fsxattr(ino, None, reply),
            FSSETXATTR => {
                let (set, _) = Fsxattr::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                return self.fsxattr(ino, Some(set), reply);
            }
            GETFLAGS => {
                let flags = self.fs.flags(ino).map_err(errno)?;
                reply.put(&IoctlOut::default());
                reply.put(&flags);
                return Ok(());
            }
            SETFLAGS => {
                let (flags, _) = u32::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                self.set_flags(request.header.uid, ino, flags)?;
                reply.put(&IoctlOut::default());
                return Ok(());
            }
            START_ATOMIC_WRITE => Atomic::Start,
            COMMIT_ATOMIC_WRITE => Atomic::Commit,
            ABORT_ATOMIC_WRITE => Atomic::Abort,
            number => {
                let answer = self.fs.ioctl(ino, self.call(request, number, data)).map_err(errno)?;
                if answer.len() > args.out_size as usize {
                    return Err(Errno::IO);
                }
                reply.put(&IoctlOut::default());
                reply.bytes(&answer);
                return Ok(());
            }
        };
        self.atomic_write(request, ino, args.fh, step)?;
        reply.put(&IoctlOut::default());
        Ok(())
    }

    fn call<'a>(&self, request: &Request<'_>, number: u32, input: &'a [u8]) -> Ioctl<'a> {
        let (privileged, atomic_writes) =
            (self.is_privileged(request), self.can_write_atomically());
        Ioctl { number, input, privileged, atomic_writes }
    }
}

#[cfg(test)]
mod tests {
    use super::{flags_of, xflags_of};

    #[test]
    fn flags_without_a_second_name_stay() {
        const COMPRESSED: u32 = 0x4;
        assert_eq!(xflags_of(COMPRESSED | 0x10 | 0x2000_0000), 0x8 | 0x200);
        assert_eq!(flags_of(0x10 | 0x40, COMPRESSED | 0x10), Some(COMPRESSED | 0x20 | 0x80));
        assert_eq!(flags_of(0x1, 0), None, "there are no realtime files");
    }
}
