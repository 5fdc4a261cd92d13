//! ioctl(2), as far as FUSE lets it through: numbers that say how much they read and write
//! (`include/uapi/linux/fs.h`, `f2fs.h`).
//!
//! `F2FS_IOC_SHUTDOWN` is not among them: its number says that it only returns something, so FUSE
//! does not hand over the mode it is called with.

use vfs::Ino;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Done, Errno, Server, errno};
use crate::abi::{Init, IoctlIn, IoctlOut, O_APPEND, O_TRUNC};
use crate::wire::{Reply, Request};

/// `FS_IMMUTABLE_FL` and `FS_APPEND_FL`.
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ioctl {
    /// `FS_IOC_GETFLAGS`: a number.
    GetFlags,
    /// `FS_IOC_SETFLAGS`; the kernel has checked whether the caller may.
    SetFlags(u32),
    /// The project the inode is accounted to, a number: half of `FS_IOC_FSGETXATTR`, which Linux
    /// also asks for before it lets flags be set.
    GetProject,
    /// Half of `FS_IOC_FSSETXATTR`; the kernel has checked whether the caller may.
    SetProject(u32),
    /// `F2FS_IOC_GARBAGE_COLLECT`.
    GarbageCollect {
        /// As the foreground cleans.
        sync: bool,
    },
    /// `F2FS_IOC_WRITE_CHECKPOINT`.
    WriteCheckpoint,
    /// `F2FS_IOC_DEFRAGMENT`: how many bytes were moved.
    Defragment {
        /// First byte.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// `F2FS_IOC_GET_FEATURES`: a number.
    GetFeatures,
    /// `F2FS_IOC_SET_PIN_FILE`: a number, as for the next.
    SetPinFile(bool),
    /// `F2FS_IOC_GET_PIN_FILE`: a number.
    GetPinFile,
    /// `F2FS_IOC_PRECACHE_EXTENTS`.
    PrecacheExtents,
    /// `F2FS_IOC_START_ATOMIC_WRITE`.
    StartAtomicWrite,
    /// `F2FS_IOC_COMMIT_ATOMIC_WRITE`.
    CommitAtomicWrite,
    /// `F2FS_IOC_ABORT_ATOMIC_WRITE`.
    AbortAtomicWrite,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// That it is done.
    Done,
    /// A number.
    Number(u32),
    /// A number of bytes.
    Bytes(u64),
}

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
const GARBAGE_COLLECT: u32 = 0x4004_f506;
const WRITE_CHECKPOINT: u32 = 0xf507;
const DEFRAGMENT: u32 = 0xc010_f508;
const GET_FEATURES: u32 = 0x8004_f50c;
const SET_PIN_FILE: u32 = 0x4004_f50d;
const GET_PIN_FILE: u32 = 0x8004_f50e;
const PRECACHE_EXTENTS: u32 = 0xf50f;
const START_ATOMIC_WRITE: u32 = 0xf501;
const COMMIT_ATOMIC_WRITE: u32 = 0xf502;
const ABORT_ATOMIC_WRITE: u32 = 0xf505;
/// `F2FS_FEATURE_ATOMIC_WRITE`, by which programs know that they may ask for it.
const FEATURE_ATOMIC_WRITE: u32 = 0x4;

impl Ioctl {
    /// What a number and the bytes handed over with it ask for.
    fn parse(cmd: u32, data: &[u8]) -> Result<Self, Errno> {
        let number = || u32::read_from_prefix(data).map(|(n, _)| n).map_err(|_| Errno::INVAL);
        Ok(match cmd {
            GETFLAGS => Self::GetFlags,
            SETFLAGS => Self::SetFlags(number()?),
            GARBAGE_COLLECT => Self::GarbageCollect { sync: number()? != 0 },
            WRITE_CHECKPOINT => Self::WriteCheckpoint,
            DEFRAGMENT => {
                let range = <[u64; 2]>::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                Self::Defragment { start: range.0[0], len: range.0[1] }
            }
            GET_FEATURES => Self::GetFeatures,
            SET_PIN_FILE => Self::SetPinFile(number()? != 0),
            GET_PIN_FILE => Self::GetPinFile,
            PRECACHE_EXTENTS => Self::PrecacheExtents,
            START_ATOMIC_WRITE => Self::StartAtomicWrite,
            COMMIT_ATOMIC_WRITE => Self::CommitAtomicWrite,
            ABORT_ATOMIC_WRITE => Self::AbortAtomicWrite,
            _ => return Err(Errno::NOTTY),
        })
    }

    fn is_atomic(self) -> bool {
        matches!(self, Self::StartAtomicWrite | Self::CommitAtomicWrite | Self::AbortAtomicWrite)
    }

    /// Whether anybody who could open the file may ask.
    fn is_free(self) -> bool {
        matches!(
            self,
            Self::GetFlags
                | Self::SetFlags(_)
                | Self::GetFeatures
                | Self::GetPinFile
                | Self::PrecacheExtents
        )
    }
}

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

/// `FS_*_FL` and what they are as `FS_XFLAG_*`: synchronous, immutable, append only, not dumped, no
/// access times, project inherited.
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
    /// `FS_IOC_FSGETXATTR`, and with `set` `FS_IOC_FSSETXATTR`.
    fn fsxattr(&self, ino: Ino, set: Option<Fsxattr>, reply: &mut Reply<'_>) -> Done {
        let flags = self.flags(ino)?;
        let control = self.control.as_deref().ok_or(Errno::NOTTY)?;
        let Some(wanted) = set else {
            let Answer::Number(projid) = control.ioctl(ino, Ioctl::GetProject).map_err(errno)?
            else {
                return Err(Errno::IO);
            };
            reply.put(&IoctlOut::default());
            reply.put(&Fsxattr { xflags: xflags_of(flags), projid, ..Fsxattr::default() });
            return Ok(());
        };
        let new = flags_of(wanted.xflags, flags).ok_or(Errno::OPNOTSUPP)?;
        self.nodes.changed(ino);
        control.ioctl(ino, Ioctl::SetProject(wanted.projid)).map_err(errno)?;
        control.ioctl(ino, Ioctl::SetFlags(new)).map_err(errno)?;
        reply.put(&IoctlOut::default());
        Ok(())
    }

    /// Not where the kernel collects writes, because a commit would miss some; nor over rings,
    /// where an abort would wait for readers that the same thread has to answer.
    fn can_write_atomically(&self) -> bool {
        !self.behaviour.writeback
            && !self.behaviour.read_only
            && !self.is_agreed(Init::OVER_IO_URING)
    }

    /// Starts, commits or aborts an atomic write: for the owner, by a handle that can write.
    fn atomic_write(&self, request: &Request<'_>, ino: Ino, fh: u64, what: Ioctl) -> Done {
        let control = self.control.as_deref().ok_or(Errno::NOTTY)?;
        let uid = request.header.uid;
        if fh & 1 == 0 {
            return Err(Errno::BADF);
        }
        if uid != 0 && uid != self.fs.getattr(ino).map_err(errno)?.uid {
            return Err(Errno::ACCESS);
        }
        if !self.can_write_atomically() {
            return Err(Errno::OPNOTSUPP);
        }
        if what == Ioctl::AbortAtomicWrite {
            return self.abort_atomic_write(ino);
        }
        self.nodes.changed(ino);
        control.ioctl(ino, what).map_err(errno)?;
        let starts = what == Ioctl::StartAtomicWrite;
        self.nodes.set_atomic_by(ino, starts.then(|| self.nodes.atomic_by(ino).unwrap_or(fh)));
        Ok(())
    }

    /// The file is what it was before, and the kernel must not show anything else.
    pub(super) fn abort_atomic_write(&self, ino: Ino) -> Done {
        let control = self.control.as_deref().ok_or(Errno::NOTTY)?;
        self.nodes.set_atomic_by(ino, None);
        control.ioctl(ino, Ioctl::AbortAtomicWrite).map_err(errno)?;
        self.device.forget_contents(self.node(ino));
        Ok(())
    }

    /// Flags of an inode, `FS_*_FL`.
    fn flags(&self, ino: Ino) -> Result<u32, Errno> {
        let control = self.control.as_deref().ok_or(Errno::NOTTY)?;
        match control.ioctl(ino, Ioctl::GetFlags).map_err(errno)? {
            Answer::Number(flags) => Ok(flags),
            _ => Err(Errno::IO),
        }
    }

    /// Fails if the flags of `ino` forbid to open it like this (`may_open`, which does not know
    /// them).
    pub(super) fn check_flags(&self, ino: Ino, open: u32) -> Done {
        let flags = match self.flags(ino) {
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
        match args.cmd {
            FSGETXATTR => return self.fsxattr(ino, None, reply),
            FSSETXATTR => {
                let (set, _) = Fsxattr::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                return self.fsxattr(ino, Some(set), reply);
            }
            _ => {}
        }
        let ioctl = Ioctl::parse(args.cmd, data)?;
        if ioctl.is_atomic() {
            self.atomic_write(request, ino, args.fh, ioctl)?;
            reply.put(&IoctlOut::default());
            return Ok(());
        }
        let control = self.control.as_deref().ok_or(Errno::NOTTY)?;
        if !ioctl.is_free() && self.control(request).is_none() {
            return Err(Errno::PERM);
        }
        if matches!(ioctl, Ioctl::SetFlags(_)) {
            self.nodes.changed(ino);
        }
        let answer = control.ioctl(ino, ioctl).map_err(errno)?;
        reply.put(&IoctlOut::default());
        match (answer, ioctl) {
            (Answer::Done, _) => {}
            (Answer::Number(features), Ioctl::GetFeatures) => {
                let atomic = if self.can_write_atomically() { FEATURE_ATOMIC_WRITE } else { 0 };
                reply.put(&(features & !FEATURE_ATOMIC_WRITE | atomic));
            }
            (Answer::Number(number), _) => reply.put(&number),
            (Answer::Bytes(len), Ioctl::Defragment { start, .. }) => reply.put(&[start, len]),
            (Answer::Bytes(len), _) => reply.put(&len),
        }
        Ok(())
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
